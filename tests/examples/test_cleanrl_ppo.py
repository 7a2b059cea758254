"""The CleanRL-style file: it learns, and its table says what its weights do."""

from pathlib import Path

import example_support
import gymnasium as gym
import numpy as np
import pytest
import torch
from cleanrl_ppo import Agent, Args, main, train
from torch.utils.tensorboard import SummaryWriter

OPTIONS = {"num_envs": 16, "num_steps": 20, "minibatch_size": 160, "against": ("random",), "episodes": 1}


def test_it_ends_with_the_table_of_its_weights(tmp_path: Path, capsys) -> None:
    # More than an episode, so that truncated rows are met.
    quick = {"num_envs": 2, "num_steps": 52, "minibatch_size": 104}
    result = main(Args(total_timesteps=208, out=tmp_path, **{**OPTIONS, **quick}))
    printed = capsys.readouterr().out
    assert "PPO (one file)" in printed
    assert str(tmp_path / "agent.pt") in printed.splitlines()[-1]
    assert list(tmp_path.glob("tensorboard/events*"))
    envs = gym.make_vec(example_support.ENVIRONMENT, num_envs=1)
    agent = Agent(envs)
    agent.load_state_dict(torch.load(tmp_path / "agent.pt"))
    with torch.no_grad():
        delay, worst = example_support.played_by_hand(
            lambda observation: agent(torch.from_numpy(observation[None]))[0].numpy()
        )
    assert result["PPO (one file)"].delay_mean.mean == pytest.approx(delay)
    assert result["PPO (one file)"].energy_excess.mean == pytest.approx(worst - 1.0)
    assert list(result) == ["random", "PPO (one file)"]


def test_queues_are_shown_magnified() -> None:
    envs = gym.make_vec(example_support.ENVIRONMENT, num_envs=1)
    unit = Agent(envs).unit.numpy()
    layout = envs.observation_layout
    queues = np.zeros(len(unit), dtype=np.bool_)
    for name in ("device_backlog", "cu_backlog"):
        queues[layout[name].slice] = True
    assert queues.sum() == 2 * 3 + 2
    assert (unit[queues] == 5.0).all()  # a cap of 20, and 4 shown as 1
    assert (unit[~queues] == 1.0).all()


def objective(agent: Agent) -> float:
    """Mean reward of the agent's most likely actions in eight episodes that it was not trained on."""
    envs = gym.make_vec(example_support.ENVIRONMENT, num_envs=8, autoreset_mode="Disabled")
    observation, _ = envs.reset(seed=77_000)
    rewards = []
    with torch.no_grad():
        for _ in range(envs.rounds):
            observation, reward, *_ = envs.step(agent(torch.from_numpy(observation)).numpy())
            rewards.append(reward.mean())
    return float(np.mean(rewards))


@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    torch.manual_seed(0)
    args = Args(total_timesteps=12_000, **OPTIONS)
    envs = gym.make_vec(
        example_support.ENVIRONMENT, num_envs=16, reward=args.reward, autoreset_mode="SameStep"
    )
    agent = Agent(envs)
    before = objective(agent)
    with SummaryWriter(str(tmp_path)) as writer:
        train(args, envs, agent, writer)
    assert objective(agent) > before + 0.05 * abs(before)
