"""PPO in one file, in the style of CleanRL, on the native vector environment.

    python examples/cleanrl_ppo.py                 # scenario small, a few minutes on one core
    python examples/cleanrl_ppo.py --env-id CollaPipeSurrogate-Medium-v0
    python examples/cleanrl_ppo.py --help

It needs nothing but torch, Gymnasium, tyro and TensorBoard: copy the file and change what you like. All
environments are one object (``gymnasium.make_vec``), so a step of 64 of them is one call. The run ends
with a table that holds the policy against DSSRA on held-out episodes, and with the path of its weights.

Three lines are the environment's rather than PPO's: energy queues are shown to the networks magnified
(``Agent.unit``), since good schedulers keep them at a small part of the cap that the observation is
scaled by; a truncated episode goes on in the value estimate (``final_obs``); and the discount is 0, since the
default reward charges for the growth of the queues already.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import nn
from torch.distributions import Normal
from torch.utils.tensorboard import SummaryWriter

import collapipe_env
from collapipe_env.evaluation.evaluate import Evaluation


@dataclass
class Args:
    """Options of the command line."""

    env_id: str = "CollaPipeSurrogate-Small-v0"
    """Id of the environment; the surrogate learner is what policies are trained with."""
    reward: str = "lyapunov"
    """Reward to train with: the exact drift plus penalty, the id's own."""
    total_timesteps: int = 600_000
    """Rounds of training, all environments together."""
    learning_rate: float = 1e-3
    """Adam's step size at the start; it falls to 0 in a straight line. More actions need less."""
    num_envs: int = 64
    """Environments that play at once."""
    num_steps: int = 32
    """Rounds that each plays between two updates."""
    minibatch_size: int = 512
    """Rounds in a gradient step."""
    update_epochs: int = 4
    """Passes over each rollout."""
    gamma: float = 0.0
    """Discount per round."""
    gae_lambda: float = 0.9
    """Decay of generalised advantage estimation."""
    clip_coef: float = 0.2
    """Largest change of a probability ratio that is rewarded."""
    ent_coef: float = 0.0
    """Bonus for random policies."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Longer gradients are shortened to this."""
    against: tuple[str, ...] = ("dssra", "pipeline")
    """Schedulers that play the same held-out episodes."""
    seed: int = 1
    """Governs weights, exploration and training episodes."""
    episodes: int = 10
    """Held-out episodes at the end."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/examples/cleanrl_ppo")
    """Folder for weights and TensorBoard curves."""


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Linear layer with orthogonal weights."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """Policy and value, a network of two hidden layers each.

    Args:
        envs: Environments that it is to play.
    """

    unit: torch.Tensor

    def __init__(self, envs: Any) -> None:
        super().__init__()
        observations = int(np.prod(envs.single_observation_space.shape))
        actions = int(np.prod(envs.single_action_space.shape))
        unit = torch.ones(observations)
        for name in ("device_backlog", "cu_backlog"):
            unit[envs.observation_layout[name].slice] = envs.scenario.budgets.backlog_cap / 4.0
        self.register_buffer("unit", unit)
        self.critic = nn.Sequential(
            layer(observations, 256), nn.Tanh(), layer(256, 256), nn.Tanh(), layer(256, 1, 1.0)
        )
        self.actor = nn.Sequential(
            layer(observations, 256), nn.Tanh(), layer(256, 256), nn.Tanh(), layer(256, actions, 0.01)
        )
        self.log_std = nn.Parameter(torch.full((actions,), -1.0))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Most likely actions (E, A) for observations (E, D)."""
        mean: torch.Tensor = self.actor(observation * self.unit)
        return mean

    def distribution(self, observation: torch.Tensor) -> Normal:
        """Distribution of every entry of the actions (E, A)."""
        return Normal(self(observation), self.log_std.exp())

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Discounted return expected from observations (E, D) on, (E,)."""
        value: torch.Tensor = self.critic(observation * self.unit).squeeze(-1)
        return value


def train(args: Args, envs: Any, agent: Agent, writer: SummaryWriter) -> None:
    """Train the agent."""
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    batch_size = args.num_envs * args.num_steps
    iterations = max(args.total_timesteps // batch_size, 1)
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(shape + envs.single_observation_space.shape)
    actions = torch.zeros(shape + envs.single_action_space.shape)
    logprobs, rewards, values, dones = (torch.zeros(shape) for _ in range(4))
    next_obs = torch.from_numpy(envs.reset(seed=args.seed)[0])
    start = time.time()

    for iteration in range(iterations):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1.0 - iteration / iterations)

        # Play.
        delay = 0.0
        for step in range(args.num_steps):
            with torch.no_grad():
                distribution = agent.distribution(next_obs)
                action = distribution.sample()
                values[step] = agent.value(next_obs)
            obs[step], actions[step] = next_obs, action
            logprobs[step] = distribution.log_prob(action).sum(-1)
            observation, reward, terminated, truncated, info = envs.step(action.numpy())
            next_obs = torch.from_numpy(observation)
            rewards[step] = torch.from_numpy(reward)
            dones[step] = torch.from_numpy(terminated | truncated)
            delay += float(info.get("final_info", info)["delay"].mean()) / args.num_steps
            cut = np.flatnonzero(truncated & ~terminated)
            if cut.size:  # the rounds go on beyond the end of the episode: their value counts
                with torch.no_grad():
                    final = agent.value(torch.from_numpy(np.stack(info["final_obs"][cut])))
                rewards[step, cut] += args.gamma * final

        # Advantages.
        advantages = torch.zeros(shape)
        with torch.no_grad():
            next_value, following = agent.value(next_obs), torch.zeros(args.num_envs)
        for step in reversed(range(args.num_steps)):
            goes_on = 1.0 - dones[step]
            error = rewards[step] + args.gamma * goes_on * next_value - values[step]
            following = error + args.gamma * args.gae_lambda * goes_on * following
            advantages[step], next_value = following, values[step]
        returns = (advantages + values).flatten()

        # Learn.
        b_obs, b_actions, b_logprobs = obs.flatten(0, 1), actions.flatten(0, 1), logprobs.flatten()
        b_advantages = advantages.flatten()
        for _ in range(args.update_epochs):
            for rows in torch.randperm(batch_size).split(args.minibatch_size):
                distribution = agent.distribution(b_obs[rows])
                logratio = distribution.log_prob(b_actions[rows]).sum(-1) - b_logprobs[rows]
                ratio = logratio.exp()
                advantage = b_advantages[rows]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1.0 - args.clip_coef, 1.0 + args.clip_coef)
                pg_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
                v_loss = (agent.value(b_obs[rows]) - returns[rows]).square().mean()
                entropy = distribution.entropy().sum(-1).mean()
                loss = pg_loss - args.ent_coef * entropy + args.vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

        global_step = (iteration + 1) * batch_size
        speed = global_step / (time.time() - start)
        with torch.no_grad():
            kl = float((ratio - 1.0 - logratio).mean())
        writer.add_scalar("charts/round_delay_s", delay, global_step)
        writer.add_scalar("charts/reward", float(rewards.mean()), global_step)
        writer.add_scalar("charts/learning_rate", optimizer.param_groups[0]["lr"], global_step)
        writer.add_scalar("charts/SPS", speed, global_step)
        writer.add_scalar("losses/value_loss", v_loss.item(), global_step)
        writer.add_scalar("losses/policy_loss", pg_loss.item(), global_step)
        writer.add_scalar("losses/entropy", entropy.item(), global_step)
        writer.add_scalar("losses/approx_kl", kl, global_step)
        # Episodes that ended in this rollout: every row's last one, with its totals.
        ended = envs.ended_summaries
        if dones.any() and ended:
            writer.add_scalar("episode/mean_delay_s", float(ended["mean_delay"].mean()), global_step)
            writer.add_scalar("episode/worst_energy", float(ended["energy_ratio_max"].mean()), global_step)
        if iteration % max(iterations // 20, 1) == 0 or iteration == iterations - 1:
            print(f"global_step={global_step:>9,}  round delay {delay:7.3f} s  SPS {speed:,.0f}", flush=True)


def main(args: Args) -> Evaluation:
    """Train, save, evaluate."""
    torch.set_num_threads(1)  # networks this small are fastest in one thread
    torch.manual_seed(args.seed)
    envs: Any = gym.make_vec(
        args.env_id, num_envs=args.num_envs, reward=args.reward, autoreset_mode="SameStep"
    )
    agent = Agent(envs)
    with SummaryWriter(str(args.out / "tensorboard")) as writer:
        writer.add_text("options", "\n".join(f"* {name}: {value}" for name, value in asdict(args).items()))
        train(args, envs, agent, writer)
    torch.save(agent.state_dict(), args.out / "agent.pt")
    trained = collapipe_env.PolicyScheduler(agent, name="PPO (one file)")
    result = collapipe_env.evaluate([*args.against, trained], envs.scenario, seeds=args.episodes)
    print(result)
    print(f"weights: {args.out / 'agent.pt'}   curves: tensorboard --logdir {args.out}")
    envs.close()
    return result


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
