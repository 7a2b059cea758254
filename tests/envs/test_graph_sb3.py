"""Graph observations in Stable-Baselines3: its checker, the adapter beside its DummyVecEnv, and training."""

import numpy as np
import pytest
import torch
from env_support import make_actions
from graph_support import assert_graphs_equal, shortened
from sb3_support import assert_same_info, make_adapter, make_dummy
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.envs.sb3 import make_sb3_vec_env


@pytest.mark.parametrize("name", ["small", "uneven"])
def test_stable_baselines_checker(name):
    """Without its advice to flatten arrays of two and more axes, which MultiInputPolicy does by itself."""
    check_env(CollaPipeEnv(shortened(name), "surrogate", observation="graph"), warn=False)


@pytest.mark.parametrize("info", ["sparse", "full"])
@pytest.mark.parametrize("name", ["small", "moving"])
def test_the_adapter_equals_dummy_vec_env(name, info):
    scenario = shortened(name, 4)
    ours = make_adapter(scenario, info=info, observation="graph")
    theirs = make_dummy(scenario, observation="graph")
    assert ours.observation_space == theirs.observation_space
    for env in (ours, theirs):
        env.seed(7)
    found, expected = ours.reset(), theirs.reset()
    ends = 0
    for actions in make_actions(ours.env, 9, lead=(3,)):
        assert_graphs_equal(found, dict(expected))
        (found, *mine, infos), (expected, *other, their_infos) = ours.step(actions), theirs.step(actions)
        for one, two in zip(mine, other, strict=True):
            np.testing.assert_array_equal(one, two)
        for one, two, done in zip(infos, their_infos, mine[1], strict=True):
            if done:
                ends += 1
                assert_graphs_equal(one.pop("terminal_observation"), dict(two.pop("terminal_observation")))
                assert_same_info(one, two, without=["episode", "summary"])
    assert ends == 6


def test_rows_show_and_reset_themselves():
    ours = make_adapter(shortened("moving", 4), observation="graph")
    theirs = make_dummy(shortened("moving", 4), observation="graph")
    for env in (ours, theirs):
        env.seed(0)
        env.reset()
    assert all(isinstance(layout, GraphLayout) for layout in ours.get_attr("observation_layout"))
    assert ours.get_attr("observation_space") == theirs.get_attr("observation_space")
    mine, other = (env.env_method("reset", seed=11, indices=[1])[0] for env in (ours, theirs))
    assert_graphs_equal(mine[0], other[0])
    assert mine[1] == other[1]


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
