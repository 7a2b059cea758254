"""Gap of DSSRA's decisions to the best that an independent search finds, for every kind of open decision.

The search (``evolution.py``) tries tens of thousands of plans for each state on the simulator's physics and
knows nothing of DSSRA's. It searches from random plans, and from DSSRA's own plan, so that the gap is a lower
bound of the true one. States come from played episodes; half have random backlogs of up to 100 instead of
their own. The parts of the objective that no decision changes are left out: with them the gaps would look
smaller. Run::

    python benchmarks/dssra_search_gap.py
    python benchmarks/dssra_search_gap.py --scenarios small --cells closed schedule --states 32
    python benchmarks/dssra_search_gap.py --evaluations 200000
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from evolution import Evolution
from measuring import BenchmarkOptions, Figure, command, publish
from pydantic import Field
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.pricing import round_objective
from collapipe_env.evaluation.table import markdown_table
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import lyapunov, per_node, queue_drift, update_backlog
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import action_codec
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.world import World

ROWS, APART = 8, 3
"""Environments played at once, and rounds between the states taken from them."""
HALVINGS = 40
"""Halvings of the search for a wait."""
GOAL_CLOSED, GOAL_OPEN, GOAL_COMMON = 0.7, 2.0, 3.0
"""Largest gap wanted [%]: with CollaPipe's decisions, with others open, with a common head."""
GOAL_MEDIAN = 0.02
"""Largest median wanted where decisions are open [%]."""
WHAT = "relative gap of DSSRA's objective to the best of an independent search (a lower bound)"
COMMON = {"workload": {"head": "common", "local_steps": 4}}
METERED = {"server": {"terms": "metered"}}
PER_SECOND = {"budgets": {"per": "second"}}
EVERYTHING = ("recompute", "schedule", "server_blocks", "clock_cap")


class Cell(NamedTuple):
    """A row of the table.

    Attributes:
        opened: Decisions that are open beyond CollaPipe's own.
        changes: Changes of the scenario.
        goal: Largest gap wanted [%].
        drift: DSSRA's drift: the exact one, or the paper's bound.
    """

    opened: tuple[str, ...] = ()
    changes: Mapping[str, Any] = {}
    goal: float = GOAL_OPEN
    drift: Literal["exact", "bound"] = "exact"


CELLS = {
    "closed": Cell(goal=GOAL_CLOSED),
    "closed, bound": Cell(goal=GOAL_CLOSED, drift="bound"),
    "recompute": Cell(("recompute",)),
    "schedule": Cell(("schedule",)),
    "clocks": Cell(("clock_cap",)),
    "schedule, clocks": Cell(("schedule", "clock_cap")),
    "server": Cell(("server_blocks",), METERED),
    "everything": Cell(EVERYTHING, METERED),
    "common head": Cell((), COMMON, GOAL_COMMON),
    "common head, everything": Cell(EVERYTHING, {**COMMON, **METERED}, GOAL_COMMON),
    "per second": Cell((), PER_SECOND),
    "per second, everything": Cell(EVERYTHING, {**PER_SECOND, **METERED}),
}
"""Rows of the table by name."""


class Options(BenchmarkOptions):
    """DSSRA's gap to an independent search."""

    scenarios: tuple[str, ...] = ("small", "medium")
    """Scenarios in which every cell is measured."""
    cells: tuple[Literal[tuple(CELLS)], ...] = tuple(CELLS)  # type: ignore[valid-type]
    """Kinds of open decisions."""
    states: Annotated[int, Field(ge=ROWS)] = 16
    """Number of states of each cell, at least 8, rounded up to whole batches of 8."""
    evaluations: Annotated[int, Field(ge=1000)] = 120_000
    """Plans that the search prices for each state, at least 1000."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the states and searches, at least 0."""


class Gaps(NamedTuple):
    """DSSRA's plans of some states beside the best ones found.

    Attributes:
        best: The best plans of the search, or DSSRA's where it found no better.
        gap: Objectives of DSSRA's plans over the best ones, less 1 (S,).
        alone: The same over the best plans that the search found from random plans; may be below 0 (S,).
        rate: Plans priced in a second.
    """

    best: Allocation
    gap: FloatArray
    alone: FloatArray
    rate: float


def states_of(scenario: Scenario, count: int, seed: int) -> Iterator[SystemState]:
    """States of played episodes, every second batch with random backlogs in place of its own.

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


def objective(scheduler: DSSRA, state: SystemState, plan: Allocation, order: float = np.inf) -> FloatArray:
    """Drift plus penalty of plans (E,), from the simulator's physics alone.

    With budgets per second a plan may be followed by a wait, as long as waiting pays: it is no decision.
    ``order`` is that of the mean of the clusters' delays that stands for the longest one.
    """
    p = scheduler.parameters
    costs = round_costs(p, state, plan)
    if order < np.inf:
        mean = (costs.cluster_delay**order).mean(axis=-1) ** (1.0 / order)
        costs = costs.changed(delay=mean + costs.broadcast)
    return round_objective(
        with_wait(costs, state, scheduler.tradeoff_v),
        state,
        scheduler.tradeoff_v,
        exact_drift=scheduler.drift == "exact",
        participation_min=p.participation_min,
    )


def with_wait(costs: RoundCosts, state: SystemState, tradeoff_v: float) -> RoundCosts:
    """Rounds, with budgets per second prolonged until another second's grant is worth less than ``V``.

    Otherwise the best plan in heavy queues is one that does nothing for minutes: a cluster sends with its
    least power in its least share. DSSRA's search never waits, so it would be compared with the wait alone.
    """
    period = costs.budget_period_s
    if period is None:
        return costs
    queues = [(state.live_backlog + costs.energy_ratio).reshape(len(costs.delay), -1)]
    if state.server_backlog is not None:
        queues.append((state.server_backlog + costs.server_ratio)[:, None])
    before = np.concatenate(queues, axis=1)
    low, high = costs.delay, np.maximum(costs.delay, period * before.max(axis=1))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        after = np.maximum(before - (middle / period)[:, None], 0.0).sum(axis=1)
        pays = after > tradeoff_v * period
        low, high = np.where(pays, middle, low), np.where(pays, high, middle)
    return costs.changed(delay=low)


def given_part(scheduler: DSSRA, state: SystemState, plan: Allocation) -> FloatArray:
    """Part of the objective that no decision changes (E,): broadcast, and drift of a round without energy.

    With budgets per second, or blocks on the server, they depend on the plan: they are those of ``plan``.
    """
    costs = round_costs(scheduler.parameters, state, plan)
    costs = with_wait(costs, state, scheduler.tradeoff_v)
    given: FloatArray = scheduler.tradeoff_v * costs.broadcast
    if scheduler.drift == "bound":
        return given
    idle = update_backlog(state.backlog, 0.0 * state.backlog, per_node(costs.allowance))
    given = given + lyapunov(idle) - lyapunov(state.backlog)
    if state.server_backlog is not None:
        given = given + queue_drift(state.server_backlog, 0.0 * given, costs.allowance)
    return given


def gaps(scheduler: DSSRA, state: SystemState, evaluations: int, rng: np.random.Generator) -> Gaps:
    """DSSRA's gaps in some states (E, ...), from about so many plans that are priced for each."""
    codec, ours = action_codec(scheduler.scenario), scheduler.allocate(state)
    value = objective(scheduler, state, ours)
    search = Evolution(codec, state, partial(objective, scheduler), rng)
    start = time.perf_counter()
    found = search.run(evaluations, codec.encode(ours).astype(np.float64))
    rate = found.evaluations * len(value) / (time.perf_counter() - start)
    best = codec.decode(found.actions, state.memory_cap, state.memory_bytes)
    check_allocation(scheduler.parameters, state, best)
    least, given = np.minimum(value, found.value), given_part(scheduler, state, best)
    gap, alone = ((value - other) / (other - given) for other in (least, found.alone))
    return Gaps(best, gap, alone, rate)


def measure(options: Options) -> dict[str, list[Gaps]]:
    """Gaps of every cell, showing progress."""
    found: dict[str, list[Gaps]] = {}
    batches = -(-options.states // ROWS)
    pairs = list(itertools.product(options.scenarios, options.cells))
    with tqdm(total=batches * len(pairs), unit="batch", disable=None) as bar:
        for base, name in pairs:
            bar.set_postfix_str(f"{base}, {name}")
            cell = CELLS[name]
            scenario = load_scenario({"base": base, "decisions": [*COLLAPIPE, *cell.opened], **cell.changes})
            scheduler, rng = DSSRA(scenario, drift=cell.drift), np.random.default_rng(options.seed)
            parts = found[f"{base}, {name}"] = []
            for state in states_of(scenario, batches, options.seed):
                parts.append(gaps(scheduler, state, options.evaluations, rng))
                bar.update()
    return found


def figures(found: Mapping[str, list[Gaps]]) -> list[Figure]:
    """Gaps in percent by cell."""
    results = []
    for label, parts in found.items():
        cell = CELLS[label.split(", ", 1)[1]]
        gap, alone = (100.0 * np.concatenate([getattr(p, name) for p in parts]) for name in ("gap", "alone"))
        median = GOAL_MEDIAN if cell.opened else None
        rate = np.mean([p.rate for p in parts])
        few = f"95th percentile {np.percentile(gap, 95):.2g} %"
        low, high = float(alone.min()), float(alone.max())
        results += [
            Figure(f"{label}: median gap", float(np.median(gap)), "%", goal=median),
            Figure(f"{label}: worst of {len(gap)}", float(gap.max()), "%", goal=cell.goal, note=few),
            Figure(
                f"{label}: gap to random starts alone", float(np.median(alone)), "%", low, high,
                note=f"{rate:,.0f} plans a second",
            ),
        ]  # fmt: skip
    return results


def table(found: Mapping[str, list[Gaps]]) -> str:
    """Gaps in percent, one cell a row, in Markdown."""
    rows = []
    for label, parts in found.items():
        gap = 100.0 * np.concatenate([p.gap for p in parts])
        numbers = (np.median(gap), np.percentile(gap, 95), gap.max())
        rows.append((label, *(f"{n:.2f} %" for n in numbers), len(gap)))
    return markdown_table(("", "median", "95th percentile", "worst", "states"), rows)


def _run(options: Options) -> None:
    found = measure(options)
    print(table(found))
    lists = {label: np.concatenate([p.gap for p in parts]).tolist() for label, parts in found.items()}
    publish(options, WHAT, figures(found), gaps=lists)


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
