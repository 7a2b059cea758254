"""Results of a miniature: the optimum on two grids, and all schedulers' rounds in the environment."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.schedulers import SCHEDULERS
from research.miniatures.average_cost import Solution
from research.miniatures.cases import Miniature
from research.miniatures.deciding import Best, Fixed, Scalars
from research.miniatures.grid import Grid, Model, model_of, solve_model
from research.miniatures.playing import mean_delays
from research.miniatures.system import SmallSystem

WEIGHTS = (0.0, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.85, 1.0, 1.5)
"""Weights of the price of moving."""
PRICES = (0.01, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.6, 1.0, 2.0, 4.0, 10.0)
"""Prices of energy in a hot device [s/J]."""
STARTS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Thermal headrooms from which energy has that price."""
FEW_WEIGHTS, FEW_PRICES, FEW_STARTS = (0.1, 0.3), (0.03, 0.1, 0.3, 1.0, 4.0), (0.0, 0.8, 0.95)
"""Weights, prices and starts that are also tried where both moving and heat have a price."""
NEUTRAL = (1.0, 0.0, 0.0)
"""Weight, heat price and start of one-step scheduling."""
TUNING_SEED = 1000
"""First seed of the episodes on which scalars and fixed plans are chosen."""


@dataclass(frozen=True)
class Effort:
    """Length of the play.

    Attributes:
        rounds: Rounds of an episode that count, where load comes and goes.
        episodes: Episodes there.
        few_rounds: Rounds of an episode where hardly anything is random, as with heat alone.
        few_episodes: Episodes there.
        skipped: Rounds of every episode before those that count.
        tuning: Factor by which the episodes are fewer in the play that chooses scalars and fixed plans, which
            has other episodes and half the rounds.
        intervals: Most intervals of a temperature.
    """

    rounds: int = 800
    episodes: int = 24
    few_rounds: int = 600
    few_episodes: int = 3
    skipped: int = 150
    tuning: int = 3
    intervals: int = 1000


QUICK = Effort(rounds=20, episodes=2, few_rounds=20, few_episodes=2, skipped=4, intervals=8)
"""For tests: runs every step, but gives no reliable number."""


def optimum(mini: Miniature, effort: Effort) -> tuple[Model, Solution, float]:
    """Best schedule by value iteration.

    Args:
        effort: Limits the grid.

    Returns:
        The model on the finer grid, its solution, and the least mean delay on a grid of half the intervals.
    """
    system = SmallSystem(mini.scenario)
    fine = min(mini.intervals, effort.intervals)
    model = model_of(Grid.of(system, fine))
    solution = solve_model(model, 1e-4 if system.heat is None else 1e-3)
    if system.heat is None:
        return model, solution, solution.mean  # its grid holds all states
    return model, solution, solve_model(model_of(Grid.of(system, fine // 2))).mean


def scalar_sets(system: SmallSystem) -> list[tuple[float, float, float]]:
    """Weights, heat prices and starts to try on a system."""
    if system.heat is None:
        return [(weight, 0.0, 0.0) for weight in WEIGHTS]
    sets = [NEUTRAL, *itertools.product((1.0,), PRICES, STARTS)]
    if system.remembers:
        sets += [(weight, 0.0, 0.0) for weight in FEW_WEIGHTS]
        sets += itertools.product(FEW_WEIGHTS, FEW_PRICES, FEW_STARTS)
    return sets


def dssra_plus(scenario: Scenario, scalars: tuple[float, float, float]) -> DSSRAPlus:
    """DSSRA+ with some scalars, which have the same meaning there.

    Args:
        scalars: Weight, heat price and start.
    """
    weight, price, start = scalars
    return DSSRAPlus(scenario, migration_weight=weight, heat_price=price, heat_start=start)


def result(mini: Miniature, effort: Effort, schedulers: Sequence[str]) -> dict[str, Any]:
    """Everything that the tables say of a miniature, as plain data.

    Args:
        effort: Length of the play.
        schedulers: Registered schedulers that also play.
    """
    begun = time.perf_counter()
    model, solution, coarse = optimum(mini, effort)
    system, scenario = model.grid.system, mini.scenario
    few = len(system.loads) == 1
    episodes = effort.few_episodes if few else effort.episodes
    rounds = effort.few_rounds if few else effort.rounds

    def tuned(scheduler: Any, variants: int) -> int:
        short = mean_delays(
            scenario, scheduler, variants, trials, rounds // 2, effort.skipped, first_seed=TUNING_SEED
        )
        return int(np.argmin(short.mean(axis=1)))

    def played(scheduler: Any) -> FloatArray:
        found = mean_delays(scenario, scheduler, 1, episodes, rounds, effort.skipped)
        return np.asarray(found[0])

    def scalars(of: Sequence[tuple[float, float, float]], times: int) -> Scalars:
        return Scalars(model, *np.repeat(np.asarray(of).T, times, axis=1))

    trials, sets, actions = max(1, episodes // effort.tuning), scalar_sets(system), len(system.split_of)
    best = played(Best(model, solution.value))
    first = tuned(scalars(sets, trials), len(sets))
    still = tuned(Fixed(model, np.repeat(np.arange(actions), trials)), actions)
    moved = model.moving[model.moving > 0.0]
    return {
        "name": mini.name,
        "digest": scenario_digest(scenario),
        "effort": vars(effort),
        "intervals": mini.intervals,
        "played": {"episodes": episodes, "rounds": rounds},
        "states": model.grid.states,
        "actions": actions,
        "speeds_gflops": [round(1e-9 * float(speed), 1) for speed in system.full_speed],
        "move_s": float(moved.min()) if moved.size else 0.0,
        "model_s": solution.mean,
        "model_coarse_s": coarse,
        "optimum_s": float(best.mean()),
        "optimum_error_s": _error(best),
        "one_step": _compared(played(scalars([NEUTRAL], episodes)), best),
        "scalars": {
            **_compared(played(scalars([sets[first]], episodes)), best),
            "of": sets[first],
        },
        "plus": _compared(played(dssra_plus(scenario, sets[first])), best),
        "fixed": {
            **_compared(played(Fixed(model, np.full(episodes, still))), best),
            "of": _action(model, still),
        },
        "schedulers": {name: _compared(played(SCHEDULERS.get(name)(scenario)), best) for name in schedulers},
        "seconds": time.perf_counter() - begun,
    }


def _action(model: Model, action: int) -> dict[str, Any]:
    """A fixed plan in words; its micro-batches where they are part of the action."""
    system = model.grid.system
    blocks = [int(b) for b in system.splits[system.split_of[action]]]
    many = None if system.heat is None else int(model.micro_batches[0, action])
    return {"blocks": blocks, "micro_batches": many}


def _compared(delays: FloatArray, best: FloatArray) -> dict[str, float]:
    """Mean delay, and the share of it that the optimum saves, with its standard error."""
    room = 100.0 * (delays - best) / delays
    return {"s": float(delays.mean()), "room": float(room.mean()), "error": _error(room)}


def _error(values: FloatArray) -> float:
    """Standard error of the mean of independent episodes."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
