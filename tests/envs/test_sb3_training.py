"""Training with Stable-Baselines3: its wrappers and algorithms see what they see of its own environment."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from environments_support import adapted, adapter_and_dummy, assert_close, make_actions
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

NAME = "CollaPipeSurrogate-Small-v0"


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
    ours, theirs = (wrap(env) for env in adapter_and_dummy())
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    # Without a monitor only the adapter's own information has the episode's figures.
    left = {"summary"} if is_vecenv_wrapped(ours, VecMonitor) else {"episode", "summary"}
    ended = 0
    for actions in make_actions(ours, 7):
        a, b = ours.step(actions), theirs.step(actions)
        assert_close(a[:3], b[:3])
        for mine, other in zip(a[3], b[3], strict=True):
            ended += "terminal_observation" in mine
            for info in (mine, other):
                info.get("episode", {}).pop("t", None)  # seconds that have passed
            assert_close({name: mine[name] for name in mine.keys() - left}, other)
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
    env = adapted("small", num_envs=1, render_mode="rgb_array")
    video = VecVideoRecorder(env, str(tmp_path), lambda step: step == 0, video_length=1)
    video.reset()
    video.step(make_actions(env, 1)[0])
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
    ours, theirs = (VecMonitor(env) for env in adapter_and_dummy(5, num_envs=4))
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
    model = small_model(PPO, adapted("small", 4, 4))
    model.learn(64)
    assert [episode["l"] for episode in model.ep_info_buffer] == [4] * 16


def test_evaluation_callback(tmp_path):
    env = VecNormalize(VecMonitor(adapter_and_dummy(2)[0]))
    other = VecNormalize(VecMonitor(adapter_and_dummy(2, 9)[0]), training=False)
    callback = EvalCallback(other, n_eval_episodes=3, eval_freq=8, log_path=str(tmp_path), verbose=0)
    small_model(PPO, env).learn(48, callback)
    assert len(callback.evaluations_results) == 2
    np.testing.assert_array_equal(env.obs_rms.mean, other.obs_rms.mean)


@pytest.mark.slow
def test_subprocesses_play_the_same():
    # A fresh process knows no ids: the name of the package before the id has it imported.
    env = make_vec_env(f"collapipe_env:{NAME}", n_envs=2, seed=3, vec_env_cls=SubprocVecEnv)
    try:
        native = make_sb3_vec_env(NAME, 2, seed=3)
        np.testing.assert_array_equal(env.reset(), native.reset())
        assert tuple(env.reset_infos) == tuple(native.reset_infos)
        for actions in make_actions(native, 3):
            for mine, other in zip(native.step(actions)[:3], env.step(actions)[:3], strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-7)
        assert env.env_method("summary") == native.env_method("summary")
        small_model(PPO, env).learn(16)
    finally:
        env.close()


# Graphs


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


@pytest.mark.parametrize(
    "wrap", [lambda env: env, VecMonitor, VecNormalize], ids=["bare", "monitor", "normalise"]
)
def test_ppo_learns_a_step(wrap):
    env = adapted("small", 4, 2, observation="graph")
    model = PPO(
        "MultiInputPolicy", wrap(env), n_steps=6, batch_size=6, n_epochs=1, seed=0, device="cpu",
        policy_kwargs={"net_arch": [8]},
    )  # fmt: skip
    before = weights(model).clone()
    model.learn(24)
    assert model.num_timesteps == 24
    assert torch.isfinite(weights(model)).all()
    assert not torch.equal(weights(model), before)


def test_sac_learns_a_step_from_its_memory_of_graphs():
    env = make_sb3_vec_env("CollaPipeSurrogate-Small-v0", 2, seed=0, observation="graph", max_episode_steps=3)
    model = SAC(
        "MultiInputPolicy", env, learning_starts=4, batch_size=4, buffer_size=50, seed=0, device="cpu",
        policy_kwargs={"net_arch": [8]},
    )  # fmt: skip
    model.learn(16)
    # What is remembered of an episode's last round is its own end, not the next beginning.
    memory = model.replay_buffer
    ended = memory.dones[: memory.pos].astype(bool)
    assert ended.any()
    assert torch.isfinite(weights(model)).all()
    for name, values in memory.next_observations.items():
        if name == "device":
            backlog = values[: memory.pos][ended][..., 5]
            assert (memory.observations[name][1 : memory.pos + 1][ended[: memory.pos]][..., 5] == 0.0).all()
            assert (backlog > 0.0).any()
