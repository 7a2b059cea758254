"""MO-Gymnasium's view: vector rewards against the single environment's figures, and its wrappers."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from environments_support import VARIANTS, make_actions, objectives, single
from gymnasium.utils.env_checker import check_env

from collapipe_env.ground.errors import ScenarioError, UnknownArgumentError

ID = "CollaPipeMOSurrogate-v0"
SHORT = {"base": "small", "dynamics": {"rounds": 4}, "budgets": {"device_energy_j": 6}}


@pytest.mark.parametrize("name", [*VARIANTS, "tight"])
@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_vector_rewards_are_delay_excess_and_fall_of_the_loss(name):
    scenario = SHORT if name == "tight" else name
    many, one = objectives(scenario), single(scenario, reward="delay")
    seen, info = many.reset(seed=2)
    expected, expected_info = one.reset(seed=2)
    assert np.array_equal(seen, expected)
    assert info == expected_info
    smoothed, total = many.truth.loss[0], np.zeros(3)
    first = smoothed
    for action in make_actions(one, 4, seed=1):
        seen, reward, *ends, info = many.step(action)
        expected, delay, *expected_ends, expected_info = one.step(action)
        assert np.array_equal(seen, expected)
        assert (ends, info) == (expected_ends, expected_info)
        assert reward.dtype == np.float32
        assert reward in many.reward_space
        following = 0.8 * smoothed + 0.2 * info["loss"]
        if many.last_round.costs.local_steps is None:
            assert reward == pytest.approx([delay, -info["cost"], smoothed - following], rel=1e-5, abs=1e-6)
        smoothed, total = following, total + reward
    assert total[2] == pytest.approx(first - many.truth.loss[0], rel=1e-4, abs=1e-6)
    assert total[1] < 0.0 or name != "tight"


def test_gymnasium_makes_both_ids_and_writes_them_down():
    env = gym.make(ID, scenario="small")
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.scenario == env.unwrapped.scenario
    assert gym.make("CollaPipeMO-v0", scenario="small").unwrapped.scenario.name == "small"
    assert env.unwrapped.reward_space.shape == (env.unwrapped.reward_dim,) == (3,)


def test_what_is_unknown_is_refused():
    with pytest.raises(UnknownArgumentError, match="did you mean 'learner'"):
        gym.make(ID, lerner="surrogate")
    with pytest.raises(ScenarioError, match="has no vector rewards"):
        gym.make_vec(ID, num_envs=2, backend="torch")


@pytest.fixture
def mo():
    return pytest.importorskip("mo_gymnasium", reason="MO-Gymnasium is not installed")


class FreshInfo(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """Copies infos: those of LinearReward share its weights, which Gymnasium 1.4's checker refuses."""

    def __init__(self, env):
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def step(self, action):
        *rest, info = self.env.step(action)
        return *rest, copy.deepcopy(info)


# Gymnasium's checker says so of every wrapped environment; MO-Gymnasium checks its own in the same way.
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_mo_gymnasiums_check(mo):
    from mo_gymnasium.wrappers import LinearReward

    check_env(FreshInfo(LinearReward(mo.make(ID, scenario=SHORT))), skip_render_check=True)


def test_linear_rewards_and_recorded_episodes(mo):
    from mo_gymnasium.wrappers import LinearReward, MORecordEpisodeStatistics

    weights = np.array([1.0, 0.25, 0.5])
    env = LinearReward(MORecordEpisodeStatistics(mo.make(ID, scenario=SHORT), gamma=0.9), weight=weights)
    twin = gym.make(ID, scenario=SHORT)
    env.reset(seed=4)
    twin.reset(seed=4)
    sums, discounted = np.zeros(3), np.zeros(3)
    for step, action in enumerate(make_actions(twin, 4)):
        *_, scalar, _, truncated, info = env.step(action)
        reward = twin.step(action)[1]
        assert scalar == pytest.approx(weights @ reward)
        assert np.array_equal(info["vector_reward"], reward)
        sums, discounted = sums + reward, discounted + 0.9**step * reward
    assert truncated
    assert info["episode"]["r"] == pytest.approx(sums, rel=1e-5)
    assert info["episode"]["dr"] == pytest.approx(discounted, rel=1e-5)


def test_mo_gymnasiums_vector_environment_and_ours_agree(mo):
    from mo_gymnasium.wrappers.vector import MORecordEpisodeStatistics, MOSyncVectorEnv

    theirs = MOSyncVectorEnv([lambda: mo.make(ID, scenario=SHORT) for _ in range(2)])
    ours = gym.make_vec(ID, num_envs=2, scenario=SHORT)
    assert ours.reward_space == theirs.reward_space
    recorded = MORecordEpisodeStatistics(ours)
    recorded.reset(seed=1)
    theirs.reset(seed=1)
    sums, ended = np.zeros((2, 3)), 0
    for actions in make_actions(ours, 6):
        _, rewards, _, truncated, info = recorded.step(actions)
        assert rewards in ours.batched_reward_space
        assert np.array_equal(rewards, theirs.step(actions)[1])
        sums = sums + rewards
        if truncated.all():
            ended += 1
            assert info["episode"]["r"] == pytest.approx(sums, rel=1e-5)
    assert ended == 1
