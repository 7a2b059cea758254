"""Participation and local steps by hand: what their entries say, plans that come back, and the loss."""

from dataclasses import replace

import numpy as np
import pytest

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario.decision_names import OPENED
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from tests.opened_support import SITTING_OUT, STATE, opened


@pytest.mark.parametrize("names", [SITTING_OUT, OPENED])
def test_what_plans_say_of_clusters_that_sit_out_is_not_read(names):
    scenario, rng = opened(*names, **{"workload.local_steps": 2}), np.random.default_rng(0)
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    plan = even_split(parameters, STATE)
    plays = np.array([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 1, 1]])
    share = plays / plays.sum(axis=-1, keepdims=True)
    steps = rng.choice([-1, *scenario.workload.local_steps_choices], plays.shape)
    plan = replace(
        plan,
        blocks=np.where(plays[..., None], plan.blocks, 0),
        bandwidth=np.where(plays, share, rng.uniform(0.0, 1.0, plays.shape)),
        participates=plays,
        local_steps=steps,
    )
    check_allocation(parameters, STATE, plan)
    found = codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes)
    np.testing.assert_array_equal(found.participates, plays)
    np.testing.assert_array_equal(
        found.local_steps, np.where(steps < 0, scenario.workload.local_steps, steps)
    )
    np.testing.assert_array_equal(found.device_blocks[plays > 0], plan.blocks[plays > 0])
    np.testing.assert_allclose(found.bandwidth, share, atol=1e-6)
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


def test_the_loss_is_smoothed_over_local_steps_where_these_are_chosen():
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
