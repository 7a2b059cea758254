"""Robust least squares for the surrogate's constants, and their errors against real runs."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.surrogate_fits import SKEWED_PARTITIONS, SurrogateConstants
from collapipe_env.learners.surrogate_progress import SurrogateOutcome, progress
from collapipe_env.physics.loss_curve import loss_at
from fitting.conditions import Condition
from fitting.real_runs import EVALUATE_EVERY, Run

LOGARITHMIC = ("exponent", "head_speed", "rate", "noise")
"""Constants that must be above 0; they are searched on a logarithmic scale."""
LINEAR = ("floor_loss", "head_share", "drift", "error", "participation", "sitting_out")
HIGHEST = {"head_share": 1.0, "drift": 1e2, "error": 1e2, "participation": 1e5, "sitting_out": 1e2}
"""Upper bounds; the bound of ``floor_loss`` is just below the initial loss."""
OVERFITTING = 0.1
"""Share of the fall by which the loss may rise again before a run counts as overfitted."""
LEAST_EVALUATIONS = 6
"""Evaluations that are kept of every run."""
DESCENTS = 4
"""Descents of the search, one from each of the start values with the lowest costs."""
OUTLIER = 0.3
"""Residuals above this share of the losses' standard deviation count less: real losses have spikes."""


class _Batch:
    """Runs that differ only in their arrivals, computed together, with their losses (runs, evaluations)."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.partition, self.skew = runs[0].condition.partition, runs[0].skew
        # One run after the other.
        names = ("surviving_samples", "error_probability", "own_steps")
        parts = ([getattr(run.outcome, name) for run in runs] for name in names)
        self.outcome = SurrogateOutcome(*map(np.concatenate, parts))
        self.factors = np.concatenate([run.factors for run in runs])
        self.losses = np.stack([run.losses for run in runs])

    def predicted(self, constants: SurrogateConstants) -> FloatArray:
        """The surrogate's losses, shaped as :attr:`losses`."""
        zeta = constants.heterogeneity.get(self.partition, 0.0) * self.skew
        made = progress(constants, self.outcome, zeta, self.factors).reshape(len(self.losses), -1)
        reached = np.concatenate((np.zeros((len(made), 1)), np.cumsum(made, axis=1)), axis=1)
        losses: FloatArray = loss_at(constants, reached[:, ::EVALUATE_EVERY])
        return losses[:, : self.losses.shape[1]]


def _batches(runs: Sequence[Run]) -> list[_Batch]:
    """Group runs in as few batches as possible."""
    groups: defaultdict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        shape = run.outcome.surviving_samples.shape
        groups[run.condition.partition, run.skew, shape, len(run.losses)].append(run)
    return [_Batch(group) for group in groups.values()]


def predicted_losses(constants: SurrogateConstants, run: Run) -> FloatArray:
    """The surrogate's losses at a run's evaluations, of the untrained model first [nat]."""
    losses: FloatArray = _Batch([run]).predicted(constants)[0]
    return losses


def residuals(constants: SurrogateConstants, runs: Sequence[Run]) -> FloatArray:
    """Predicted less real losses, of all evaluations of all runs in order [nat]."""
    return np.concatenate([predicted_losses(constants, run) - run.losses for run in runs])


def before_overfitting(runs: Sequence[Run]) -> list[Run]:
    """Return runs, cut at the lowest loss under conditions where the loss rises much again.

    The law describes learning, not memorising: where the mean loss over seeds in the last fifth exceeds the
    lowest by more than a tenth of the fall, the runs end at the lowest. Training would stop there too.
    """
    kept = []
    for group in by_condition(runs).values():
        mean = np.mean([run.losses for run in group], axis=0)
        lowest = int(mean.argmin())
        risen = float(mean[-(len(mean) // 5) :].mean()) - float(mean[lowest])
        end = lowest + 1 if risen > OVERFITTING * (mean[0] - mean[lowest]) else len(mean)
        kept += [replace(run, losses=run.losses[: max(end, LEAST_EVALUATIONS)]) for run in group]
    return kept


def fit(runs: Sequence[Run], known: Mapping[str, float] | None = None) -> SurrogateConstants:
    """The constants that follow the runs best.

    The initial loss is the mean over the runs. The other constants minimise a sum of squares in which
    outliers count linearly (soft L1). The sum has several minima, since a slow start and a low floor fit
    about as well as a fast start and a high floor. The search therefore begins at several points.

    Args:
        runs: The runs, at least one.
        known: Constants that were found before, ``drift`` or ``sitting_out``; the others are fitted.
    """
    search = _Search(runs, {} if known is None else known)
    promising = sorted(search.starts(), key=search.cost)[:DESCENTS]
    return _rounded(min((search.descend(start) for start in promising), key=search.cost))


def _rounded(constants: SurrogateConstants) -> SurrogateConstants:
    """Round to six significant digits, and tiny values to 0."""
    values = {name: _round(value) for name, value in vars(constants).items() if isinstance(value, float)}
    zeta = {kind: _round(value) for kind, value in constants.heterogeneity.items()}
    return replace(constants, **values, heterogeneity=zeta)


def _round(value: float) -> float:
    return float(f"{value:.6g}") if value > 1e-8 else 0.0


class _Search:
    """Optimisation problem: the free constants and their bounds."""

    def __init__(self, runs: Sequence[Run], known: Mapping[str, float]) -> None:
        sat_out = any(run.condition.taking_part < 1.0 for run in runs)
        # A constant that no run depends on is not searched, nor that of a partition without runs.
        self._known = known if sat_out else {"sitting_out": 0.0, **known}
        self._linear = [name for name in LINEAR if name not in self._known]
        made = {run.condition.partition for run in runs}
        self._skewed = [kind for kind in SKEWED_PARTITIONS if kind in made]
        self._batches = _batches(runs)
        losses = np.concatenate([run.losses for run in runs])
        self._initial = float(np.mean([run.losses[0] for run in runs]))
        self._gap = self._initial - float(losses.min())
        self._scale = OUTLIER * max(float(losses.std()), 1e-6)
        self._steps = float(np.median([run.factors.sum() for run in runs]))
        self._samples = float(max(run.outcome.surviving_samples.sum(axis=1).max() for run in runs))

    def starts(self) -> list[SurrogateConstants]:
        """The start values."""
        places = itertools.product((0.8, 1.2), (1.0, 2.0), (0.05, 0.5), (1.0, 3.0))
        return [
            SurrogateConstants(
                initial_loss=self._initial,
                floor_loss=max(self._initial - depth * self._gap, 0.0),
                exponent=shape,
                head_share=share,
                head_speed=10.0,
                rate=pace / self._steps,
                noise=self._samples,
                drift=self._known.get("drift", 0.1),
                participation=1.0,
                error=0.1,
                sitting_out=self._known.get("sitting_out", 0.1),
                heterogeneity=dict.fromkeys(SKEWED_PARTITIONS, 0.0) | dict.fromkeys(self._skewed, 0.1),
            )
            for depth, shape, share, pace in places
        ]

    def residuals(self, constants: SurrogateConstants) -> FloatArray:
        """Predicted less real losses in units of an outlier's least residual, in any order."""
        errors = [(batch.predicted(constants) - batch.losses).ravel() for batch in self._batches]
        return np.concatenate(errors) / self._scale

    def cost(self, constants: SurrogateConstants) -> float:
        """The soft L1 norm of the residuals."""
        return float(np.sum(np.sqrt(1.0 + self.residuals(constants) ** 2) - 1.0))

    def descend(self, start: SurrogateConstants) -> SurrogateConstants:
        """The local minimum that a descent from ``start`` reaches."""
        free, pace, noise = [*self._linear, *self._skewed], 1.0 / self._steps, self._samples
        low = [*map(math.log, (0.3, 1.0, 1e-3 * pace, 1e-3 * noise)), *[0.0] * len(free)]
        high = [*map(math.log, (8.0, 1e3, 1e2 * pace, 1e2 * noise))]
        high += [HIGHEST.get(name, 0.999 * self._initial) for name in self._linear]
        high += [1e2] * len(self._skewed)
        begun = [*(math.log(getattr(start, name)) for name in LOGARITHMIC)]
        begun += [getattr(start, name) for name in self._linear]
        begun += [start.heterogeneity[kind] for kind in self._skewed]

        def constants(values: FloatArray) -> SurrogateConstants:
            logarithms, rest = values[: len(LOGARITHMIC)].tolist(), values[len(LOGARITHMIC) :].tolist()
            found = dict(zip(free, rest, strict=True))
            zeta = {kind: found.pop(kind) for kind in self._skewed}
            found |= zip(LOGARITHMIC, map(math.exp, logarithms), strict=True)
            return replace(start, **found, heterogeneity={**start.heterogeneity, **zeta})

        solution = least_squares(
            lambda values: self.residuals(constants(values)),
            np.clip(begun, low, high),
            bounds=(low, high),
            x_scale="jac",
            loss="soft_l1",
            max_nfev=100,
        )
        return constants(solution.x)


class Agreement(NamedTuple):
    """Agreement of the surrogate with real runs.

    Attributes:
        rmse: Root mean square error over all evaluations [nat].
        r2: Share of the losses' variance over runs and rounds that the surrogate explains; NaN if there is no
            variance.
        mean_rmse: Root mean square error against each condition's mean over seeds [nat]. The mean removes
            most of the seeds' noise, which no surrogate can foresee.
    """

    rmse: float
    r2: float
    mean_rmse: float


def agreement(constants: SurrogateConstants, runs: Sequence[Run]) -> Agreement:
    """Compare the surrogate with real runs."""
    errors, losses = residuals(constants, runs), np.concatenate([run.losses for run in runs])
    means = [real - seen for real, seen in _curves(constants, runs)]
    variance = float(losses.var())
    r2 = 1.0 - float(np.mean(errors**2)) / variance if variance > 0.0 else math.nan
    return Agreement(_root_mean_square(errors), r2, _root_mean_square(np.concatenate(means)))


def _curves(constants: SurrogateConstants, runs: Sequence[Run]) -> list[tuple[FloatArray, FloatArray]]:
    """Real and predicted losses of each condition, means over seeds."""
    return [
        (
            np.mean([run.losses for run in group], axis=0),
            np.mean([predicted_losses(constants, run) for run in group], axis=0),
        )
        for group in by_condition(runs).values()
    ]


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's coefficient; NaN for fewer than three pairs, or if all values of a side are equal."""
    if len(pairs) < 3 or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return math.nan
    return float(spearmanr(*zip(*pairs, strict=True)).statistic)


def ranking(constants: SurrogateConstants, runs: Sequence[Run]) -> float:
    """Rank correlation of predicted and real losses at the end over conditions; else NaN.

    Losses at the end are means over the last fifth of the evaluations and a condition's seeds.
    """
    curves, last = _curves(constants, runs), math.ceil(len(runs[0].losses) / 5)
    return _rank_correlation([(real[-last:].mean(), seen[-last:].mean()) for real, seen in curves])


def ranking_of_times(constants: SurrogateConstants, runs: Sequence[Run]) -> float:
    """Rank correlation of predicted and real rounds to a target over conditions; else NaN.

    The target is the median over conditions of the real loss half-way. A condition that never reaches it
    counts with its whole length plus the gap between its last loss and the target.
    """
    curves = _curves(constants, runs)
    target = float(np.median([real[len(real) // 2] for real, _ in curves]))
    return _rank_correlation([(_time_to(real, target), _time_to(seen, target)) for real, seen in curves])


def _time_to(losses: FloatArray, target: float) -> float:
    """The number of evaluations until a loss, interpolated between two of them."""
    below = np.flatnonzero(losses <= target)
    if not below.size:
        return len(losses) + float(losses[-1]) - target
    first = int(below[0])
    if first == 0:
        return 0.0
    before, after = float(losses[first - 1]), float(losses[first])
    return first - (target - after) / (before - after)


def seed_noise(runs: Sequence[Run]) -> float:
    """The root mean square difference of a condition's seeds over sqrt(2) [nat]; NaN for one seed.

    No surrogate can follow single runs more closely.
    """
    differences = [
        a.losses - b.losses
        for group in by_condition(runs).values()
        for a, b in itertools.combinations(group, 2)
    ]
    return _root_mean_square(np.concatenate(differences)) / math.sqrt(2.0) if differences else math.nan


def by_condition(runs: Sequence[Run]) -> dict[Condition, list[Run]]:
    """Group runs by their condition."""
    groups: defaultdict[Condition, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.condition].append(run)
    return dict(groups)


def _root_mean_square(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2)))
