"""Means with bootstrap intervals, and the summary of each scheduler's episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from collapipe_env.evaluation.episode import EpisodeResult

CONFIDENCE = 0.95
RESAMPLES = 9999
TARGET_SHARE = 0.9
"""Share of the best scheduler's fall of the loss at which the target is set by default."""


@dataclass(frozen=True)
class Estimate:
    """A mean over held-out episodes.

    Attributes:
        mean: The mean; NaN if there is none.
        low: Lower end of its 95 % bootstrap interval; NaN for a single episode, which has none.
        high: Upper end.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class TargetTime:
    """Simulated time to the target loss.

    Attributes:
        reached: Episodes that reached the target.
        episodes: Episodes in all; one that did not reach it is censored at its end.
        seconds: Mean time of the episodes if all reached it, else NaN: a mean over those that did would
            favour schedulers that seldom do.
    """

    reached: int
    episodes: int
    seconds: Estimate


@dataclass(frozen=True)
class Summary:
    """One scheduler's line of the table; every estimate is over episodes.

    Attributes:
        scheduler: Name it was asked for by.
        title: Its own name.
        delay_mean: Mean round delay [s].
        delay_p95: 95th percentile of the round delay [s].
        time_to_target: Simulated time to the target loss.
        energy_excess: Worst node's time-average energy over its budget, less 1; at most 0 if all budgets
            are met.
        final_backlog: Sum of the energy queues at the end.
        peak_memory_bytes: Most memory that any device needed [byte].
        final_loss: Smoothed evaluation loss at the end [nat].
        metric: Task metric at the end, in [0, 1].
        decision_s: Median wall-clock time of a decision [s].
    """

    scheduler: str
    title: str
    delay_mean: Estimate
    delay_p95: Estimate
    time_to_target: TargetTime
    energy_excess: Estimate
    final_backlog: Estimate
    peak_memory_bytes: Estimate
    final_loss: Estimate
    metric: Estimate
    decision_s: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def estimate(values: Sequence[float], seed: int = 0) -> Estimate:
    """Mean of values with a percentile bootstrap interval, reproducible.

    The percentile method stays defined for a handful of episodes and for values that are all equal,
    where bias-corrected intervals do not exist.

    Args:
        values: One for each episode; NaN anywhere gives NaN.
        seed: Of the resampling.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or np.isnan(array).any():
        return Estimate(math.nan)
    mean = float(array.mean())
    if array.size == 1:
        return Estimate(mean)
    interval = bootstrap(
        (array,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Estimate(mean, float(interval.low), float(interval.high))


def default_target(episodes: Mapping[str, Sequence[EpisodeResult]]) -> float:
    """A target loss that every useful scheduler can reach and none starts at.

    Of the fall from the untrained model's loss to the lowest final (smoothed) loss of any scheduler,
    both means over episodes, ``TARGET_SHARE`` has been done there.

    Args:
        episodes: Each scheduler's episodes.

    Returns:
        The target [nat]; NaN, which nothing reaches, if no scheduler ends below the untrained model.
    """
    initial = float(np.mean([e.initial_loss for results in episodes.values() for e in results]))
    final = min(float(np.mean([e.smoothed_loss[-1] for e in results])) for results in episodes.values())
    return initial - TARGET_SHARE * (initial - final) if final < initial else math.nan


def time_to_target(results: Sequence[EpisodeResult], target: float) -> TargetTime:
    """When the smoothed loss is first at or below a target, at the end of the round.

    Args:
        results: Episodes of one scheduler.
        target: The target loss [nat].
    """
    times = []
    for result in results:
        below = np.flatnonzero(np.asarray(result.smoothed_loss) <= target)
        times.append(float(np.cumsum(result.delay)[below[0]]) if below.size else math.nan)
    reached = sum(not math.isnan(time) for time in times)
    return TargetTime(reached, len(times), estimate(times))


def summarise(results: Sequence[EpisodeResult], target: float) -> Summary:
    """The summary of one scheduler's episodes.

    Args:
        results: At least one.
        target: Target loss [nat].
    """
    return Summary(
        scheduler=results[0].scheduler,
        title=results[0].title,
        delay_mean=estimate([float(np.mean(r.delay)) for r in results]),
        delay_p95=estimate([float(np.percentile(r.delay, 95)) for r in results]),
        time_to_target=time_to_target(results, target),
        energy_excess=estimate([r.worst_energy_ratio - 1.0 for r in results]),
        final_backlog=estimate([r.backlog[-1] for r in results]),
        peak_memory_bytes=estimate([r.peak_memory_bytes for r in results]),
        final_loss=estimate([r.smoothed_loss[-1] for r in results]),
        metric=estimate([r.metric[-1] for r in results]),
        decision_s=estimate([float(np.median(r.decision_s)) for r in results]),
    )
