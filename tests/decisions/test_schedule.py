"""Schedules and recomputation by hand: what their entries say, and what memory makes of them."""

from dataclasses import replace

import numpy as np
import pytest

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import (
    COMMON,
    COPIES,
    GPIPE,
    ONE_F_ONE_B,
    ZERO_BUBBLE,
)
from collapipe_env.physics.memory import memory_caps
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.even_split import even_split
from tests.opened_support import PLACED, STATE, opened, same, with_memory


def feasible_plan(rng, scenario, state):
    """A random plan with schedules and blocks of the server, by trial and the simulator's check."""
    parameters, L = system_parameters(scenario), scenario.blocks
    E, N, K = state.present.shape
    plan = even_split(parameters, state)
    M = rng.choice(scenario.workload.micro_batch_choices, (E, N))
    kept = rng.integers(0, L, (E, N)) * (rng.random((E, 1)) < 0.7)
    blocks = np.zeros((E, N, K), dtype=np.int64)
    kind = rng.choice([GPIPE, ONE_F_ONE_B, ZERO_BUBBLE], (E, N))
    for e, n in np.ndindex(E, N):
        left = L - kept[e, n]
        devices = rng.permutation(np.flatnonzero(state.present[e, n]))[: rng.integers(1, min(K, left) + 1)]
        # A block each, the rest at random.
        held = 1 + rng.multinomial(left - len(devices), np.full(len(devices), 1.0 / len(devices)))
        blocks[e, n, devices] = held
    caps = 1 + rng.integers(0, M[..., None], (E, N, K))
    caps = np.where((blocks > 0) & (kind != GPIPE)[..., None], caps, 0)
    return replace(
        plan,
        micro_batches=M,
        blocks=blocks,
        schedule=kind,
        caps=caps,
        chunks=np.ones((E, N), dtype=np.int64),
        server_blocks=kept,
        server_mode=np.where(kept.any(axis=-1), COPIES, COMMON),
        recompute=rng.integers(0, 2, (E, N)),
    )


@pytest.mark.parametrize("factor", [0.3, 0.6, 1.0, 4.0])
@pytest.mark.parametrize("own", [False, True])
def test_plans_that_were_not_decoded_come_back_from_their_actions(own, factor):
    scenario = opened(*PLACED, **{"workload.recompute": own})
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    state = with_memory(scenario, STATE, factor)
    found = 0
    for seed in range(6):
        plan = feasible_plan(np.random.default_rng(seed), scenario, state)
        for row in range(3):
            try:
                check_allocation(parameters, state[row : row + 1], plan[row : row + 1])
            except AllocationError:
                continue  # only memory is left to chance
            action, found = codec.encode(plan[row]), found + 1
            same(codec.decode(action, state.memory_cap[row], state.memory_bytes[row]), plan[row])
    assert found > 0 or factor < 0.5


def test_what_each_entry_says():
    scenario = opened(*PLACED[1:])
    codec, N, K, L = action_codec(scenario), scenario.clusters, scenario.max_devices, scenario.blocks
    parts = codec.split(np.zeros(codec.action_size))
    assert list(parts)[-3:] == ["schedule", "caps", "server_blocks"]
    assert [parts[name].shape for name in list(parts)[-3:]] == [(N,), (N, K), (N,)]
    parts["micro_batches"][:] = 1.0
    parts["schedule"][:] = [-0.51, -0.49, 0.49, 0.51]
    parts["caps"][:] = np.linspace(-1.0, 1.0, K)
    parts["server_blocks"][:] = [-1.0, 1.0, 0.0, -1.0 + 2.0 / (L - 1)]
    roomy = np.full((N, K), 1e15)
    plan = codec.decode(codec.join(parts), np.full((N, K), L), roomy)
    assert plan.schedule.tolist() == [GPIPE, ONE_F_ONE_B, ONE_F_ONE_B, ZERO_BUBBLE]
    assert plan.server_blocks.tolist() == [0, L - 1, L // 2, 1]
    assert plan.server_mode == COPIES
    np.testing.assert_array_equal(plan.blocks.sum(-1) + plan.server_blocks, L)
    M = scenario.workload.micro_batch_choices[-1]
    wanted = [1 + int(np.floor(k / (K - 1) * (M - 1) + 0.5)) for k in range(K)]
    assert plan.caps[0].tolist() == [0] * K
    assert plan.caps[3].tolist() == wanted
    # One block is left for cluster 1: all weights are equal, so device 0 has it, alone.
    assert plan.blocks[1].tolist() == [1, 0, 0, 0, 0]
    assert plan.stage is None
    parts["server_blocks"][:] = -1.0
    plan = codec.decode(codec.join(parts), np.full((N, K), L), roomy)
    assert plan.server_mode == COMMON
    assert plan.caps[1].tolist() == wanted


def test_memory_bounds_what_is_in_flight():
    scenario = opened("schedule")
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    parts = codec.split(codec.encode(even_split(parameters, STATE))[0])
    parts["micro_batches"][:], parts["caps"][:] = 1.0, 1.0
    parts["segments"][:] = np.linspace(1.0, -0.9, scenario.max_devices)
    costs, M = parameters.costs, scenario.workload.micro_batch_choices[-1]
    one = costs.batch_size / M * costs.stored_activation_bytes
    for level, kind in ((0.0, ONE_F_ONE_B), (1.0, ZERO_BUBBLE)):
        parts["schedule"][:] = level
        state = with_memory(scenario, STATE, 0.1)
        plan = codec.decode(codec.join(parts), state.memory_cap[0], state.memory_bytes[0])
        assert (plan.schedule == kind).all()
        least = M
        for n in range(scenario.clusters):
            running = M
            for k in np.flatnonzero(plan.blocks[n]):
                held = plan.blocks[n, k]
                room = int((state.memory_bytes[0, n, k] / held - costs.block_state_bytes) // one)
                stored = min(running, M) if kind == ONE_F_ONE_B else M
                expected = M if stored <= room else max(min(room, M), 1)
                assert plan.caps[n, k] == expected
                running, least = min(running, expected), min(least, expected)
        assert least < M


def test_a_setting_that_cannot_hold_the_encoder_gives_way():
    scenario = opened("recompute", "schedule", **{"workload.recompute": True})
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    costs, other = parameters.costs, parameters.other_costs
    N, K = scenario.clusters, scenario.max_devices
    # Room for the encoder under recomputation with GPipe and M = 1, and not much more.
    memory = np.full((N, K), 0.0)
    need = costs.batch_size * (costs.stored_activation_bytes + costs.working_bytes)
    memory[:, 0] = (
        scenario.blocks * (costs.block_state_bytes + costs.batch_size * costs.stored_activation_bytes)
        + costs.batch_size * costs.working_bytes
    )
    cap = memory_caps(costs, memory)
    assert (cap.sum(-1) == scenario.blocks).all()
    parts = codec.split(np.zeros(codec.action_size))
    parts["segments"][:] = 0.0
    parts["micro_batches"][:] = -1.0
    parts["recompute"][:] = [-1.0, -1.0, 1.0, 1.0]
    parts["schedule"][:] = [-1.0, 1.0, 1.0, -1.0]
    plan = codec.decode(codec.join(parts), cap, memory)
    assert need > other.batch_size * other.stored_activation_bytes * 0.9
    # With one micro-batch 1F1B saves nothing: storing all does not fit, and ZB-H1 keeps what it makes anew.
    assert plan.recompute.tolist() == [1, 1, 1, 1]
    assert plan.schedule.tolist() == [GPIPE, ONE_F_ONE_B, ONE_F_ONE_B, GPIPE]
    # With many, 1F1B holds it without recomputation.
    parts["micro_batches"][:] = 1.0
    plan = codec.decode(codec.join(parts), cap, memory)
    assert plan.recompute.tolist() == [0, 0, 1, 1]
    assert plan.schedule.tolist() == [ONE_F_ONE_B, *plan.schedule[1:3], GPIPE]
