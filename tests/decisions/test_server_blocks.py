"""Encoder blocks on the server by hand: scaled to its room, clusters that sit out, energy and pictures."""

from dataclasses import replace

import numpy as np
import pytest

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COMMON, COPIES
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.codec import ActionCodec
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from tests.opened_support import PLACED, STATE, opened, same


def with_server_room(codec, room):
    """Action box of the same scenario whose server's memory holds so many blocks."""
    p = codec.parameters
    each = p.server.block_state_bytes + p.server.block_activation_bytes
    server = p.server._replace(memory_bytes=(room + 0.5) * each)
    return ActionCodec(replace(p, server=server), codec.devices)


@pytest.mark.parametrize("room", [0, 1, 2, 5, 11, 12, 20, 33, 44])
def test_requests_to_the_server_are_scaled_down_to_its_room(room):
    scenario = opened("server_blocks")
    codec = with_server_room(action_codec(scenario), room)
    for asked in np.random.default_rng(room).integers(0, 12, (10, 3, 4)):
        parts = codec.split(np.zeros((3, codec.action_size)))
        parts["server_blocks"][:] = 2.0 * asked / (scenario.blocks - 1) - 1.0
        plan = codec.decode(codec.join(parts), STATE.memory_cap, STATE.memory_bytes)
        for given_blocks, wanted in zip(plan.server_blocks, asked, strict=True):
            if (total := wanted.sum()) <= room:
                np.testing.assert_array_equal(given_blocks, wanted)
            else:
                # By largest remainder: the whole room is used, nobody is off by a block.
                assert given_blocks.sum() == room
                assert (np.abs(given_blocks - wanted * room / total) < 1.0 + 1e-4).all()
        same(codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes), plan)


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
