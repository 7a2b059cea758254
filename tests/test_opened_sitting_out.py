"""Entries of participation and of local steps in actions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import OPENED
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import able_clusters
from tests.test_opened_decisions import opened

STATE = sample_rounds(load_scenario("medium")).state[:3]
BOTH = ("participation", "local_steps")


def with_absence(state):
    return replace(state, absence=np.zeros(state.uplink_gain.shape))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([BOTH[:1], BOTH[1:], BOTH, OPENED]), st.integers(0, 2**32 - 1), st.booleans())
def test_every_action_decodes_to_a_plan_that_comes_back(names, seed, one_cluster_lacks_memory):
    scenario = opened(*names)
    codec, parameters, rng = action_codec(scenario), system_parameters(scenario), np.random.default_rng(seed)
    state = with_absence(STATE) if "participation" in names else STATE
    able = np.ones(state.uplink_gain.shape, dtype=bool)
    if one_cluster_lacks_memory and "participation" in names:
        memory = state.memory_bytes.copy()
        memory[:, 1] *= 0.01
        cap = state.memory_cap.copy()
        cap[:, 1] = 0
        state, able[:, 1] = replace(state, memory_bytes=memory, memory_cap=cap), False
    np.testing.assert_array_equal(able_clusters(parameters, state), able)
    actions = rng.uniform(-1.5, 1.5, (3, codec.action_size))
    plan = codec.decode(actions, state.memory_cap, state.memory_bytes)
    check_allocation(parameters, state, plan)
    if "participation" in names:
        asked = codec.split(actions)["participation"] >= 0.0
        takes_part = plan.participates > 0
        assert not (takes_part & ~able).any()
        assert takes_part.any(axis=-1).all()
        np.testing.assert_array_equal(
            takes_part[(asked & able).any(axis=-1)], (asked & able)[(asked & able).any(axis=-1)]
        )
    if "local_steps" in names:
        assert np.isin(plan.local_steps, scenario.workload.local_steps_choices).all()
    if not able.all():
        return  # what sits out is no plan that could be played
    again = codec.decode(codec.encode(plan), state.memory_cap, state.memory_bytes)
    for name in ("blocks", "micro_batches", "participates", "local_steps"):
        np.testing.assert_array_equal(getattr(again, name), getattr(plan, name))


def test_what_the_entries_say():
    codec = action_codec(opened(*BOTH))
    parts = codec.split(np.zeros((1, codec.action_size)))
    parts["participation"] = np.array([[-0.5, -0.1, -0.9, -0.2]])
    parts["local_steps"] = np.array([[-1.0, -0.5, 0.0, 1.0]])
    plan = codec.decode(codec.join(parts), STATE.memory_cap[:1], STATE.memory_bytes[:1])
    assert plan.participates.tolist() == [[0, 1, 0, 0]]  # the highest, as nobody would
    assert plan.local_steps.tolist() == [[1, 2, 4, 16]]
    assert "1, 2, 4, 8, 16" in codec.parts["local_steps"].description


def test_everybody_with_the_workloads_steps_is_the_plain_plan():
    scenario, closed = opened(*BOTH), load_scenario("medium")
    codec, plain = action_codec(scenario), action_codec(closed)
    rng = np.random.default_rng(1)
    own = rng.uniform(-1.0, 1.0, (3, plain.action_size))
    plan = plain.decode(own, STATE.memory_cap)
    both = codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes)
    assert (both.participates == 1).all()
    assert (both.local_steps == closed.workload.local_steps).all()
    found = round_costs(system_parameters(scenario), with_absence(STATE), both)
    expected = round_costs(system_parameters(closed), STATE, plan)
    np.testing.assert_allclose(found.delay, expected.delay, rtol=1e-6)
    np.testing.assert_allclose(found.energy, expected.energy, rtol=1e-5)


@pytest.mark.parametrize(
    ("names", "change", "message"),
    [
        ((), {"participates": 0}, "do not list participation"),
        ((), {"local_steps": 2}, "do not list local_steps"),
        (BOTH, {"local_steps": 3}, r"local_steps = \[3\]"),
    ],
)
def test_what_no_entry_can_say_is_refused(names, change, message):
    plan = action_codec(load_scenario("medium")).decode(np.zeros((1, 52)), STATE.memory_cap[:1])
    (name, value), *_ = change.items()
    plan = replace(plan, **{name: np.full(plan.micro_batches.shape, value)})
    with pytest.raises(AllocationError, match=message):
        action_codec(opened(*names)).encode(plan)


def test_environments_play_actions_that_let_clusters_sit_out():
    env = CollaPipeVectorEnv(3, opened(*OPENED, **{"budgets.per": "second"}), learner="surrogate")
    env.reset(seed=1)
    env.action_space.seed(1)
    out = 0
    for _ in range(5):
        _, reward, *_ = env.step(env.action_space.sample())
        assert np.isfinite(reward).all()
        out += int((env.last_round.allocation.participates == 0).sum())
    assert out > 0


def test_blocks_of_clusters_that_sit_out_are_broadcast_by_the_others_plans():
    """Broadcast is what the one cluster that takes part trains, whatever the others leave to the server."""
    scenario = opened("participation", "server_blocks")
    codec, parameters = action_codec(scenario), system_parameters(scenario)
    parts = codec.split(np.zeros((1, codec.action_size)))
    parts["participation"] = np.array([[1.0, -1.0, -1.0, -1.0]])
    found = []
    for others in (-1.0, 0.0, 1.0):
        parts["server_blocks"] = np.array([[0.0, others, others, others]])
        plan = codec.decode(codec.join(parts), STATE.memory_cap[:1], STATE.memory_bytes[:1])
        found.append(round_costs(parameters, with_absence(STATE)[:1], plan).broadcast[0])
    assert found[0] == found[1] == found[2] > 0.0
