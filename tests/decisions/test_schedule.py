"""Schedules and recomputation by hand: what their entries say, and what memory makes of them."""

import numpy as np

from collapipe_env.physics.allocation import COMMON, COPIES, GPIPE, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.physics.memory import memory_caps
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.even_split import even_split
from tests.opened_support import PLACED, STATE, opened, with_memory


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
