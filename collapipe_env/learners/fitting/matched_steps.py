"""Constants from pairs of runs that differ in one thing alone, after equal numbers of local steps ([X]).

A curve that does not follow long runs exactly leaves errors far above what drift does, and a fit of all
constants at once tells nothing about it then. Between a run of 16 local steps a round and one of 4, after as
many steps in all, these errors cancel: what is left is the price of averaging seldom. So it is with rounds
that some clusters sit out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from collapipe_env.arrays import FloatArray
from collapipe_env.learners.fitting.conditions import Condition
from collapipe_env.learners.fitting.least_squares import by_condition, predicted_losses
from collapipe_env.learners.fitting.real_runs import EVALUATE_EVERY, Run
from collapipe_env.learners.surrogate_fits import SurrogateConstants

LARGEST = 10.0
"""Value up to which the search goes."""
APART: Mapping[str, Mapping[str, Any]] = {
    "drift": {"local_steps": 1, "head": "common"},
    "sitting_out": {"taking_part": 1.0},
}
"""Constants that are found so, and what alone a pair's conditions differ in, with its usual values."""


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
        """Return a line about the constant and how well it is known."""
        each = ", ".join(f"{value:.2g}" for value in self.by_seed)
        return (
            f"{self.name} {self.value:.2g} from {self.pairs} pairs of conditions at equal numbers of local "
            f"steps; by seed {each}; standard error {self.standard_error:.2g}"
        )


def twins(runs: Sequence[Run], name: str) -> list[tuple[Condition, Condition]]:
    """Return pairs of conditions that differ only in what a constant is about.

    Args:
        runs: Runs under them.
        name: The constant, one of :data:`APART`.
    """
    usual, changed = APART[name], next(iter(APART[name]))
    return [
        (first, second)
        for first, second in itertools.combinations(by_condition(runs), 2)
        if getattr(first, changed) != getattr(second, changed)
        and replace(first, **usual) == replace(second, **usual)
    ]


def matched(constants: SurrogateConstants, runs: Sequence[Run], name: str) -> Matched | None:
    """Return the value under which differences at equal steps are as in the runs; None without such pairs.

    Args:
        constants: All other constants, fitted before.
        runs: Real runs.
        name: The constant, one of :data:`APART`.
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
    """The value of a constant of the least squared error of differences."""
    real = np.concatenate([_difference([r.losses for r in a], [r.losses for r in b], a, b) for a, b in pairs])

    def error(value: float) -> float:
        changed: Any = {name: value}
        tried = replace(constants, **changed)
        seen = [
            _difference(
                [predicted_losses(tried, run) for run in a], [predicted_losses(tried, run) for run in b], a, b
            )
            for a, b in pairs
        ]
        return float(np.sum((np.concatenate(seen) - real) ** 2))

    grid = [0.0, *np.geomspace(1e-6, LARGEST, 29)]
    place = int(np.argmin([error(value) for value in grid]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    found = minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-3 * high})
    return float(found.x) if found.fun < error(grid[place]) else float(grid[place])


def _difference(
    first: Sequence[FloatArray], second: Sequence[FloatArray], fewer: Sequence[Run], more: Sequence[Run]
) -> FloatArray:
    """Mean loss of the second runs less that of the first after equal numbers of local steps."""
    step = fewer[0].condition.local_steps * EVALUATE_EVERY, more[0].condition.local_steps * EVALUATE_EVERY
    ends = [min(map(len, losses)) for losses in (first, second)]
    most = min((end - 1) * size for end, size in zip(ends, step, strict=True))
    common = math.lcm(*step)
    steps = np.arange(common, most + 1, common)
    a = np.mean([losses[steps // step[0]] for losses in first], axis=0)
    b = np.mean([losses[steps // step[1]] for losses in second], axis=0)
    return np.asarray(b - a)
