"""AdaPtis: never worse than its start, a local optimum, close to exhaustive search, feasible everywhere."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import SMALL, UNEVEN, changed, first_state, simulated
from test_draft_pricing import random_problem

from collapipe_env.baselines.adaptis import (
    AdaPtis,
    boundary_moves,
    compute_load,
    neighbourhood,
    placement_moves,
    start_drafts,
)
from collapipe_env.baselines.flexpipe import DEFAULT_SCHEDULES
from collapipe_env.baselines.planning import schedule_space
from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.baselines.planning.plan_search import quickest, usable_devices
from collapipe_env.baselines.planning.schedule_space import parse_schedule
from collapipe_env.baselines.planning.scheduled_plan import ScheduledPlan, allocation_of, caps_of
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

HALF = replace(UNEVEN, radio=replace(UNEVEN.radio, d2d_duplex="half"))
PROFILE = replace(SMALL.devices.profiles[0], memory_bytes=(190e6, 290e6))
TIGHT = replace(SMALL, devices=replace(SMALL.devices, profiles=(PROFILE,)))
"""Two or three blocks a device under GPipe, and little beside them."""
OPTIONS = (2, 4, 8)


def search(problem, options, restarts: int = 0) -> ScheduledPlan:
    """AdaPtis's plan of a cluster of its own."""
    scheduler = AdaPtis(SMALL, restarts=restarts)
    scheduler._options = options
    return scheduler.search(problem)


def start_of(problem, options) -> list[ScheduledPlan]:
    return start_drafts(usable_devices(problem, options[-1]), options)


def partitions(total: int, parts: int):
    """All splits of ``total`` into positive parts."""
    for cuts in itertools.combinations(range(1, total), parts - 1):
        edges = (0, *cuts, total)
        yield tuple(b - a for a, b in itertools.pairwise(edges))


def exhaustive(problem, options) -> float:
    """The best over device maps, partitions, schedules, uniform and ruled caps and micro-batches."""
    usable, drafts = usable_devices(problem, options[-1]), []
    for S in range(1, len(usable) + 1):
        for devices in itertools.permutations(usable, S):
            for held in partitions(problem.numbers.blocks, S):
                for M in options:
                    drafts.append(ScheduledPlan(devices, held, "gpipe", (1,) * S, M))
                    for schedule in ("1f1b", "zb-h1"):
                        wanted = {(cap,) * S for cap in range(1, M + 1)}
                        wanted |= {caps_of(rule, schedule, S) for rule in ("ordinary", "link")}
                        drafts += [ScheduledPlan(devices, held, schedule, caps, M) for caps in wanted]
    return quickest(problem, drafts)[0].seconds


@pytest.mark.parametrize("scenario", ["small", "medium", UNEVEN, HALF, TIGHT], ids=str)
def test_plans_are_feasible_and_never_slower_than_the_start(scenario) -> None:
    scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
    state = first_state(scenario, 2, seed=3)
    parameters = system_parameters(scenario)
    scheduler = AdaPtis(scenario)
    allocation = scheduler.act(None, state)
    check_allocation(parameters, state, allocation)
    problems = chain_problems(parameters, state)
    options = scheduler._options
    starts = {at: quickest(p, start_of(p, options))[0].plan for at, p in problems.items()}
    before = allocation_of(parameters, state, starts)
    check_allocation(parameters, state, before)
    delay = round_costs(parameters, state, allocation).cluster_delay
    start_delay = round_costs(parameters, state, before).cluster_delay
    assert (delay <= start_delay * (1 + 1e-9)).all()
    assert (delay < start_delay * 0.999).any()


def test_the_start_is_balanced_over_all_devices_in_order_under_1f1b() -> None:
    problem = random_problem(np.random.default_rng(0), 3, 6, False)
    problem = changed(
        problem,
        block_forward=np.array([1.0, 0.5, 1.0]),
        block_backward=np.array([2.0, 1.0, 2.0]),
        memory_bytes=np.full(3, 1e12),
    )
    (draft, *_) = start_of(problem, (4,))
    (found,) = quickest(problem, [draft])
    assert found.plan == ScheduledPlan((0, 1, 2), (2, 3, 1), "1f1b", (4, 3, 2), 4)


@pytest.mark.parametrize("half_duplex", [False, True])
def test_no_neighbour_of_a_plan_is_quicker(half_duplex: bool) -> None:
    rng = np.random.default_rng(11)
    for _ in range(8):
        problem = random_problem(rng, 4, 7, half_duplex)
        best = search(problem, OPTIONS)
        kinds = neighbourhood(problem, OPTIONS, usable_devices(problem, OPTIONS[-1]))
        assert [len(kind) for kind in kinds] == [2, 1, 1]  # partition, placement, schedule
        for neighbour in itertools.chain(*(moves(best) for kind in kinds for moves in kind)):
            for found in quickest(problem, [neighbour]):
                # Priced by the event simulation, not by the search's own recurrence.
                assert simulated(problem, found.plan) >= simulated(problem, best) * (1 - 1e-8)


def test_the_gaps_of_both_searches_to_the_exhaustive_one_are_small_and_effort_does_not_widen_them() -> None:
    rng = np.random.default_rng(13)
    space = schedule_space.Space(tuple(parse_schedule(text) for text in DEFAULT_SCHEDULES), OPTIONS)
    gaps = []
    for trial in range(8):
        problem = random_problem(rng, 3, 5, trial % 4 == 3)
        once, thrice = (search(problem, OPTIONS, restarts=restarts) for restarts in (0, 3))
        narrow, wide = (schedule_space.search(problem, space, width).plan for width in (1, 4))
        best = exhaustive(problem, OPTIONS)
        gaps.append([plan.seconds(problem) / best - 1.0 for plan in (once, thrice, narrow, wide)])
        assert thrice.seconds(problem) <= once.seconds(problem)
    mean, worst = np.mean(gaps, axis=0), np.max(gaps, axis=0)
    assert (mean[[0, 2]] < 0.05).all()
    assert (worst < [0.15, 0.05, 0.15, 0.1]).all()


def test_the_performance_model_adds_up() -> None:
    problem = random_problem(np.random.default_rng(17), 3, 6, False)
    draft = ScheduledPlan((2, 0), (4, 2), "1f1b", (3, 1), 8)
    load = compute_load(problem, draft)
    work = problem.times.block_forward + problem.times.block_backward
    sent = problem.times.hop_forward[[3, 1], [1, 0]] + problem.times.hop_backward[[0, 3], [3, 1]]
    # Overheads of all eight micro-batches.
    assert problem.times.block_launch.all()
    work += 8 * 3 * problem.times.block_launch
    sent += 8 * problem.times.hop_overhead_forward[[3, 1], [1, 0]]
    sent += 8 * problem.times.hop_overhead_backward[[0, 3], [3, 1]]
    assert np.allclose(load, [4, 2] * work[[2, 0]] + sent, rtol=1e-12)
    relieved = neighbourhood(problem, OPTIONS, (0, 1, 2))[0][0]
    assert {m.held for m in relieved(draft)} == ({(3, 3)} if load[0] > load[1] else {(5, 1)})


def test_a_stage_that_gives_its_last_block_disappears() -> None:
    draft = ScheduledPlan((2, 0, 1), (4, 1, 1), "1f1b", (4, 3, 2), 8)
    gone = list(boundary_moves(draft, [1]))
    assert [(m.devices, m.held, m.caps) for m in gone] == [
        ((2, 1), (5, 1), (4, 2)),
        ((2, 1), (4, 2), (4, 2)),
    ]


def test_interleaved_plans_are_reached_and_left() -> None:
    draft = ScheduledPlan((2, 0), (4, 2), "1f1b", (3, 2), 8)
    (there,) = (m for m in placement_moves(draft, (0, 1, 2)) if m.schedule == "interleaved")
    assert (there.chunks, there.held) == (2, ())
    problem = changed(random_problem(np.random.default_rng(19), 3, 6, False), memory_bytes=np.full(3, 1e12))
    (found,) = quickest(problem, [there])
    assert np.isfinite(found.plan.seconds(problem))
    back = [m for m in placement_moves(found.plan, (0, 1, 2)) if m.schedule != "interleaved"]
    assert {(m.schedule, m.chunks) for m in back} == {("1f1b", 1)}


def test_slow_links_want_higher_caps_than_the_start_has() -> None:
    problem = random_problem(np.random.default_rng(23), 3, 6, False)
    slow = np.full((4, 4), 6.0)
    problem = changed(problem, hop_forward=slow, hop_backward=slow, memory_bytes=np.full(3, 1e12))
    best = search(problem, (16,))
    start = quickest(problem, start_of(problem, (16,)))[0]
    assert best.seconds(problem) < 0.9 * start.seconds


def test_restarts_are_the_same_whatever_else_is_in_the_batch() -> None:
    state = first_state(UNEVEN, 3, seed=5)
    together = AdaPtis(UNEVEN, restarts=1).plans(state)
    assert AdaPtis(UNEVEN, restarts=1).plans(state) == together
    for row in range(3):
        alone = AdaPtis(UNEVEN, restarts=1).plans(state[row : row + 1])
        assert all(alone[0, n] == together[row, n] for n in range(UNEVEN.clusters))
