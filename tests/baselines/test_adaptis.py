"""AdaPtis: its start, its performance model and its moves; its plans: planning/test_plan_search.py."""

import numpy as np
from baseline_support import SMALL, UNEVEN, changed, first_state, random_problem

from collapipe_env.baselines.adaptis import (
    AdaPtis,
    boundary_moves,
    compute_load,
    neighbourhood,
    placement_moves,
    start_drafts,
)
from collapipe_env.baselines.planning.plan_search import quickest, usable_devices
from collapipe_env.baselines.planning.scheduled_plan import ScheduledPlan


def test_the_start_is_balanced_over_all_devices_in_order_under_1f1b() -> None:
    problem = random_problem(np.random.default_rng(0), 3, 6, False)
    problem = changed(
        problem,
        block_forward=np.array([1.0, 0.5, 1.0]),
        block_backward=np.array([2.0, 1.0, 2.0]),
        memory_bytes=np.full(3, 1e12),
    )
    (draft, *_) = start_drafts(usable_devices(problem, 4), (4,))
    (found,) = quickest(problem, [draft])
    assert found.plan == ScheduledPlan((0, 1, 2), (2, 3, 1), "1f1b", (4, 3, 2), 4)


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
    relieved = neighbourhood(problem, (2, 4, 8), (0, 1, 2))[0][0]
    assert {m.held for m in relieved(draft)} == ({(3, 3)} if load[0] > load[1] else {(5, 1)})


def test_a_stage_that_gives_its_last_block_disappears() -> None:
    draft = ScheduledPlan((2, 0, 1), (4, 1, 1), "1f1b", (4, 3, 2), 8)
    gone = list(boundary_moves(draft, [1]))
    assert [(m.devices, m.held, m.caps) for m in gone] == [
        ((2, 1), (5, 1), (4, 2)),
        ((2, 1), (4, 2), (4, 2)),
    ]


def test_more_devices_are_tried_with_the_caps_of_each_rule() -> None:
    draft = ScheduledPlan((2, 0), (4, 2), "1f1b", (3, 2), 8)
    more = [m for m in placement_moves(draft, (0, 1, 2)) if len(m.devices) == 3]
    assert {m.caps for m in more} == {(4, 3, 2), (8, 6, 4)}
    assert all(m.held == () for m in more)


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
    scheduler = AdaPtis(SMALL, micro_batches=16)
    best = scheduler.search(problem)
    start = quickest(problem, start_drafts(usable_devices(problem, 16), (16,)))[0]
    assert best.seconds(problem) < 0.9 * start.seconds


def test_restarts_are_the_same_whatever_else_is_in_the_batch() -> None:
    state = first_state(UNEVEN, 3, seed=5)
    together = AdaPtis(UNEVEN, restarts=1).plans(state)
    alone = AdaPtis(UNEVEN, restarts=1).plans(state[1:2])
    assert all(alone[0, n] == together[1, n] for n in range(UNEVEN.clusters))
