"""The process of the round before: in saved states and pictures."""

import numpy as np
import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import StateError
from collapipe_env.rendering.round_view import cluster_round_timeline

SCENARIO = {"base": "small", "dynamics": {"rounds": 8, "processes": {"migration": {}}}}


def actions(env, rounds, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (rounds, *env.action_space.shape)).astype(np.float32)


def test_a_change_of_plan_lengthens_the_picture_and_a_saved_state_knows_of_it():
    env = CollaPipeVectorEnv(1, SCENARIO, "surrogate")
    env.reset(seed=0)
    for action in actions(env, 3):
        env.step(action)
    record, saved = env.last_round, env.get_state()
    np.testing.assert_array_equal(env.state.processes["migration"]["blocks"], record.allocation.blocks)
    costs = record.costs
    assert (costs.terms.once["migration"] > 0.0).any()
    for n in range(2):
        timeline = cluster_round_timeline(record, 0, n)
        first = timeline.phases[0]
        assert (first.label == "migration") == (costs.terms.once["migration"][0, n] > 0.0)
        if first.label == "migration":
            assert first.end_s == costs.terms.once["migration"][0, n]
            assert timeline.events[0].start_s == first.end_s
        assert timeline.end_s == pytest.approx(costs.delay[0], rel=1e-9)
    other = CollaPipeVectorEnv(1, SCENARIO, "surrogate")
    other.set_state(saved)
    np.testing.assert_array_equal(
        other.last_round.costs.terms.once["migration"], costs.terms.once["migration"]
    )
    action = actions(env, 1, seed=9)[0]
    np.testing.assert_array_equal(env.step(action)[0], other.step(action)[0])
    env.reset(seed=1)
    assert not env.state.processes["migration"]["blocks"].any()
    carried = (saved := env.get_state())["mdp"]["simulator"]["processes"]["migration"]
    carried["holders"] = carried["holders"].copy()
    carried["holders"][0, 0, 0, 0] = True
    with pytest.raises(StateError, match="without a holder"):
        env.set_state(saved)
