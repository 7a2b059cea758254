"""The process of the round before: in every environment, in the observation, in saved states and pictures."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import CollaPipeError, StateError
from collapipe_env.rendering.round_view import cluster_round_timeline
from collapipe_env.scenario import load_scenario

SCENARIO = {"base": "small", "dynamics": {"rounds": 8, "processes": {"migration": {}}}}


def actions(env, rounds, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (rounds, *env.action_space.shape)).astype(np.float32)


def test_it_passes_the_checker_and_shows_the_plan_of_the_round_before():
    env = gym.make("CollaPipeSurrogate-v0", scenario=SCENARIO)
    check_env(env.unwrapped, skip_render_check=True)
    layout = env.unwrapped.observation_layout
    observation, _ = env.reset(seed=1)
    assert (layout.unpack(observation)["migration_blocks"] == 0.0).all()
    observation, *_ = env.step(actions(env, 1)[0])
    played = env.unwrapped.last_round.allocation.blocks[0]
    np.testing.assert_allclose(layout.unpack(observation)["migration_blocks"], played / 6, rtol=1e-6)
    np.testing.assert_allclose(layout.physical(observation)["migration_blocks"], played, rtol=1e-6)
    observation, _ = env.reset(seed=2)
    assert (layout.unpack(observation)["migration_blocks"] == 0.0).all()


def test_a_change_of_plan_lengthens_the_picture_and_a_saved_state_knows_of_it():
    env = CollaPipeVectorEnv(1, SCENARIO, "surrogate")
    env.reset(seed=0)
    for action in actions(env, 3):
        env.step(action)
    record, saved = env.last_round, env.get_state()
    costs = record.costs
    assert (costs.migration > 0.0).any()
    for n in range(2):
        timeline = cluster_round_timeline(costs, record, 0, n, 1)
        first = timeline.phases[0]
        assert (first.label == "migration") == (costs.migration[0, n] > 0.0)
        if first.label == "migration":
            assert first.end_s == costs.migration[0, n]
            assert timeline.events[0].start_s == first.end_s
        assert timeline.end_s == pytest.approx(costs.delay[0], rel=1e-9)
    other = CollaPipeVectorEnv(1, SCENARIO, "surrogate")
    other.set_state(saved)
    np.testing.assert_array_equal(other.last_round.costs.migration, costs.migration)
    action = actions(env, 1, seed=9)[0]
    np.testing.assert_array_equal(env.step(action)[0], other.step(action)[0])


def test_a_damaged_plan_is_refused():
    env = CollaPipeVectorEnv(1, SCENARIO, "surrogate")
    env.reset(seed=0)
    env.step(actions(env, 1)[0])
    for damage in ("blocks", "holders"):
        saved = env.get_state()
        carried = saved["mdp"]["simulator"]["processes"]["migration"]
        carried[damage] = np.zeros_like(carried[damage])
        if damage == "blocks":
            carried[damage][..., 0] = 7
        else:
            carried["blocks"] = carried["blocks"] * 0
            carried[damage][0, 0, 0, 0] = True
        with pytest.raises(StateError, match="migration"):
            env.set_state(saved)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"moments": "drop"}, "moments"), ({"moment_bits": 8}, "moment_bits"), ({"rout": "cu"}, "rout")],
)
def test_bad_fields_are_refused(fields, message):
    with pytest.raises(CollaPipeError, match=message):
        load_scenario({"base": "small", "dynamics": {"processes": {"migration": fields}}})
