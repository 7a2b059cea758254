"""Participation and local steps in the action box: feasible, invertible, and somebody who can takes part."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COMMON, COPIES, with_explicit_server
from collapipe_env.scenario.decision_names import OPENED
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from tests.opened_support import STATE, opened


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31), everything=st.booleans())
def test_plans_that_were_not_decoded_come_back_from_their_actions(seed, everything):
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


def test_what_each_entry_says():
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
    codec = replace(action_codec(scenario), server_room=12)
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
    plan = with_explicit_server(even_split(parameters, STATE))
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
    np.testing.assert_allclose(found.server_energy, np.broadcast_to(expected, (3, 4)), rtol=1e-12)
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
