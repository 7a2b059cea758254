"""SplitFed V1 and V2: the best cuts by brute force, memory, absent devices, what is refused."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, first_state
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.baselines.pipar import PiPar
from collapipe_env.baselines.planning.split_training import best_cuts
from collapipe_env.baselines.splitfed import SplitFedV1, SplitFedV2
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL, Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

KINDS = (SplitFedV1, SplitFedV2)
# Servers about as fast as a device or two: deeper cuts than one block pay, and the memory stops them.
SLOW = UNEVEN.with_overrides({"cluster.server_flops": 2.5e10})
SLOWER = UNEVEN.with_overrides({"cluster.server_flops": 1.2e10, "radio.link_errors": "drop"})
SLOW_PRICED = PRICED.with_overrides({"cluster.server_flops": 1.2e10, "workload.micro_batches": [1, 4, 16]})
SCENARIOS = [SMALL, UNEVEN, SLOW, SLOWER, SLOW_PRICED]


def strongest(state, e, n, blocks):
    """The fastest device that can hold so many blocks, in plain Python; None if there is none."""
    able = [
        k
        for k in range(state.present.shape[-1])
        if state.present[e, n, k] and state.memory_cap[e, n, k] >= blocks
    ]
    return max(able, key=lambda k: (state.speed[e, n, k], -k), default=None)


def split(scheduler, state, e, cuts, mode, micro_batches=None):
    """One environment's plan with given cuts, or None if a cluster cannot hold its part."""
    N, K = state.present.shape[1:]
    blocks = np.zeros((N, K), dtype=np.int64)
    for n, cut in enumerate(cuts):
        k = strongest(state, e, n, cut)
        if k is None:
            return None
        blocks[n, k] = cut
    p = scheduler.parameters
    return Allocation(
        blocks=blocks,
        micro_batches=np.ones(N, dtype=np.int64) if micro_batches is None else np.asarray(micro_batches),
        bandwidth=np.full(N, 1.0 / N),
        device_power=np.full((N, K), p.power_max_w),
        cu_power=np.full(N, p.power_max_w),
        server_blocks=p.costs.blocks - np.asarray(cuts),
        server_mode=np.asarray(mode),
    )


@pytest.mark.parametrize("scenario", SCENARIOS, ids=["small", "uneven", "slow", "slower", "priced"])
@pytest.mark.parametrize("kind", KINDS)
def test_best_of_all_cuts(kind, scenario) -> None:
    scheduler = kind(scenario)
    state = first_state(scenario, 4, seed=3)
    decision = scheduler.act(None, state)
    check_allocation(scheduler.parameters, state, decision)
    found = round_costs(scheduler.parameters, state, decision).delay
    L, N = scenario.blocks, scenario.clusters
    v2 = kind is SplitFedV2
    candidates = [(c,) * N for c in range(1, L + 1)] if v2 else itertools.product(range(1, L + 1), repeat=N)
    best = np.full(4, np.inf)
    for cuts in candidates:
        for e in range(4):
            plan = split(scheduler, state, e, cuts, SEQUENTIAL if v2 else COPIES)
            if plan is not None:
                best[e] = min(best[e], round_costs(scheduler.parameters, state[e], plan).delay)
    assert found == pytest.approx(best, rel=1e-12)
    assert (decision.micro_batches == 1).all()
    assert (decision.server_mode == (SEQUENTIAL if v2 else COPIES)).all()
    cut = L - decision.server_blocks
    if scenario in (SLOW, SLOWER, SLOW_PRICED):
        assert (cut > 1).any()  # or the comparison would say little
    else:
        assert (cut == 1).all()
    for e, n in np.ndindex(cut.shape):
        assert np.flatnonzero(decision.blocks[e, n]).tolist() == [strongest(state, e, n, cut[e, n])]


def test_v1_has_cuts_of_its_own_and_v2_has_one() -> None:
    state = first_state(SLOW, 8, seed=1)
    own, common = (SplitFed(SLOW).act(None, state).server_blocks for SplitFed in KINDS)
    assert (own != own[:, :1]).any()
    assert (common == common[:, :1]).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    weight=st.sampled_from([0.1, 1.0, 10.0]),
    room=st.none() | st.integers(0, 9),
)
@settings(deadline=None)
def test_cuts_are_the_best_together_that_the_server_has_room_for(seed, weight, room) -> None:
    """Each cluster's own best cut is not the round's best where the broadcast of a deep cut is long."""
    rng = np.random.default_rng(seed)
    L, N = 4, 3
    delay = rng.uniform(1.0, 5.0, (L, 2, N))
    delay[1:][rng.random((L - 1, 2, N)) < 0.3] = np.inf
    broadcast = np.cumsum(rng.uniform(0.0, weight, (L, 2)), axis=0)
    cuts = best_cuts(delay, broadcast, room)
    for e in range(2):
        best = np.inf
        for chosen in itertools.product(range(1, L + 1), repeat=N):
            if room is None or N * L - sum(chosen) <= room:
                own = max(delay[c - 1, e, n] for n, c in enumerate(chosen))
                best = min(best, own + broadcast[max(chosen) - 1, e])
        if np.isinf(best):  # left as they are without a limit, for the server's refusal
            assert (cuts[e] == best_cuts(delay, broadcast)[e]).all()
            continue
        own = max(delay[c - 1, e, n] for n, c in enumerate(cuts[e]))
        assert own + broadcast[max(cuts[e]) - 1, e] == best
        assert room is None or N * L - cuts[e].sum() <= room


@pytest.mark.parametrize("kind", [*KINDS, PiPar])
def test_plans_fit_the_servers_memory(kind) -> None:
    free = UNEVEN.with_overrides({"cluster.server_flops": 1e13})
    L, N = free.blocks, free.clusters
    each = system_parameters(free).server
    each = each.block_state_bytes + each.block_activation_bytes
    state = first_state(free, 2, seed=3)
    assert (kind(free).act(None, state).server_blocks == L - 1).all()
    for room in (N * (L - 1), 2 * N + 1, N):
        scenario = free.with_overrides({"server.memory_bytes": room * each * (1 + 1e-9)})
        plan = kind(scenario).act(None, state)
        check_allocation(system_parameters(scenario), state, plan)
        held = plan.server_blocks.sum(axis=-1) if plan.server_mode[0] != 1 else plan.server_blocks[:, 0]
        assert (held <= room).all()
    tight = free.with_overrides({"server.memory_bytes": 1.0, "devices.profiles.0.memory_bytes": [3.5 * each]})
    state = first_state(tight, 1)
    with pytest.raises(AllocationError, match="on the server, which offers 1: at most 0 blocks"):
        check_allocation(system_parameters(tight), state, kind(tight).act(None, state))


@pytest.mark.parametrize("kind", KINDS)
def test_absent_devices_and_small_memories_are_not_used(kind) -> None:
    state = first_state(SLOWER, 1)
    speed, present = state.speed.copy(), state.present.copy()
    speed[0, 0] = [1e10, 3e10, 2e10]
    speed[0, 1, :2] = [3e10, 1e10]
    present[0, 0, 1] = False
    cap = np.where(present, [[[5, 6, 2], [1, 6, 0]]], 0)
    decision = kind(SLOWER).act(None, replace(state, speed=speed, present=present, memory_cap=cap))
    assert decision.blocks[0, 0, 1] == 0
    # The faster of those left holds up to 2 blocks, the slower one more; cluster 1 likewise.
    for blocks, fast, slow, room in ((decision.blocks[0, 0], 2, 0, 2), (decision.blocks[0, 1], 0, 1, 1)):
        held = blocks.sum()
        assert blocks[fast if held <= room else slow] == held > 0


@pytest.mark.parametrize("kind", KINDS)
def test_scenarios_that_insist_on_pipelining_are_refused(kind) -> None:
    scenario = load_scenario({"base": "small", "workload": {"micro_batches": [2, 4]}})
    with pytest.raises(ScenarioError, match=r"workload.micro_batches is \[2, 4\], but SplitFed .* add 1"):
        kind(scenario)
