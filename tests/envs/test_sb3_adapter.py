"""The adapter to Stable-Baselines3: the same as its own DummyVecEnv over single environments."""

import numpy as np
import pytest
from env_support import make_actions, make_env, shortened
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import ScenarioError

TARGET = {"base": "small", "dynamics": {"rounds": 12, "target_loss": 0.69}}


def make_adapter(scenario, num_envs=3, **kwargs):
    vector = CollaPipeVectorEnv(num_envs, scenario, "surrogate", autoreset_mode="SameStep", **kwargs)
    return CollaPipeVecEnv(vector)


@pytest.mark.parametrize(
    "scenario",
    [shortened("small", 4), shortened("moving", 4), shortened("medium", 4), TARGET],
    ids=["small", "moving", "medium", "target"],
)
def test_equals_dummy_vec_env(scenario):
    ours = make_adapter(scenario)
    theirs = DummyVecEnv([lambda: CollaPipeEnv(scenario, "surrogate")] * 3)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    for env in (ours, theirs):
        env.seed(7)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    truncations = []
    for actions in make_actions(ours.env, 14, lead=(3,)):
        a, b = ours.step(actions), theirs.step(actions)
        for one, other in zip(a[:3], b[:3], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        for row in range(3):
            mine, other = a[3][row], b[3][row]
            assert ("terminal_observation" in mine) == ("terminal_observation" in other) == a[2][row]
            if a[2][row]:
                np.testing.assert_array_equal(mine["terminal_observation"], other["terminal_observation"])
                assert mine["TimeLimit.truncated"] is other["TimeLimit.truncated"]
                assert mine["summary"] == other["summary"]
                truncations.append(mine["TimeLimit.truncated"])
            else:
                assert mine == {}
    assert truncations
    assert all(truncations) == (scenario is not TARGET)


def test_limited_episodes_equal_the_time_limit_wrapper():
    ours = make_adapter("small", max_episode_steps=2)
    theirs = DummyVecEnv([lambda: TimeLimit(make_env(rounds=100), 2)] * 3)
    for env in (ours, theirs):
        env.seed(1)
    np.testing.assert_array_equal(ours.reset()[:, :-2], theirs.reset()[:, :-2])
    for actions in make_actions(ours.env, 6, lead=(3,)):
        a, b = ours.step(actions), theirs.step(actions)
        np.testing.assert_array_equal(a[1], b[1])
        np.testing.assert_array_equal(a[2], b[2])
        truncated = [[info.get("TimeLimit.truncated") for info in infos] for infos in (a[3], b[3])]
        assert [bool(t) for t in truncated[0]] == [bool(t) for t in truncated[1]] == list(a[2])


def test_unseeded_resets_go_on():
    ours = make_adapter("small")
    ours.seed(3)
    first, second = ours.reset(), ours.reset()
    assert not np.array_equal(first, second)
    single = make_env(rounds=100)
    single.reset(seed=3)
    np.testing.assert_array_equal(second[0], single.reset()[0])


def test_monitor_and_normalisation_work_on_top():
    ours = VecNormalize(VecMonitor(make_adapter(shortened("small", 3))), gamma=0.9)
    ours.seed(0)
    ours.reset()
    plain = make_adapter(shortened("small", 3))
    plain.seed(0)
    plain.reset()
    rewards = np.zeros(3)
    for actions in make_actions(plain.env, 3, lead=(3,)):
        observation, _, done, infos = ours.step(actions)
        rewards += plain.step(actions)[1]
    assert done.all()
    assert np.isfinite(observation).all()
    for row, info in enumerate(infos):
        assert info["episode"]["r"] == pytest.approx(rewards[row], rel=1e-5)
        assert info["episode"]["l"] == 3
        assert np.isfinite(info["terminal_observation"]).all()
    unnormalised = ours.unnormalize_obs(observation)
    np.testing.assert_allclose(unnormalised, ours.get_original_obs(), atol=1e-5)


def test_own_episode_figures_agree_with_the_monitor():
    ours, monitored = make_adapter(shortened("small", 3)), VecMonitor(make_adapter(shortened("small", 3)))
    for env in (ours, monitored):
        env.seed(0)
        env.reset()
    for actions in make_actions(ours.env, 3, lead=(3,)):
        own, theirs = ours.step(actions)[3], monitored.step(actions)[3]
    for a, b in zip(own, theirs, strict=True):
        assert a["episode"]["l"] == b["episode"]["l"]
        assert a["episode"]["r"] == pytest.approx(b["episode"]["r"], rel=1e-5)


def test_figures_of_the_last_step_are_at_hand():
    ours = make_adapter("small")
    ours.seed(0)
    ours.reset()
    ours.step(make_actions(ours.env, 1, lead=(3,))[0])
    np.testing.assert_array_equal(ours.last_info["delay"], ours.env.last_round.costs.delay)


def test_interface_of_vec_env():
    ours = make_adapter("small", render_mode="rgb_array")
    assert ours.get_attr("reference_delay", [0, 2]) == [ours.env.reference_delay] * 2
    assert ours.env_is_wrapped(TimeLimit) == [False] * 3
    ours.reset()
    assert set(ours.env_method("summary", 0)[0]) >= {"rounds", "mean_delay"}
    with pytest.raises(ScenarioError, match="rows share one environment"):
        ours.set_attr("render_mode", None, [0])
    assert not any(make_adapter("small").get_images())
    one = make_adapter("small", num_envs=1, render_mode="rgb_array")
    one.reset()
    assert [image.dtype for image in one.get_images()] == [np.uint8]
    ours.close()


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_other_autoreset_modes_are_refused(mode):
    with pytest.raises(ScenarioError, match=f"{mode}.*SameStep"):
        CollaPipeVecEnv(CollaPipeVectorEnv(2, "small", "surrogate", autoreset_mode=mode))


@pytest.mark.parametrize("normalised", [False, True])
def test_ppo_learns_on_it(normalised):
    env = VecMonitor(make_adapter(shortened("small", 4), num_envs=4))
    if normalised:
        env = VecNormalize(env)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1, seed=0, device="cpu")
    before = model.policy.action_net.weight.detach().clone()
    model.learn(64)
    assert model.num_timesteps == 64
    assert not (model.policy.action_net.weight == before).all()
    assert len(model.ep_info_buffer) == 16
