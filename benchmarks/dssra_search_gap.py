"""Gap of DSSRA's decisions to the best that longer searches and random starts find, on systems of full size.

Systems too large for the oracle (``dssra_gap.py``) have no known optimum. DSSRA's decision is compared with
the best of its own search with ``tolerance=0``, with four times the turns, and from random plans: a lower
bound of the true gap. Half of the states come from played episodes, half have random backlogs of up to 100;
half have overheads of passes and messages. The delay of the broadcast and the drift of a round without
energy, which no decision changes, are left out of the objectives: with them the gaps would look smaller.
Run::

    python benchmarks/dssra_search_gap.py
    python benchmarks/dssra_search_gap.py --states 60 --scenarios small --starts 5
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from measuring import BenchmarkOptions, Between, Figure, command, publish, within
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import idle_drift
from collapipe_env.scenario import OverheadSpec, Scenario, load_scenario
from collapipe_env.simulator.build import action_codec
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.world import World

FORMS: tuple[Literal["exact", "bound"], ...] = ("exact", "bound")
OVERHEADS = asdict(OverheadSpec())
FREE = dict.fromkeys(OVERHEADS, 0.0)
ROWS, APART = 8, 3
"""Environments played at once, and rounds between the states taken from them."""
LONGER = 4
"""Factor of the turns in the longer search."""
GOAL_MEDIAN, GOAL_WORST = 0.05, 0.5
"""Largest median and worst gap wanted [%]."""
WHAT = "relative gap of DSSRA's objective to the best of longer searches and random starts (a lower bound)"


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """DSSRA's gap to longer searches."""

    scenarios: tuple[str, ...] = ("small", "medium", "large")
    """Scenarios, each with an equal part of the states."""
    states: int = 500
    """Number of states, at least 2 for each scenario, at most 100,000."""
    starts: Annotated[int, Between(0, 1000)] = 20
    """Random plans to start from, 0 to 1000."""
    seed: Annotated[int, Between(0, 2**32)] = 0
    """Seed of the states and plans, at least 0."""

    def check(self) -> None:
        """Refuse options that cannot be run."""
        super().check()
        within(("--states", self.states, 2 * len(self.scenarios), 100_000))


def states_of(scenario: Scenario, count: int, seed: int) -> Iterator[SystemState]:
    """States of played episodes, every second one with random backlogs in place of its own.

    Args:
        count: Number of batches of ``ROWS`` states.
        seed: Seed of the channels and backlogs.
    """
    world, scheduler = World(scenario, IdleLearner(ROWS), ROWS), DSSRA(scenario)
    world.reset([np.random.default_rng([seed, row]) for row in range(ROWS)])
    rng = np.random.default_rng([seed, ROWS])
    for index in range(count):
        for _ in range(APART):
            world.step(scheduler.allocate(world.state))
        state = world.state
        if index % 2:
            shape = state.backlog.shape
            mean = np.exp(rng.uniform(np.log(0.1), np.log(30.0), (ROWS, 1, 1)))
            backlog = rng.exponential(mean, shape) * (rng.random(shape) > 0.15)
            backlog[..., 1:] *= state.present
            state = replace(state, backlog=np.minimum(backlog, 100.0))
        yield state


def objective(scheduler: DSSRA, state: SystemState, plan: Allocation) -> FloatArray:
    """Objective of a plan without the parts that no decision changes (E,)."""
    given = scheduler.tradeoff_v * round_costs(scheduler.parameters, state, plan).broadcast
    if scheduler.drift == "exact":
        given = given + idle_drift(state.backlog)
    value: FloatArray = scheduler.objective(state, plan) - given
    return value


def gaps(scheduler: DSSRA, state: SystemState, starts: int, rng: np.random.Generator) -> FloatArray:
    """DSSRA's gaps in some states (E,), relative to the best plan found.

    Args:
        scheduler: DSSRA as it ships.
        state: The states (E, ...).
        starts: Random plans to start from.
        rng: Source of the random plans.
    """
    scenario, form = scheduler.scenario, scheduler.drift
    ours = objective(scheduler, state, scheduler.allocate(state))
    best = ours
    for other in (
        DSSRA(scenario, drift=form, tolerance=0.0),
        DSSRA(scenario, drift=form, turns=LONGER * scheduler.budget.turns, tolerance=0.0),
    ):
        best = np.minimum(best, objective(scheduler, state, other.allocate(state)))
    codec = action_codec(scenario)
    for _ in range(starts):
        actions = rng.uniform(-1.0, 1.0, (len(state.backlog), codec.action_size))
        plan = scheduler.allocate(state, codec.decode(actions, state.memory_cap))
        best = np.minimum(best, objective(scheduler, state, plan))
    found: FloatArray = ours / best - 1.0
    return found


def measure(options: Options) -> dict[tuple[str, str], FloatArray]:
    """Gaps [%] of every scenario and form, showing progress."""
    found: dict[tuple[str, str], list[FloatArray]] = {}
    batches = -(-options.states // (ROWS * len(options.scenarios)))
    runs = [(name, form) for name in options.scenarios for form in FORMS]
    with tqdm(total=batches * len(runs) * ROWS, unit="state", disable=None) as bar:
        for name, form in runs:
            bar.set_postfix_str(f"{name}, {form}")
            for part, overheads in enumerate((FREE, OVERHEADS)):
                scenario = load_scenario({"base": name, "overheads": overheads})
                scheduler = DSSRA(scenario, drift=form)
                rng = np.random.default_rng([options.seed, part])
                for state in states_of(scenario, (batches + 1 - part) // 2, options.seed + part):
                    gap = 100.0 * gaps(scheduler, state, options.starts, rng)
                    found.setdefault((name, form), []).append(gap)
                    bar.update(ROWS)
    return {run: np.concatenate(parts) for run, parts in found.items()}


def figures(found: dict[tuple[str, str], FloatArray]) -> list[Figure]:
    """Gaps in percent, by scenario and form."""
    results = []
    for (name, form), gap in found.items():
        label = f"{name}, {form} drift, {len(gap)} states"
        above = f"{int((gap > GOAL_WORST).sum())} above {GOAL_WORST} %"
        results += [
            Figure(f"{label}: median gap", float(np.median(gap)), "%", goal=GOAL_MEDIAN),
            Figure(f"{label}: mean gap", float(gap.mean()), "%"),
            Figure(f"{label}: worst gap", float(gap.max()), "%", goal=GOAL_WORST, note=above),
        ]
    return results


def _run(options: Options) -> None:
    found = measure(options)
    lists = {f"{name}, {form}": gap.tolist() for (name, form), gap in found.items()}
    publish(options, WHAT, figures(found), gaps=lists)


main = partial(command, Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
