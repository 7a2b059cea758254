"""The quick pricing of drafts: equal to the event simulation, bounded from below, within the memories."""

import itertools

import numpy as np
import pytest
from baseline_support import SMALL, changed, first_state, simulated
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.baselines.planning.chain_problem import ChainProblem, chain_problems
from collapipe_env.baselines.planning.draft_pricing import balanced_split, lower_bound
from collapipe_env.baselines.planning.plan_search import (
    quickest,
    rearranged,
    resized_devices,
    shifted_blocks,
    usable_devices,
)
from collapipe_env.baselines.planning.scheduled_plan import ScheduledPlan, caps_of
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.overheads import Overheads
from collapipe_env.simulator.build import system_parameters

BASE = chain_problems(system_parameters(SMALL), first_state(SMALL, 1))[0, 0]


def random_problem(rng: np.random.Generator, devices: int, blocks: int, half_duplex: bool) -> ChainProblem:
    """A cluster with random times; links and stages take about equally long."""
    compute = rng.uniform(0.2, 1.0, devices)
    hops = rng.uniform(0.0, 2.0, (2, devices + 1, devices + 1))
    server = rng.choice([0.0, 0.5])
    # Half of the systems have overheads and latencies.
    costly = rng.choice([0.0, 0.1])
    extra = costly * rng.exponential(1.0, 8)
    return changed(
        BASE,
        blocks=blocks,
        local_steps=float(rng.integers(1, 3)),
        half_duplex=half_duplex,
        block_forward=compute,
        block_backward=2.0 * compute,
        block_weight=compute * rng.uniform(0.5, 1.5),
        hop_forward=hops[0],
        hop_backward=hops[1],
        uplink=float(rng.uniform(0.0, 2.0)),
        downlink=float(rng.uniform(0.0, 2.0)),
        server_forward=float(server),
        server_backward=2.0 * float(server),
        server_weight=float(server),
        block_collect=rng.uniform(0.0, 0.5, devices),
        link_bit=rng.uniform(0.0, 0.5, (devices + 1, devices + 1)),
        relay_bits=float(rng.choice([0.0, 1.0])),
        memory_bytes=rng.uniform(0.3, 1.0, devices) * 1e9,
        overheads=Overheads(*extra.tolist()),
        block_launch=costly * rng.exponential(0.3, devices),
        block_update=costly * rng.exponential(1.0, devices),
        hop_overhead_forward=costly * rng.exponential(1.0, (devices + 1, devices + 1)),
        hop_overhead_backward=costly * rng.exponential(1.0, (devices + 1, devices + 1)),
    )


def random_plan(rng: np.random.Generator, devices: int, blocks: int) -> ScheduledPlan:
    """A plan without regard to memory."""
    schedule = str(rng.choice(["gpipe", "1f1b", "zb-h1", "interleaved"]))
    M = int(rng.choice([1, 2, 4, 8, 16]))
    sizes = [S for S in range(1, min(devices, blocks // 2) + 1) if M % S == 0 and S > 1]
    if schedule == "interleaved" and not sizes:
        schedule = "1f1b"
    several = schedule == "interleaved"
    S = int(rng.choice(sizes)) if several else int(rng.integers(1, min(devices, blocks) + 1))
    chunks = 2 if several else 1
    held = np.full(S, chunks)
    held += np.bincount(rng.integers(0, S, blocks - chunks * S), minlength=S)
    caps = caps_of("ordinary", schedule, S, 2) if several else rng.integers(1, 2 * S + 5, S).tolist()
    placed = rng.permutation(devices)[:S].tolist()
    return ScheduledPlan(tuple(placed), tuple(held.tolist()), schedule, tuple(caps), M, chunks)


@pytest.mark.parametrize("half_duplex", [False, True])
def test_the_bound_stays_below_the_simulation(half_duplex: bool) -> None:
    rng = np.random.default_rng(3)
    closest = np.inf
    for _ in range(600):
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
    lowered = 0
    for _ in range(60):
        problem = changed(random_problem(rng, 3, 6, False), memory_bytes=rng.uniform(0.05, 0.4, 3) * 1e9)
        wanted = ScheduledPlan((2, 0, 1), (2, 2, 2), "zb-h1", (8, 8, 8), 16)
        found = quickest(problem, [wanted])
        caps = [
            max((c for c in range(1, 9) if fits_memory_alone(problem, k, 2, c, 16)), default=0)
            for k in wanted.devices
        ]
        if min(caps) < 1:
            assert not found
        else:
            assert found[0].plan.caps == tuple(caps)
            lowered += caps != [8, 8, 8]
    assert lowered > 10


def fits_memory_alone(problem: ChainProblem, device: int, held: int, cap: int, M: int) -> bool:
    return ScheduledPlan((device,), (held,), "zb-h1", (cap,), M).fits(problem)


def test_an_open_split_is_found_with_lower_caps_where_the_wanted_ones_leave_no_room() -> None:
    activation = BASE.numbers.batch_size / 4 * BASE.numbers.activation_bytes
    room = BASE.numbers.block_state_bytes + activation
    problem = changed(BASE, memory_bytes=np.array([3 * room, 3 * room, 0.0]))
    (found,) = quickest(problem, [ScheduledPlan((0, 1), (), "1f1b", (6, 4), 4)])
    assert found.plan.held == (3, 3)
    assert found.plan.caps == (1, 1)
    assert quickest(changed(problem, blocks=7), [ScheduledPlan((0, 1), (), "1f1b", (6, 4), 4)]) == []


def test_devices_without_room_are_not_used_and_too_little_memory_is_refused() -> None:
    room = BASE.numbers.block_state_bytes + BASE.numbers.activation_bytes * BASE.numbers.batch_size / 64
    problem = changed(BASE, memory_bytes=np.array([4.5, 0.5, 2.5]) * room)
    assert usable_devices(problem, 64) == (0, 2)
    with pytest.raises(AllocationError, match=r"can hold only 6 blocks .* encoder has 7"):
        usable_devices(changed(problem, blocks=7), 64)
    crowd = changed(
        BASE, blocks=2, memory_bytes=np.full(3, 9 * room), block_forward=np.array([0.2, 0.3, 0.1])
    )
    assert usable_devices(crowd, 64) == (0, 2)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 2))
@settings(max_examples=50, deadline=None)
def test_moves_keep_blocks_and_devices(held: list[int], idle: int) -> None:
    S = len(held)
    devices, usable = tuple(range(S)), tuple(range(S + idle))
    shifted = list(shifted_blocks(tuple(held), range(S)))
    assert len(shifted) == 2 * (S - 1)
    assert all(sum(h) == sum(held) and np.abs(np.subtract(h, held)).sum() == 2 for h in shifted)
    plan = ScheduledPlan(devices, tuple(held), "1f1b", (1,) * S, 4)
    moved = list(rearranged(plan, usable))
    exchanged = list({p.devices: None for p in moved})
    assert len(exchanged) == S * (S - 1) // 2 + S * idle
    assert len(moved) == S * (S - 1) + S * idle
    with_device = dict(zip(devices, held, strict=True))
    for stay, go in itertools.pairwise(moved):
        if stay.devices == go.devices:
            assert stay.held == plan.held
            assert go.held == tuple(with_device[k] for k in go.devices)
    resized = list(resized_devices(devices, usable))
    assert len(set(resized)) == len(resized) == (S if S > 1 else 0) + idle * (S + 1)
    assert all(len(set(d)) == len(d) and set(d) <= set(usable) for d in exchanged + resized)
