"""Graph observations in Stable-Baselines3: its checker and training."""

import pytest
import torch
from graph_support import shortened
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import make_sb3_vec_env


@pytest.mark.parametrize("name", ["small", "uneven"])
def test_stable_baselines_checker(name):
    """Without its advice to flatten arrays of two and more axes, which MultiInputPolicy does by itself."""
    check_env(CollaPipeEnv(shortened(name), "surrogate", observation="graph"), warn=False)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


@pytest.mark.parametrize(
    "wrap", [lambda env: env, VecMonitor, VecNormalize], ids=["bare", "monitor", "normalise"]
)
def test_ppo_learns_a_step(wrap):
    env = make_sb3_vec_env(shortened("small", 4), 2, seed=0, learner="surrogate", observation="graph")
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
