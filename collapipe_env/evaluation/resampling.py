"""Means with bootstrap intervals over episodes and, for learned schedulers, over training runs.

A learned scheduler that was trained R times is a row of R runs, all of which play the same E episodes: a
matrix (R, E) of one value each. Another training would give another run, and other seeds other episodes. The
two-way bootstrap [X] therefore draws runs and, independently, episodes, both with replacement. A drawn
episode is drawn for all runs, and for the scheduler with which they are compared. A scheduler without
training is a single run, for which this is the ordinary bootstrap over episodes.

A few runs say little about how runs differ. Where they differ far more than episodes do, a 95 % interval
covers the truth in some 75 % of all cases with three runs, 85 % with five and 92 % with ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
RESAMPLES = 9999
SEED = 0
"""Seed of the resampling, so that intervals are reproducible."""
CELLS = 2**22
"""Most values of resamples in memory at once."""

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Estimate:
    """A mean, or another statistic, over held-out episodes and training runs.

    Attributes:
        mean: Its value; NaN if there is none.
        low: Lower end of its 95 % bootstrap interval; NaN for a single value, which has none.
        high: Upper end.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        """The mean and its interval, to four digits: ``9.445 (9.407…9.515)``."""
        interval = "" if math.isnan(self.low) else f" ({self.low:.4g}…{self.high:.4g})"
        return f"{self.mean:.4g}{interval}"


def interquartile_mean(values: npt.ArrayLike, axis: int = -1) -> Any:
    """Mean of the middle half: without the lowest and the highest quarter, rounded down in number."""
    row = np.asarray(values, dtype=np.float64)
    cut, count = row.shape[axis] // 4, row.shape[axis]
    parted = np.moveaxis(np.partition(row, (cut, count - cut - 1), axis), axis, 0)
    return parted[cut : count - cut].mean(axis=0)


def estimate(values: npt.ArrayLike, statistic: Callable[..., Any] = np.mean) -> Estimate:
    """Mean of values with a percentile bootstrap interval, reproducible.

    The percentile method stays defined for a handful of episodes and for values that are all equal,
    where bias-corrected intervals do not exist.

    Args:
        values: One for each episode (E,), or for each training run and episode (R, E); NaN anywhere gives
            NaN.
        statistic: Statistic in place of the mean; takes an array and ``axis``.
    """
    return stratified_estimate([values], statistic)


def stratified_estimate(
    samples: Sequence[npt.ArrayLike], statistic: Callable[..., Any] = np.mean
) -> Estimate:
    """Like :func:`estimate` over all values of several samples; each one's episodes are resampled separately.

    Where all samples have equally many runs, these are drawn jointly, since run i of each may be one agent;
    otherwise they are drawn separately.

    Args:
        samples: Values of each stratum, for instance of each scenario, (E,) or (R, E); NaN anywhere gives
            NaN.
        statistic: Statistic of all values together; takes an array and ``axis``.
    """
    matrices = [_matrix(values) for values in samples]
    together = np.concatenate([m.ravel() for m in matrices]) if matrices else np.empty(0)
    if together.size == 0 or np.isnan(together).any():
        return Estimate(math.nan)
    mean = float(statistic(together, axis=-1))
    if max(m.size for m in matrices) == 1:
        return Estimate(mean)
    runs, episodes = _resamples(matrices)
    found = np.empty(RESAMPLES)
    step = max(CELLS // together.size, 1)
    for start in range(0, RESAMPLES, step):
        part = slice(start, start + step)
        values = [
            m[r[part, :, None], e[part, None, :]].reshape(len(r[part]), m.size)
            for m, r, e in zip(matrices, runs, episodes, strict=True)
        ]
        found[part] = statistic(np.concatenate(values, axis=-1), axis=-1)
    return _with_interval(mean, found)


def probability_of_improvement(values: npt.ArrayLike, reference: npt.ArrayLike) -> Estimate:
    """Probability that a scheduler's value is below the reference's in the same episode; a tie counts half.

    In each episode it is the share of all pairs of a run of the one and a run of the other: the Mann-Whitney
    statistic over the number of pairs. The result is the mean of these shares over episodes. The bootstrap
    draws the runs of each separately, and the episodes for both together.

    Args:
        values: Values of the scheduler, (E,) or (R, E).
        reference: Values of the reference, (E,) or (S, E), in the same episodes.
    """
    ours, theirs = _matrix(values), _matrix(reference)
    if ours.size == 0 or np.isnan(ours).any() or np.isnan(theirs).any():
        return Estimate(math.nan)
    first, second = ours[:, None, :], theirs[None, :, :]
    won = (first < second) + 0.5 * (first == second)
    mean = float(won.mean())
    if won.size == 1:
        return Estimate(mean)
    random = np.random.default_rng(SEED)
    episodes = _counts(_drawn(random, won.shape[2]), won.shape[2])
    own, other = (_counts(_drawn(random, count), count) for count in won.shape[:2])
    # Whole numbers and halves: the sums are exact.
    found = np.einsum("br,bs,be,rse->b", own, other, episodes, won, optimize=True) / won.size
    return _with_interval(mean, found)


def performance_profile(
    samples: Sequence[npt.ArrayLike], thresholds: npt.ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Share of episodes with a value of at most each threshold, over all runs.

    Args:
        samples: Values of each stratum, for instance of each scenario, (E,) or (R, E), resampled as in
            :func:`stratified_estimate`. They are normalised, for instance by the reference's in the same
            episode; infinite where nothing counts, but not NaN.
        thresholds: The thresholds, (T,).

    Returns:
        The shares, (T,) in [0, 1], and lower and upper ends of their 95 % bootstrap intervals, each for its
        threshold alone; NaN for a single value.
    """
    matrices, limits = [_matrix(values) for values in samples], np.asarray(thresholds, dtype=np.float64)
    total = sum(m.size for m in matrices)
    below = [(m[:, :, None] <= limits).astype(np.float64) for m in matrices]
    share = np.asarray(sum(one.sum(axis=(0, 1)) for one in below)) / total
    if max(m.size for m in matrices) == 1:
        return share, np.full(limits.shape, math.nan), np.full(limits.shape, math.nan)
    found = np.zeros((RESAMPLES, limits.size))
    for one, drawn, episodes in zip(below, *_resamples(matrices), strict=True):
        times, often = _counts(drawn, one.shape[0]), _counts(episodes, one.shape[1])
        for run, values in enumerate(one):
            found += times[:, run, None] * (often @ values)
    return share, *_ends(found / total)


def _matrix(values: npt.ArrayLike) -> Floats:
    """Values as runs x episodes."""
    return np.atleast_2d(np.asarray(values, dtype=np.float64))


def _drawn(random: np.random.Generator, count: int) -> Indices:
    """Places drawn with replacement, (resamples, count)."""
    return random.integers(0, count, (RESAMPLES, count))


def _resamples(matrices: Sequence[Floats]) -> tuple[list[Indices], list[Indices]]:
    """Runs and episodes drawn for each stratum; runs jointly where all have equally many."""
    random = np.random.default_rng(SEED)
    # A single value is the same in every resample, and so says nothing about its spread.
    episodes = [_drawn(random, m.shape[1]) for m in matrices]
    if len({m.shape[0] for m in matrices}) == 1:
        return [_drawn(random, matrices[0].shape[0])] * len(matrices), episodes
    return [_drawn(random, m.shape[0]) for m in matrices], episodes


def _counts(drawn: Indices, count: int) -> Floats:
    """Number of times that each place was drawn in each resample, (resamples, count)."""
    offset = count * np.arange(len(drawn))[:, None]
    flat = np.bincount((drawn + offset).ravel(), minlength=count * len(drawn))
    return flat.reshape(len(drawn), count).astype(np.float64)


def _ends(found: Floats) -> tuple[Floats, Floats]:
    """Ends of the percentile intervals of resampled values, whose first axis are the resamples."""
    outside = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(found, [outside, 100.0 - outside], axis=0)
    return low, high


def _with_interval(mean: float, found: Floats) -> Estimate:
    low, high = _ends(found)
    return Estimate(mean, float(low), float(high))
