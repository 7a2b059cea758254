"""The quick pricing of drafts: equal to the event simulation, bounded from below, within the memories."""

import itertools

import numpy as np
import pytest
from baseline_support import BASE, changed, random_plan, random_problem
from oracles.planned_chains import simulated

from collapipe_env.baselines.planning.draft_pricing import balanced_split, lower_bound
from collapipe_env.baselines.planning.plan_search import quickest
from collapipe_env.baselines.planning.scheduled_plan import ScheduledPlan, caps_of


@pytest.mark.parametrize("half_duplex", [False, True])
def test_the_bound_stays_below_the_simulation(half_duplex: bool) -> None:
    rng = np.random.default_rng(3)
    closest = np.inf
    for _ in range(300):
        problem = random_problem(rng, 4, 9, half_duplex)
        if rng.random() < 0.5:  # one slow hop, whose turns decide
            slow = problem.times.hop_forward.copy()
            slow[tuple(rng.permutation(5)[:2])] *= 5.0
            problem = changed(problem, hop_forward=slow, hop_backward=slow)
        plan = random_plan(rng, 4, 9)
        exact = simulated(problem, plan)
        assert plan.seconds(problem) == pytest.approx(exact, rel=1e-12)
        bound = lower_bound(problem, plan.arrays())
        assert bound <= exact * (1 + 1e-12)
        closest = min(closest, exact / bound)
        if plan.schedule == "gpipe":
            assert bound == pytest.approx(exact, rel=1e-12)
        elif half_duplex and plan.schedule == "1f1b":
            assert bound >= plan.seconds(changed(problem, half_duplex=False)) * (1 - 1e-12)
    assert closest < 1.0 + 1e-9


@pytest.mark.parametrize("keep", [1, 4])
def test_pruning_by_the_bound_loses_nothing(keep: int) -> None:
    rng = np.random.default_rng(5)
    for trial in range(20):
        problem = random_problem(rng, 4, 8, trial % 2 == 1)
        drafts = [random_plan(rng, 4, 8) for _ in range(40)]
        # Drafts that come to the same plan would each count.
        plans = [[f.plan for f in quickest(problem, [d])] for d in drafts]
        drafts = [d for r, d in enumerate(drafts) if plans[r] not in plans[:r]]
        found = quickest(problem, drafts, keep=keep)
        # Completed one by one and priced by the simulation.
        alone = [f[0] for f in (quickest(problem, [d]) for d in drafts) if f]
        exact = sorted({f.plan: simulated(problem, f.plan) for f in alone}.values())
        assert [f.seconds for f in found] == pytest.approx(exact[:keep], rel=1e-8)
        assert all(f.plan.fits(problem) for f in found)
        for f in found:  # what the pricing settles aside, a found plan is one of the drafts
            settled = [d._replace(held=f.plan.held, caps=f.plan.caps) for d in drafts]
            assert any(
                d == f.plan and all(a <= b for a, b in zip(f.plan.caps, draft.caps, strict=True))
                for d, draft in zip(settled, drafts, strict=True)
            )
        if found:
            assert quickest(problem, drafts, limit=found[0].seconds) == []


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "interleaved", "async"])
def test_the_balanced_split_is_exact(schedule: str) -> None:
    rng = np.random.default_rng(7)
    infeasible = 0
    for _ in range(60):
        problem = changed(random_problem(rng, 3, 8, False), memory_bytes=rng.uniform(0.05, 0.6, 3) * 1e9)
        S = int(rng.integers(1, 4))
        v = 2 if schedule == "interleaved" else 1
        M, devices = int(rng.choice([2, 4, 8])), rng.permutation(3)[:S]
        caps = caps_of("ordinary", schedule, S, v)
        draft = ScheduledPlan(tuple(devices.tolist()), (), schedule, caps, M, v)
        block_s = (problem.times.block_forward + problem.times.block_backward)[devices]
        block_s += 3 * M * problem.times.block_launch[devices]
        best = np.inf
        for split in itertools.product(range(v, 9), repeat=S):
            held = np.array(split)
            if held.sum() == 8 and draft._replace(held=split).fits(problem):
                best = min(best, (held * block_s).max())
        held = balanced_split(problem, draft.arrays(), 99)
        if np.isinf(best):
            infeasible += 1
            assert not held.any()
        else:
            assert held.sum() == 8
            assert draft._replace(held=tuple(held.tolist())).fits(problem)
            assert (held * block_s).max() == pytest.approx(best, rel=1e-12)
    assert 0 < infeasible < 60


def test_caps_sink_to_what_the_memories_hold_and_no_further() -> None:
    rng = np.random.default_rng(9)
    seen: set[int] = set()
    for trial in range(60):
        problem, M = random_problem(rng, 3, 6, False), (16, 4)[trial % 2]
        problem = changed(problem, memory_bytes=rng.uniform(0.05, 0.4, 3) * 1e9)
        wanted = ScheduledPlan((2, 0, 1), (2, 2, 2), "zb-h1", (M // 2,) * 3, M)
        found = quickest(problem, [wanted])
        caps_alone = range(1, M // 2 + 1)
        alone = [[ScheduledPlan((k,), (2,), "zb-h1", (c,), M) for c in caps_alone] for k in wanted.devices]
        caps = [sum(plan.fits(problem) for plan in plans) for plans in alone]
        if min(caps) < 1:
            assert not found
        else:
            assert found[0].plan.caps == tuple(caps)
            seen.update(caps)
    assert seen >= {1, 2, 3, 8}


def test_an_open_split_is_found_with_lower_caps_where_the_wanted_ones_leave_no_room() -> None:
    activation = BASE.numbers.batch_size / 4 * BASE.numbers.activation_bytes
    room = BASE.numbers.block_state_bytes + activation
    problem = changed(BASE, memory_bytes=np.array([3 * room, 3 * room, 0.0]))
    (found,) = quickest(problem, [ScheduledPlan((0, 1), (), "1f1b", (6, 4), 4)])
    assert found.plan.held == (3, 3)
    assert found.plan.caps == (1, 1)
    assert quickest(changed(problem, blocks=7), [ScheduledPlan((0, 1), (), "1f1b", (6, 4), 4)]) == []
