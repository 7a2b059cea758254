"""Robust least squares for the surrogate's constants, and their errors against real runs."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class _Batch:
    """Runs that differ only in their arrivals, computed together.

    Attributes:
        partition: Spread of their data.
        skew: Skew of the partition.
        outcome: Rounds of all of them, one run after the other.
        factors: Shares of the full step size (runs, R, H).
        losses: Real losses (runs, evaluations).
    """

    partition: str
    skew: float
    outcome: SurrogateOutcome
    factors: FloatArray
    losses: FloatArray

    @classmethod
    def of(cls, runs: Sequence[Run]) -> _Batch:
        first = runs[0]
        return cls(
            first.condition.partition,
            first.skew,
            SurrogateOutcome(
                np.concatenate([run.outcome.surviving_samples for run in runs]),
                np.concatenate([run.outcome.error_probability for run in runs]),
                np.concatenate([run.outcome.own_steps for run in runs]),
            ),
            np.stack([run.factors for run in runs]),
            np.stack([run.losses for run in runs]),
        )

    def predicted(self, constants: SurrogateConstants) -> FloatArray:
        """Return the surrogate's losses, shaped as :attr:`losses`."""
        zeta = constants.heterogeneity.get(self.partition, 0.0) * self.skew
        runs, rounds, steps = self.factors.shape
        factors = self.factors.reshape(runs * rounds, steps)
        made = progress(constants, self.outcome, zeta, factors).reshape(runs, rounds)
        reached = np.concatenate((np.zeros((len(made), 1)), np.cumsum(made, axis=1)), axis=1)
        losses: FloatArray = loss_at(constants, reached[:, ::EVALUATE_EVERY])
        return losses[:, : self.losses.shape[1]]


def _batches(runs: Sequence[Run]) -> list[_Batch]:
    """Group runs in as few batches as possible."""
    groups: defaultdict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        outcome = run.outcome
        shape = outcome.surviving_samples.shape
        groups[run.condition.partition, run.skew, shape, len(run.losses)].append(run)
    return [_Batch.of(group) for group in groups.values()]


def predicted_losses(constants: SurrogateConstants, run: Run) -> FloatArray:
    """Return the surrogate's losses at a run's evaluations, of the untrained model first [nat]."""
    losses: FloatArray = _Batch.of([run]).predicted(constants)[0]
    return losses


def residuals(constants: SurrogateConstants, runs: Sequence[Run]) -> FloatArray:
    """Return predicted less real losses, of all evaluations of all runs in order [nat]."""
    return np.concatenate([predicted_losses(constants, run) - run.losses for run in runs])


def before_overfitting(runs: Sequence[Run]) -> list[Run]:
    """Return runs, cut at the lowest loss under conditions where the loss rises much again.

    The law describes learning, not memorising: where the mean loss over seeds in the last fifth exceeds the
    lowest by more than a tenth of the fall, the runs end at the lowest. Training would stop there too.

    Args:
        runs: Whole runs.
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
    """Return the constants that follow the runs best.

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
        # A constant that no run depends on is not searched.
        self._known = known if sat_out else {"sitting_out": 0.0, **known}
        self._linear = [name for name in LINEAR if name not in self._known]
        self._batches = _batches(runs)
        losses = np.concatenate([run.losses for run in runs])
        self._initial = float(np.mean([run.losses[0] for run in runs]))
        self._lowest = float(losses.min())
        self._scale = OUTLIER * max(float(losses.std()), 1e-6)
        self._steps = float(np.median([run.factors.sum() for run in runs]))
        self._samples = float(max(run.outcome.surviving_samples.sum(axis=1).max() for run in runs))
        # A partition without runs has no constant to fit.
        made = {run.condition.partition for run in runs}
        self._skewed = [kind for kind in SKEWED_PARTITIONS if kind in made]

    def starts(self) -> list[SurrogateConstants]:
        """Return the start values."""
        gap = self._initial - self._lowest
        places = itertools.product((0.8, 1.2), (1.0, 2.0), (0.05, 0.5), (1.0, 3.0))
        return [
            SurrogateConstants(
                initial_loss=self._initial,
                floor_loss=max(self._initial - depth * gap, 0.0),
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
        """Return predicted less real losses in units of an outlier's least residual, in any order."""
        errors = [(batch.predicted(constants) - batch.losses).ravel() for batch in self._batches]
        return np.concatenate(errors) / self._scale

    def cost(self, constants: SurrogateConstants) -> float:
        """Return the soft L1 norm of the residuals."""
        return float(np.sum(np.sqrt(1.0 + self.residuals(constants) ** 2) - 1.0))

    def descend(self, start: SurrogateConstants) -> SurrogateConstants:
        """Return the local minimum that a descent from ``start`` reaches."""
        low = [math.log(x) for x in (0.3, 1.0, 1e-3 / self._steps, 1e-3 * self._samples)]
        high = [math.log(x) for x in (8.0, 1e3, 1e2 / self._steps, 1e2 * self._samples)]
        low += [0.0] * (len(self._linear) + len(self._skewed))
        high += [HIGHEST.get(name, 0.999 * self._initial) for name in self._linear] + [1e2] * len(
            self._skewed
        )

        def scaled(values: FloatArray) -> FloatArray:
            return self.residuals(self._constants(start, values))

        solution = least_squares(
            scaled,
            np.clip(self._values(start), low, high),
            bounds=(low, high),
            x_scale="jac",
            loss="soft_l1",
            max_nfev=100,
        )
        return self._constants(start, solution.x)

    def _values(self, constants: SurrogateConstants) -> FloatArray:
        return np.array(
            [math.log(getattr(constants, name)) for name in LOGARITHMIC]
            + [getattr(constants, name) for name in self._linear]
            + [constants.heterogeneity[kind] for kind in self._skewed]
        )

    def _constants(self, start: SurrogateConstants, values: FloatArray) -> SurrogateConstants:
        numbers = [float(value) for value in values]
        first, second = len(LOGARITHMIC), len(LOGARITHMIC) + len(self._linear)
        zeta: Mapping[str, float] = dict(zip(self._skewed, numbers[second:], strict=True))
        changed = dict(zip(LOGARITHMIC, map(math.exp, numbers[:first]), strict=True))
        changed |= dict(zip(self._linear, numbers[first:second], strict=True))
        return replace(start, **changed, heterogeneity={**start.heterogeneity, **zeta})


@dataclass(frozen=True)
class Agreement:
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
    errors = residuals(constants, runs)
    losses = np.concatenate([run.losses for run in runs])
    means = [
        np.mean([predicted_losses(constants, run) - run.losses for run in group], axis=0)
        for group in by_condition(runs).values()
    ]
    variance = float(losses.var())
    return Agreement(
        rmse=_root_mean_square(errors),
        r2=1.0 - float(np.mean(errors**2)) / variance if variance > 0.0 else math.nan,
        mean_rmse=_root_mean_square(np.concatenate(means)),
    )


def ranking(constants: SurrogateConstants, runs: Sequence[Run]) -> float:
    """Return Spearman's rank correlation of predicted and real losses at the end, over conditions.

    Losses at the end are means over the last fifth of the evaluations and a condition's seeds. NaN for fewer
    than three conditions, or if all losses are equal.

    Args:
        constants: Constants of a fit.
        runs: Real runs.
    """
    groups = list(by_condition(runs).values())
    if len(groups) < 3:
        return math.nan
    last = -(-len(runs[0].losses) // 5)
    real = [float(np.mean([run.losses[-last:] for run in group])) for group in groups]
    seen = [float(np.mean([predicted_losses(constants, run)[-last:] for run in group])) for group in groups]
    if len(set(real)) == 1 or len(set(seen)) == 1:
        return math.nan
    return float(spearmanr(real, seen).statistic)


def ranking_of_times(constants: SurrogateConstants, runs: Sequence[Run]) -> float:
    """Return Spearman's rank correlation of predicted and real rounds to a target, over conditions.

    The target is the median over conditions of the real loss half-way. A condition that never reaches it
    counts with its whole length plus the gap between its last loss and the target. NaN for fewer than three
    conditions.

    Args:
        constants: Constants of a fit.
        runs: Real runs.
    """
    groups = list(by_condition(runs).values())
    if len(groups) < 3:
        return math.nan
    real = [np.mean([run.losses for run in group], axis=0) for group in groups]
    seen = [np.mean([predicted_losses(constants, run) for run in group], axis=0) for group in groups]
    target = float(np.median([losses[len(losses) // 2] for losses in real]))
    times = [[_time_to(losses, target) for losses in curves] for curves in (real, seen)]
    if any(len(set(column)) == 1 for column in times):
        return math.nan
    return float(spearmanr(times[0], times[1]).statistic)


def _time_to(losses: FloatArray, target: float) -> float:
    """Return the number of evaluations until a loss, interpolated between two of them."""
    below = np.flatnonzero(losses <= target)
    if not below.size:
        return len(losses) + float(losses[-1]) - target
    first = int(below[0])
    if first == 0:
        return 0.0
    before, after = float(losses[first - 1]), float(losses[first])
    return first - (target - after) / (before - after)


def seed_noise(runs: Sequence[Run]) -> float:
    """Return the root mean square difference of a condition's seeds over sqrt(2) [nat]; NaN for one seed.

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
