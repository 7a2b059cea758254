"""Training and evaluation with Stable-Baselines3: its wrappers, its algorithms, and the ways in."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from env_support import make_actions, shortened
from sb3_support import assert_same_info, assert_same_step, make_adapter, make_dummy, make_pair
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import (
    SubprocVecEnv,
    VecCheckNan,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecVideoRecorder,
    is_vecenv_wrapped,
)

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario

NAME = "CollaPipeSurrogate-Small-Classification-v0"


def without_time(infos):
    """Information of a step, the episodes' wall-clock times left out."""
    for info in infos:
        if "episode" in info:
            info["episode"] = {name: value for name, value in info["episode"].items() if name != "t"}
    return infos


@pytest.mark.parametrize(
    "wrap",
    [
        VecMonitor,
        partial(VecMonitor, info_keywords=("delay", "loss")),
        VecCheckNan,
        partial(VecFrameStack, n_stack=2),
        partial(VecNormalize, gamma=0.9),
        lambda env: VecNormalize(VecMonitor(env), gamma=0.9),
    ],
    ids=["monitor", "keywords", "nan", "frames", "normalise", "normalise-monitor"],
)
def test_wrapped_equals_wrapped_dummy_vec_env(wrap):
    ours, theirs = (wrap(env) for env in make_pair(info="full"))
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    # Without a monitor only the adapter's own information has the episode's figures.
    left = ["summary"] if is_vecenv_wrapped(ours, VecMonitor) else ["episode", "summary"]
    ended = 0
    for actions in make_actions(ours.unwrapped.env, 7, lead=(3,)):
        a, b = ours.step(actions), theirs.step(actions)
        assert_same_step(a, b)
        for mine, other in zip(without_time(a[3]), without_time(b[3]), strict=True):
            assert_same_info(mine, other, without=left)
            ended += "terminal_observation" in mine
    assert ended == 6
    assert ours.unwrapped.reset_infos == theirs.unwrapped.reset_infos
    # Attributes of the adapter are seen through the wrappers.
    assert set(ours.last_info) == {"delay", "cost", "backlog", "loss"}
    assert ours.get_attr("reference_delay") == theirs.get_attr("reference_delay")


def test_videos_have_the_environments_own_pace(tmp_path, monkeypatch):
    written = {}

    def clip(frames, fps):
        return SimpleNamespace(write_videofile=lambda path: written.update(frames=frames, fps=fps, path=path))

    for name in ("moviepy", "moviepy.video", "moviepy.video.io", "moviepy.video.io.ImageSequenceClip"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["moviepy.video.io.ImageSequenceClip"].ImageSequenceClip = clip
    env = make_adapter("small", 1, render_mode="rgb_array")
    video = VecVideoRecorder(env, str(tmp_path), lambda step: step == 0, video_length=1)
    video.reset()
    video.step(make_actions(env.env, 1, lead=(1,))[0])
    assert written["fps"] == CollaPipeEnv.metadata["render_fps"]
    assert len(written["frames"]) == 2
    assert not np.array_equal(*written["frames"])


def small_model(algorithm, env):
    if algorithm is SAC:
        options = {"learning_starts": 8, "batch_size": 8, "buffer_size": 200}
    elif algorithm is PPO:
        options = {"n_steps": 8, "batch_size": 8, "n_epochs": 1}
    else:
        options = {"n_steps": 4}
    small = {"net_arch": [8]}
    return algorithm("MlpPolicy", env, seed=0, device="cpu", policy_kwargs=small, **options)


@pytest.mark.parametrize("normalised", [False, True], ids=["plain", "normalised"])
@pytest.mark.parametrize("algorithm", [PPO, A2C, SAC])
def test_learns_the_same_as_on_dummy_vec_env(algorithm, normalised):
    ours, theirs = (VecMonitor(env) for env in make_pair(rounds=5, num_envs=4))
    if normalised:
        ours, theirs = VecNormalize(ours), VecNormalize(theirs)
    models, before = [], []
    for env in (ours, theirs):
        model = small_model(algorithm, env)  # sets PyTorch's seed
        before.append({name: value.clone() for name, value in model.policy.state_dict().items()})
        model.learn(64)
        assert model.num_timesteps == 64
        models.append(model)
    after = [model.policy.state_dict() for model in models]
    assert any(not torch.equal(before[0][name], after[0][name]) for name in before[0])
    for name, value in after[0].items():
        torch.testing.assert_close(value, after[1][name], rtol=0.0, atol=0.0)
    returns = [[episode["r"] for episode in model.ep_info_buffer] for model in models]
    assert returns[0] == returns[1]
    assert len(returns[0]) == 12


def test_the_algorithm_sees_episodes_without_a_monitor():
    model = small_model(PPO, make_adapter(shortened("small", 4), 4))
    model.learn(64)
    assert [episode["l"] for episode in model.ep_info_buffer] == [4] * 16


def test_evaluation_callback(tmp_path):
    env = VecNormalize(VecMonitor(make_pair(rounds=2)[0]))
    other = VecNormalize(VecMonitor(make_pair(rounds=2, seed=9)[0]), training=False)
    callback = EvalCallback(other, n_eval_episodes=3, eval_freq=8, log_path=str(tmp_path), verbose=0)
    small_model(PPO, env).learn(48, callback)
    assert len(callback.evaluations_results) == 2
    np.testing.assert_array_equal(env.obs_rms.mean, other.obs_rms.mean)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((NAME,), {"scenario": "small"}),
        (("collapipe_env:CollaPipeSurrogate-v0",), {"scenario": "medium"}),
        (("small",), {"scenario": "small"}),
        ((shortened("uneven", 3),), {"scenario": shortened("uneven", 3)}),
        ((load_scenario("small"),), {"scenario": "small"}),
    ],
    ids=["id", "package-id", "name", "mapping", "object"],
)
def test_the_short_way_in(given, expected):
    learner = {} if str(given[0]).endswith("-v0") else {"learner": "surrogate"}
    ours = make_sb3_vec_env(*given, num_envs=2, seed=5, reward="delay", **learner)
    theirs = make_dummy(expected["scenario"], 2, reward="delay")
    theirs.seed(5)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    actions = np.array([ours.action_space.sample() for _ in range(2)])
    assert_same_step(ours.step(actions), theirs.step(actions))
    theirs.action_space.seed(5)
    np.testing.assert_array_equal(actions[0], theirs.action_space.sample())
    name = None if learner else given[0].removeprefix("collapipe_env:")
    assert (ours.spec and ours.spec.id) == name
    assert [spec and spec.id for spec in ours.get_attr("spec")] == [name] * 2


def test_the_short_way_in_takes_every_option():
    env = make_sb3_vec_env(
        NAME, num_envs=2, learner="surrogate", render_mode="rgb_array", max_episode_steps=1, info="full"
    )
    assert env.render_mode == "rgb_array"
    env.reset()
    _, _, done, infos = env.step(make_actions(env.env, 1, lead=(2,))[0])
    assert done.all()
    assert env.get_attr("rounds") == [1, 1]
    assert all("delay" in info for info in infos)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("CollaPipeSurogate-v0", {}, "not registered: did you mean 'CollaPipeSurrogate-v0'"),
        ("CartPole-v1", {}, "not an environment of this package.*make_vec_env"),
        ("smal", {}, "small"),
        ("small", {"num_envs": 0}, "num_envs = 0: use a whole number of at least 1"),
        (NAME, {"num_envs": 0}, "num_envs = 0: use a whole number of at least 1"),
        ("small", {"leaner": "surrogate"}, "did you mean 'learner'"),
        (NAME, {"rewards": "delay"}, "did you mean 'reward'"),
        ("small", {"learner": "surrogate", "info": "all"}, "info = 'all' is not known"),
        ("small", {"learner": "surrogate", "autoreset_mode": "NextStep"}, "SameStep"),
    ],
)
def test_bad_ways_in_are_refused(given, options, message):
    with pytest.raises(ScenarioError, match=message):
        make_sb3_vec_env(given, **options)


@pytest.mark.parametrize("first", [NAME, "medium", load_scenario("medium")])
def test_two_scenarios_are_one_clear_error(first):
    with pytest.raises(ScenarioError, match="and scenario = 'small' are two scenarios for one environment"):
        make_sb3_vec_env(first, scenario="small")
    with pytest.raises(ScenarioError, match="no scenario: give an id"):
        make_sb3_vec_env(num_envs=2)
    assert make_sb3_vec_env(scenario=NAME, num_envs=2).num_envs == 2


@pytest.mark.slow
def test_subprocesses_play_the_same():
    # A fresh process knows no ids: the name of the package before the id has it imported.
    env = make_vec_env(f"collapipe_env:{NAME}", n_envs=2, seed=3, vec_env_cls=SubprocVecEnv)
    try:
        native = make_sb3_vec_env(NAME, 2, seed=3)
        np.testing.assert_array_equal(env.reset(), native.reset())
        assert tuple(env.reset_infos) == tuple(native.reset_infos)
        for actions in make_actions(native.env, 3, lead=(2,)):
            for mine, other in zip(native.step(actions)[:3], env.step(actions)[:3], strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-7)
        assert env.env_method("summary") == native.env_method("summary")
        small_model(PPO, env).learn(16)
    finally:
        env.close()
