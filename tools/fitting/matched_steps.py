"""Constants from pairs of runs that differ in one condition only, after equal numbers of local steps ([X]).

Where the curve does not follow long runs exactly, its errors far exceed the effect of drift, and a fit of all
constants at once cannot find drift. Between a run of 16 local steps a round and one of 4, after equal numbers
of steps in total, these errors cancel: the difference is the price of rare averaging. The same holds for
rounds that some clusters sit out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.learners.surrogate_fits import SurrogateConstants
from fitting.conditions import Condition
from fitting.least_squares import by_condition, predicted_losses
from fitting.real_runs import EVALUATE_EVERY, Run

FLATTEST = 0.1
"""Least slope of a curve, as a share of its steepest: for flatter parts noise would decide."""
OUTLIER = 0.2
"""Error of a speed, in e-folds of steps, above which errors count linearly instead of by their squares."""
LARGEST = 10.0
"""Largest value of the search."""
APART: Mapping[str, Mapping[str, Any]] = {
    "drift": {"local_steps": 1, "head": "common"},
    "sitting_out": {"taking_part": 1.0},
}
"""Constants found from pairs, and the fields that a pair's conditions may differ in, with usual values."""


@dataclass(frozen=True)
class Matched:
    """A constant from pairs of runs at equal numbers of local steps.

    Attributes:
        name: The constant.
        value: The estimate, at least 0.
        by_seed: Estimates from each seed alone.
        pairs: Pairs of conditions.
    """

    name: str
    value: float
    by_seed: tuple[float, ...]
    pairs: int

    @property
    def standard_error(self) -> float:
        """Standard error of the mean over seeds; NaN for a single one."""
        count = len(self.by_seed)
        return float(np.std(self.by_seed, ddof=1) / math.sqrt(count)) if count > 1 else math.nan

    def __str__(self) -> str:
        """A line about the constant and how well it is known."""
        each = ", ".join(f"{value:.2g}" for value in self.by_seed)
        return (
            f"{self.name} {self.value:.2g} from {self.pairs} pairs of conditions at equal numbers of local "
            f"steps; by seed {each}; standard error {self.standard_error:.2g}"
        )


def twins(runs: Sequence[Run], name: str) -> list[tuple[Condition, Condition]]:
    """Pairs of conditions that differ only in the fields of a constant of :data:`APART`."""
    usual, changed = APART[name], next(iter(APART[name]))
    return [
        (first, second)
        for first, second in itertools.combinations(by_condition(runs), 2)
        if getattr(first, changed) != getattr(second, changed)
        and replace(first, **usual) == replace(second, **usual)
    ]


def matched(constants: SurrogateConstants, runs: Sequence[Run], name: str) -> Matched | None:
    """The value of a constant of :data:`APART` that best explains the pairs' differences at equal steps.

    ``None`` without pairs. All other constants were fitted before.
    """
    pairs = twins(runs, name)
    if not pairs:
        return None
    groups = by_condition(runs)
    seeds = sorted({run.seed for run in runs})

    def found(of: Sequence[int]) -> float:
        return _least(constants, [(_of(groups[a], of), _of(groups[b], of)) for a, b in pairs], name)

    return Matched(name, found(seeds), tuple(found([seed]) for seed in seeds), len(pairs))


def _of(runs: Sequence[Run], seeds: Sequence[int]) -> list[Run]:
    return [run for run in runs if run.seed in seeds]


def _least(constants: SurrogateConstants, pairs: Sequence[tuple[list[Run], list[Run]]], name: str) -> float:
    """The value of a constant with the least error of the pairs' differences."""
    places = [_common_steps(a, b) for a, b in pairs]
    both = list(zip(pairs, places, strict=True))
    real = [_difference(_losses(a), _losses(b), at) for (a, b), at in both]
    # In steps: a loss that hardly falls tells as much about speed as one that falls fast.
    slopes = [_slope(_losses(a, constants), *at[:2]) for (a, _), at in both]

    def error(value: float) -> float:
        changed: Any = {name: value}
        tried = replace(constants, **changed)
        seen = [_difference(_losses(a, tried), _losses(b, tried), at) for (a, b), at in both]
        off = (np.concatenate(seen) - np.concatenate(real)) / (OUTLIER * np.concatenate(slopes))
        return float(np.sum(np.sqrt(1.0 + off**2) - 1.0))

    grid = [0.0, *np.geomspace(1e-6, LARGEST, 29)]
    place = int(np.argmin([error(value) for value in grid]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    found = minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-3 * high})
    return float(found.x) if found.fun < error(grid[place]) else float(grid[place])


def _losses(runs: Sequence[Run], constants: SurrogateConstants | None = None) -> FloatArray:
    """The mean loss over seeds at each evaluation: the real one, or the one that constants predict."""
    each = [run.losses if constants is None else predicted_losses(constants, run) for run in runs]
    return np.asarray(np.mean(each, axis=0))


def _common_steps(first: Sequence[Run], second: Sequence[Run]) -> tuple[IntArray, IntArray, IntArray]:
    """The numbers of local steps after which both are evaluated, and the indices of these losses."""
    sizes = [runs[0].condition.local_steps * EVALUATE_EVERY for runs in (first, second)]
    ends = [min(len(run.losses) for run in runs) for runs in (first, second)]
    common = math.lcm(*sizes)
    most = min((end - 1) * size for end, size in zip(ends, sizes, strict=True))
    steps = np.arange(common, most + 1, common)
    return steps, steps // sizes[0], steps // sizes[1]


def _difference(first: FloatArray, second: FloatArray, at: tuple[IntArray, IntArray, IntArray]) -> FloatArray:
    """The second loss less the first after equal numbers of local steps."""
    return np.asarray(second[at[2]] - first[at[1]])


def _slope(losses: FloatArray, steps: IntArray, places: IntArray) -> FloatArray:
    """The fall of the loss with the logarithm of the steps, at least a share of the steepest."""
    if len(steps) < 2:
        return np.ones(len(steps))
    fall = np.abs(np.gradient(losses[places], np.log(steps)))
    return np.asarray(np.maximum(fall, FLATTEST * fall.max()))
