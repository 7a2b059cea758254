"""Opened decisions by hand: what their entries say, what agents and pictures show, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MultiDiscreteActions
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import (
    COMMON,
    COPIES,
    GPIPE,
    ONE_F_ONE_B,
    ZERO_BUBBLE,
)
from collapipe_env.physics.memory import memory_caps
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.scenario.decision_names import OPENED
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from tests.opened_support import PLACED, STATE, WARM, opened, same, small, with_memory, with_server_room


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


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**31), own=st.booleans(), factor=st.sampled_from([0.3, 0.6, 1.0, 4.0]))
def test_plans_that_were_not_decoded_come_back_from_their_actions(seed, own, factor):
    scenario = opened(*PLACED, **{"workload.recompute": own})
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    state = with_memory(scenario, STATE, factor)
    plan = feasible_plan(np.random.default_rng(seed), scenario, state)
    for row in range(3):
        try:
            check_allocation(parameters, state[row : row + 1], plan[row : row + 1])
        except AllocationError:
            continue  # only memory is left to chance
        action = codec.encode(plan[row])
        same(codec.decode(action, state.memory_cap[row], state.memory_bytes[row]), plan[row])


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


@given(asked=hnp.arrays(np.int64, (2, 4), elements=st.integers(0, 11)), room=st.integers(0, 50))
@settings(deadline=None)
def test_requests_to_the_server_are_scaled_down_to_its_room(asked, room):
    scenario = opened("server_blocks")
    codec = with_server_room(action_codec(scenario), room)
    parts = codec.split(np.zeros((2, codec.action_size)))
    parts["server_blocks"][:] = 2.0 * asked / (scenario.blocks - 1) - 1.0
    plan = codec.decode(codec.join(parts), STATE.memory_cap[:2], STATE.memory_bytes[:2])
    for row in range(2):
        given_blocks, total = plan.server_blocks[row], asked[row].sum()
        if total <= room:
            np.testing.assert_array_equal(given_blocks, asked[row])
        else:
            # By largest remainder: the whole room is used, nobody is off by a block.
            assert given_blocks.sum() == room
            assert (np.abs(given_blocks - asked[row] * room / total) < 1.0 + 1e-4).all()
    again = codec.decode(codec.encode(plan), STATE.memory_cap[:2], STATE.memory_bytes[:2])
    same(again, plan)


def test_memory_is_asked_for_where_decisions_are_open():
    codec = action_codec(opened("schedule"))
    with pytest.raises(AllocationError, match="decisions list schedule: give memory_bytes"):
        codec.decode(np.zeros(codec.action_size), STATE.memory_cap[0])
    with pytest.raises(AllocationError, match=r"2K \+ 3 \+ 6"):
        codec.decode(np.zeros(52), STATE.memory_cap[0], STATE.memory_bytes[0])


def test_levels_of_the_discrete_view_name_every_choice():
    scenario = small(*OPENED)
    env = MultiDiscreteActions(CollaPipeEnv(scenario=scenario, learner="surrogate"), clock_levels=5)
    env.reset(seed=0)
    L, M, codec = scenario.blocks, scenario.workload.micro_batch_choices, env.unwrapped.codec
    counts = {name: set(part.ravel().tolist()) for name, part in codec.split(env.action_space.nvec).items()}
    assert counts == {
        "segments": {L + 1}, "device_power": {9}, "cu_power": {9}, "micro_batches": {len(M)},
        "bandwidth": {11}, "recompute": {2}, "schedule": {3}, "caps": {M[-1]}, "server_blocks": {L},
        "clock_cap": {5}, "participation": {2}, "local_steps": {3},
    }  # fmt: skip
    levels = codec.split(np.zeros(env.action_space.shape))
    levels["segments"][:] = 1
    levels["micro_batches"][:] = M.index(4)
    levels["recompute"][:], levels["schedule"][:], levels["server_blocks"][:] = [1, 0], [1, 2], [2, 0]
    levels["caps"][0] = M[-1] // 2
    levels["participation"][:], levels["local_steps"][:] = [1, 0], [2, 1]
    levels["clock_cap"][:] = [4, 2, 0]

    def played():
        env.step(codec.join(levels))
        return env.unwrapped.last_round.allocation[0]

    plan = played()
    assert (plan.participates.tolist(), plan.local_steps.tolist()) == ([1, 0], [4, 2])
    np.testing.assert_allclose(plan.clock_cap, 2 * [[1.0, 0.2**0.5, 0.2]], rtol=1e-6)  # geometric
    levels["participation"][:] = 1
    plan = played()
    assert plan.recompute.tolist() == [1, 0]
    assert plan.schedule.tolist() == [ONE_F_ONE_B, ZERO_BUBBLE]
    assert plan.server_blocks.tolist() == [2, 0]
    assert plan.caps.tolist() == [[3, 3, 3], [1, 1, 1]]


def test_pictures_say_order_schedule_and_blocks_of_the_server():
    scenario = opened(*PLACED, base="small", **{"budgets.device_energy_j": 20})
    env = CollaPipeEnv(scenario=scenario, learner="surrogate", render_mode="rgb_array")
    env.reset(seed=0)
    parts = env.codec.split(np.zeros(env.action_space.shape, dtype=np.float32))
    parts["server_blocks"][:] = [-1.0, 1.0]
    env.step(env.codec.join(parts))
    plan = env.last_round.allocation
    plan = replace(plan, **plan.groups._asdict())[0]
    plan.stage[0] = plan.stage[0, ::-1]
    env.step_allocation(plan)
    charts = RoundView(env.last_round, "").charts
    assert [chart.schedule for chart in charts] == ["1f1b", "1f1b"]
    firsts = [next(e.label for e in c.timeline.elements if e.kind == "compute") for c in charts]
    assert [label.split(",")[0] for label in firsts] == ["d2", "d0"]
    labels = [element.label for element in charts[1].timeline.elements]
    assert f"server, {scenario.blocks - 1} blocks" in labels
    assert env.render().ndim == 3


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31), everything=st.booleans())
def test_plans_of_some_clusters_come_back_from_their_actions(seed, everything):
    rng = np.random.default_rng(seed)
    scenario = opened(*(OPENED if everything else ("participation", "local_steps")))
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    E, N, _ = STATE.present.shape
    plan = even_split(parameters, STATE)
    plays = rng.random((E, N)) < 0.6
    plays[np.arange(E), rng.integers(0, N, E)] = True
    share = np.where(plays, rng.uniform(0.2, 1.0, (E, N)), 0.0)
    share = share / share.sum(axis=-1, keepdims=True)
    given_steps = rng.choice([-1, *scenario.workload.local_steps_choices], (E, N))
    # What those who sit out say of blocks and shares is not read.
    idle = np.where(plays[..., None], plan.blocks, rng.integers(0, 2) * plan.blocks)
    plan = replace(
        plan,
        blocks=idle,
        bandwidth=np.where(plays, share, rng.uniform(0.0, 1.0, (E, N))),
        participates=plays.astype(np.int64),
        local_steps=given_steps,
    )
    check_allocation(parameters, STATE, plan)
    found = codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes)
    np.testing.assert_array_equal(found.participates, plan.participates)
    np.testing.assert_array_equal(
        found.local_steps, np.where(given_steps < 0, scenario.workload.local_steps, given_steps)
    )
    np.testing.assert_array_equal(found.device_blocks[plays], plan.blocks[plays])
    np.testing.assert_allclose(found.bandwidth, np.where(plays, share, 0.0), atol=1e-6)
    one, two = round_costs(parameters, STATE, plan), round_costs(parameters, STATE, found)
    for field in ("delay", "cluster_delay", "energy"):
        np.testing.assert_allclose(getattr(two, field), getattr(one, field), rtol=2e-5, atol=1e-12)


def test_what_entries_of_participation_and_steps_say():
    scenario = opened("participation", "local_steps", **{"workload.local_steps_choices": [1, 2, 4]})
    codec, N, K = action_codec(scenario), scenario.clusters, scenario.max_devices
    parts = codec.split(np.zeros(codec.action_size))
    assert list(parts)[-2:] == ["participation", "local_steps"]
    assert parts["participation"].shape == parts["local_steps"].shape == (N,)
    assert "1, 2, 4" in codec.parts["local_steps"].description
    cap, memory = np.full((N, K), scenario.blocks), np.full((N, K), 1e15)
    parts["bandwidth"][:] = [0.0, 1.0, -1.0, 1.0]
    parts["participation"][:] = [0.0, -0.001, -1.0, 1.0]
    parts["local_steps"][:] = [-0.51, -0.5, 0.49, 0.5]
    plan = codec.decode(codec.join(parts), cap, memory)
    assert plan.participates.tolist() == [1, 0, 0, 1]
    assert plan.local_steps.tolist() == [1, 2, 2, 4]
    # Weights of one half and one share what two floors leave.
    floor = scenario.budgets.bandwidth_floor
    rest = 1.0 - 2.0 * floor
    np.testing.assert_allclose(plan.bandwidth, [floor + rest / 3.0, 0.0, 0.0, floor + rest * 2.0 / 3.0])
    # Nobody wants to: the one that is least unwilling does, the first of equal ones, and it has all.
    parts["participation"][:] = [-0.9, -0.2, -0.2, -0.3]
    plan = codec.decode(codec.join(parts), cap, memory)
    assert plan.participates.tolist() == [0, 1, 0, 0]
    assert plan.bandwidth.tolist() == pytest.approx([0.0, 1.0, 0.0, 0.0])
    # Whose memory is too small sits out, also where it is the only one that wants to play.
    memory[1], cap[1] = 1.0, 0
    parts["participation"][1] = 1.0
    plan = codec.decode(codec.join(parts), cap, memory)
    assert plan.participates.tolist() == [0, 0, 1, 0]
    memory[:], cap[:] = 0.0, 0
    assert codec.decode(codec.join(parts), cap, memory).participates.tolist() == [0, 0, 0, 0]


def test_clusters_that_sit_out_take_no_room_on_the_server():
    scenario = opened("server_blocks", "participation")
    parameters = system_parameters(scenario)
    codec = with_server_room(action_codec(scenario), 12)
    parts = codec.split(np.zeros((3, codec.action_size)))
    parts["server_blocks"][:] = 1.0
    parts["participation"][:] = [1.0, -1.0, -1.0, -1.0]
    plan = codec.decode(codec.join(parts), STATE.memory_cap, STATE.memory_bytes)
    assert plan.server_blocks.tolist() == 3 * [[scenario.blocks - 1, 0, 0, 0]]
    assert (plan.server_mode == COPIES).all()
    # The others' blocks are not read: nobody broadcasts what no cluster that takes part has trained.
    costs = round_costs(parameters, STATE, plan)
    more = replace(plan, server_blocks=np.full_like(plan.server_blocks, scenario.blocks - 1))
    np.testing.assert_array_equal(round_costs(parameters, STATE, more).delay, costs.delay)
    parts["participation"][:, 1] = 1.0
    both = codec.decode(codec.join(parts), STATE.memory_cap, STATE.memory_bytes)
    assert both.server_blocks.tolist() == 3 * [[6, 6, 0, 0]]
    # Split training in which only clusters that sit out have blocks on the server has copied heads still.
    idle = replace(plan, server_blocks=np.array(3 * [[0, 1, 0, 0]]), blocks=both.blocks)
    with pytest.raises(AllocationError, match="server_mode"):
        codec.encode(replace(idle, blocks=even_split(parameters, STATE).blocks))
    assert (
        codec.decode(-np.abs(codec.join(parts)), STATE.memory_cap, STATE.memory_bytes).server_mode == COMMON
    ).all()


def test_the_server_works_for_those_that_take_part_as_long_as_they_do():
    scenario = opened("server_blocks", "participation", "local_steps", **{"server.terms": "metered"})
    parameters = system_parameters(scenario)
    plan = even_split(parameters, STATE)
    plan = replace(plan, **plan.server._asdict())
    kept = np.full_like(plan.server_blocks, 1)
    plan = replace(
        plan,
        blocks=np.where(plan.blocks.argmax(axis=-1)[..., None] == np.arange(5), plan.blocks - 1, plan.blocks),
        server_blocks=kept,
        server_mode=np.full(3, COPIES),
        participates=np.array(3 * [[1, 0, 1, 1]]),
        local_steps=np.array(3 * [[1, 4, 8, -1]]),
    )
    check_allocation(parameters, STATE, plan)
    c, terms = parameters.costs, parameters.server
    own = scenario.workload.local_steps
    each = terms.pue * terms.joules_per_flop * 3.0 * c.batch_size * c.block_forward_flops
    expected = each * np.array([1.0, 0.0, 8.0, own])
    found = round_costs(parameters, STATE, plan)
    np.testing.assert_allclose(found.terms.server_j, np.broadcast_to(expected, (3, 4)), rtol=1e-12)
    np.testing.assert_allclose(found.server_ratio, expected.sum() / terms.budget_j, rtol=1e-12)


def test_the_loss_is_smoothed_over_local_steps_where_these_are_chosen() -> None:
    scenario = opened("participation", "local_steps", base="small")
    env = CollaPipeVectorEnv(scenario=scenario, num_envs=2, learner="surrogate", reward="delay")
    env.reset(seed=0)
    plan = DSSRA(scenario).allocate(env.state)
    steps, plays = np.array([[4, 2], [1, 16]]), np.array([[1, 1], [1, 0]])
    before = env.state.loss
    env.step_allocation(replace(plan, local_steps=steps, participates=plays))
    latest = env.last_round.learning.loss
    past = 0.8 ** np.array([4.0, 1.0])  # the cluster that sits out takes none of its 16
    np.testing.assert_allclose(env.state.loss, past * before + (1.0 - past) * latest, rtol=1e-12)


def test_what_agents_see():
    env = CollaPipeVectorEnv(2, opened("clock_cap", **WARM), learner="surrogate")
    graph = CollaPipeVectorEnv(2, opened("clock_cap", **WARM), learner="surrogate", observation="graph")
    seen, _ = env.reset(seed=0)
    other, _ = graph.reset(seed=0)
    share = env.state.speed / env.state.full_speed
    assert np.unique(share).tolist() == [0.5, 1.0]
    found = env.observation_layout.unpack(seen)["device_clock_share"]
    np.testing.assert_allclose(found, np.where(env.state.present, share, 0.0), rtol=1e-6)
    np.testing.assert_array_equal(other["opened"][..., -1], found)
