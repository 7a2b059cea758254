"""PPO-Lagrangian: the shortest round delay whose energies keep to a limit on episodes it never saw.

    python examples/ppo_lagrangian.py                      # scenario small, a few minutes on one core
    python examples/ppo_lagrangian.py --limit 0.05         # 5 % above the budgets is allowed
    python examples/ppo_lagrangian.py --help

The reward is minus the delay, and there is one cost for every node (control units and devices): its
energy in the round over its budget, less 1. The mean cost of the worst node must not exceed ``--limit``.
Every node has a multiplier, which a controller with a proportional and an integral part moves: up while
the node uses too much, down while it uses less (the integral part alone is dual ascent). The policy
learns by PPO from ``A_reward - sum_i multiplier_i A_cost_i``.

A limit that holds in training need not hold on new episodes, nor once the policy stops exploring. So the
version that is kept is the fastest one whose most likely actions keep to the limit on *validation* episodes,
by a margin; and whether it holds is then said for *held-out* episodes, which had no say in anything. The run
ends with that table, a plain yes or no, and the path of the weights.

Torch, NumPy, tyro and TensorBoard only, in one file.
"""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import tyro
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import collapipe_env
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.evaluate import Evaluation
from collapipe_env.evaluation.resampling import Estimate, estimate

VALIDATION_SEED = 1_100_000_000
"""First seed of validation episodes; ``collapipe_env.evaluate`` plays others, and training yet others."""

NAME = "PPO-Lagrangian"
"""Its title in the table."""

Costs = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Args:
    """Options of the command line."""

    scenario: str = "small"
    """Shipped scenario or YAML file."""
    limit: float = 0.0
    """Most that the worst node's mean energy may lie above its budget, as a share of the budget."""
    aim: float = 0.015
    """Distance below the limit that the multipliers aim at: an episode's worst node lies above its mean."""
    margin: float = 0.003
    """Distance below the limit that a version has to keep on the validation episodes."""
    steps: int = 800_000
    """Rounds of training, all environments together."""
    envs: int = 64
    """Environments that play at once."""
    rollout: int = 32
    """Rounds that each plays between two updates."""
    epochs: int = 4
    """Passes over each rollout."""
    minibatch: int = 512
    """Rounds in a gradient step."""
    learning_rate: float = 1e-3
    """Adam's step size at the start; it falls to a tenth in a straight line."""
    gamma: float = 0.0
    """Discount. Under fading without memory a round's delay and energies depend on nothing done before."""
    gae_lambda: float = 0.9
    """Decay of generalised advantage estimation."""
    clip_range: float = 0.2
    """Largest change of a probability ratio that is rewarded."""
    log_std: float = -1.0
    """Log of the exploration noise at the start."""
    integral: float = 0.05
    """Step of dual ascent: change of a multiplier for a cost of 1 above the limit in one rollout."""
    proportional: float = 0.5
    """Immediate answer of a multiplier to a cost above the limit."""
    probe_envs: int = 16
    """Episodes before every update in which the costs of the most likely actions are measured."""
    validations: int = 40
    """How often the policy is validated."""
    validation_episodes: int = 64
    """Episodes of a validation."""
    episodes: int = 50
    """Held-out episodes at the end."""
    rounds: int | None = None
    """Rounds of a held-out episode; the scenario's by default."""
    against: tuple[str, ...] = ("dssra", "pipeline")
    """Schedulers that play the same held-out episodes."""
    seed: int = 0
    """Governs weights, exploration and training episodes."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/examples/ppo_lagrangian")
    """Folder for weights and TensorBoard curves."""


class Policy(nn.Module):
    """Gaussian policy around the mean that a network of two hidden layers gives.

    Args:
        observations: Numbers in an observation.
        actions: Numbers in an action.
        log_std: Log of the exploration noise at the start.
    """

    def __init__(self, observations: int, actions: int, log_std: float) -> None:
        super().__init__()
        self.mean = network(observations, actions, last_gain=0.01)
        self.log_std = nn.Parameter(torch.full((actions,), log_std))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Most likely actions (E, A) for observations (E, D): how the policy is played in the end."""
        mean: torch.Tensor = self.mean(observation)
        return mean

    def distribution(self, observation: torch.Tensor) -> torch.distributions.Distribution:
        """Distribution of the actions (E, A) for observations (E, D)."""
        normal = torch.distributions.Normal(self(observation), self.log_std.exp())
        return torch.distributions.Independent(normal, 1)


def network(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    """Network of two hidden layers with orthogonal weights."""
    first, second, last = nn.Linear(inputs, 256), nn.Linear(256, 256), nn.Linear(256, outputs)
    for layer, gain in ((first, 2**0.5), (second, 2**0.5), (last, last_gain)):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)


class Multipliers:
    """One multiplier for every node, moved by a proportional-integral controller.

    Args:
        nodes: How many.
        integral: Step of the integral part, which alone is dual ascent.
        proportional: Weight of the proportional part, which damps the swings of dual ascent.
    """

    def __init__(self, nodes: int, integral: float, proportional: float) -> None:
        self._integral, self._proportional = integral, proportional
        self._sum = np.zeros(nodes)
        self.values = np.zeros(nodes)

    def update(self, excess: Costs) -> None:
        """Move them by each node's mean cost above its limit (nodes,)."""
        self._sum = np.maximum(self._sum + self._integral * excess, 0.0)
        self.values = np.maximum(self._sum + self._proportional * excess, 0.0)


def node_costs(env: CollaPipeVectorEnv) -> Costs:
    """Energy over budget of every node, less the round's allowance (E, nodes); absent ones use none."""
    assert env.last_round is not None
    costs = env.last_round.costs
    above: Costs = np.asarray(costs.energy_ratio) - np.asarray(costs.allowance)[:, None, None]
    return above.reshape(len(above), -1)


class Rollout(NamedTuple):
    """Rounds of training, arrays (T, E, ...): ``signals`` are the reward and then every node's cost."""

    observations: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    signals: torch.Tensor
    values: torch.Tensor
    ends: torch.Tensor
    last_value: torch.Tensor


class Player:
    """Plays the training environments.

    Args:
        args: Options.
        critic: Values of the reward and of every cost.
    """

    def __init__(self, args: Args, policy: Policy, critic: nn.Module) -> None:
        self.env = environment(args.scenario, args.envs, "SameStep")
        self._policy, self._critic, self._length = policy, critic, args.rollout
        self._observation = torch.from_numpy(self.env.reset(seed=args.seed)[0])
        self._probe = environment(args.scenario, args.probe_envs, "Disabled")
        self._probe.reset(seed=args.seed + args.envs)

    @torch.no_grad()
    def play(self) -> Rollout:
        """Play the next rounds with exploration."""
        steps: list[tuple[torch.Tensor, ...]] = []
        for _ in range(self._length):
            distribution = self._policy.distribution(self._observation)
            action = distribution.sample()
            value = self._critic(self._observation)
            observation, reward, _, truncated, _ = self.env.step(action.numpy())
            signals = np.concatenate((reward[:, None], node_costs(self.env)), axis=1)
            steps.append(
                (
                    self._observation,
                    action,
                    distribution.log_prob(action),
                    torch.from_numpy(signals).float(),
                    value,
                    torch.from_numpy(truncated),
                )
            )
            self._observation = torch.from_numpy(observation)
        stacked = [torch.stack(parts) for parts in zip(*steps, strict=True)]
        return Rollout._make([*stacked, self._critic(self._observation)])

    def measure(self) -> Costs:
        """Mean cost of every node (nodes,) under the most likely actions, in new episodes of training."""
        mean: Costs = played(self._policy, self._probe, self._probe.reset()[0]).mean(axis=0)
        return mean


def advantages(rollout: Rollout, gamma: float, gae_lambda: float) -> torch.Tensor:
    """Advantages of the reward and of every cost (T, E, 1 + nodes), by generalised advantage estimation."""
    found = torch.zeros_like(rollout.signals)
    following, value = torch.zeros_like(rollout.last_value), rollout.last_value
    for t in reversed(range(len(found))):
        goes_on = (~rollout.ends[t]).unsqueeze(-1).float()
        error = rollout.signals[t] + gamma * goes_on * value - rollout.values[t]
        following = error + gamma * gae_lambda * goes_on * following
        found[t], value = following, rollout.values[t]
    return found


def environment(scenario: str, envs: int, autoreset_mode: str) -> CollaPipeVectorEnv:
    """Environments whose reward is minus the delay; the surrogate learner changes no delay and no energy."""
    return CollaPipeVectorEnv(
        envs, scenario, learner="surrogate", reward="delay", autoreset_mode=autoreset_mode
    )


@torch.no_grad()
def played(policy: Policy, env: CollaPipeVectorEnv, observation: npt.NDArray[np.float32]) -> Costs:
    """Mean cost of every node in whole episodes of the policy's most likely actions (E, nodes)."""
    costs = []
    for _ in range(env.rounds):
        observation, *_ = env.step(policy(torch.from_numpy(observation)).numpy())
        costs.append(node_costs(env))
    mean: Costs = np.mean(costs, axis=0)
    return mean


class Score(NamedTuple):
    """Result of a validation: mean delay [s], and the worst node's mean cost with its interval."""

    delay: float
    cost: Estimate


def validate(policy: Policy, env: CollaPipeVectorEnv) -> Score:
    """Play the policy's most likely actions on the validation episodes."""
    costs = played(policy, env, env.reset(seed=VALIDATION_SEED)[0])
    delays = [env.summary(row)["mean_delay"] for row in range(env.num_envs)]
    return Score(float(np.mean(delays)), estimate(costs.max(axis=-1).tolist()))


def train(args: Args, writer: SummaryWriter) -> tuple[Policy, Score | None]:
    """Train, and return the version kept, and its validation; ``None`` if no version kept to the limit."""
    torch.manual_seed(args.seed)
    probe = environment(args.scenario, args.validation_episodes, "Disabled")
    observations, actions = (
        int(np.prod(space.shape or ()))
        for space in (probe.single_observation_space, probe.single_action_space)
    )
    probe.reset(seed=VALIDATION_SEED)
    nodes = probe.state.backlog[0].size
    policy = Policy(observations, actions, args.log_std)
    critic = network(observations, 1 + nodes, last_gain=1.0)
    weights = [*policy.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(weights, lr=args.learning_rate, eps=1e-5)
    multipliers = Multipliers(nodes, args.integral, args.proportional)
    player = Player(args, policy, critic)
    batch = args.envs * args.rollout
    updates = max(args.steps // batch, 1)
    every = max(updates // max(args.validations, 1), 1)
    best: Score | None = None
    kept, started = copy.deepcopy(policy), time.perf_counter()
    for update in range(1, updates + 1):
        optimiser.param_groups[0]["lr"] = args.learning_rate * (1.0 - 0.9 * (update - 1) / updates)
        rollout = player.play()
        mean_costs = player.measure()
        multipliers.update(mean_costs - (args.limit - args.aim))
        learn(args, policy, critic, optimiser, rollout, multipliers.values)
        if update % every and update != updates:
            continue
        score = validate(policy, probe)
        fits = score.cost.high <= args.limit - args.margin
        better = fits and (best is None or score.delay < best.delay)
        if better or best is None:
            kept, best = copy.deepcopy(policy), score if better else None
        step = update * batch
        writer.add_scalar("validation/mean_delay_s", score.delay, step)
        writer.add_scalar("validation/worst_cost", score.cost.mean, step)
        writer.add_scalar("training/mean_delay", -float(rollout.signals[..., 0].mean()), step)
        writer.add_scalar("training/worst_cost", mean_costs.max(), step)
        for node, value in enumerate(multipliers.values):
            writer.add_scalar(f"multipliers/{node}", value, step)
        print(
            f"{step:>9,} steps {time.perf_counter() - started:5.0f} s   delay {score.delay:6.3f} s   "
            f"worst node {100 * score.cost.mean:+6.2f} % ({100 * score.cost.low:+.2f} ... "
            f"{100 * score.cost.high:+.2f})   training {100 * mean_costs.max():+6.2f} %   "
            f"{'kept' if better else ''}",
            flush=True,
        )
    return kept, best


def learn(
    args: Args,
    policy: Policy,
    critic: nn.Module,
    optimiser: torch.optim.Optimizer,
    rollout: Rollout,
    multipliers: Costs,
) -> None:
    """Improve policy and critic by a rollout, with the multipliers held."""
    each = advantages(rollout, args.gamma, args.gae_lambda)
    targets = (each + rollout.values).flatten(0, 1)
    price = torch.from_numpy(np.concatenate(([1.0], -multipliers))).float()
    advantage = (each @ price).flatten()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    observations, actions = rollout.observations.flatten(0, 1), rollout.actions.flatten(0, 1)
    before = rollout.log_probs.flatten()
    for _ in range(args.epochs):
        for rows in torch.randperm(len(before)).split(args.minibatch):
            ratio = (policy.distribution(observations[rows]).log_prob(actions[rows]) - before[rows]).exp()
            clipped = ratio.clamp(1.0 - args.clip_range, 1.0 + args.clip_range)
            gain = torch.minimum(ratio * advantage[rows], clipped * advantage[rows]).mean()
            error = (critic(observations[rows]) - targets[rows]).square().mean()
            optimiser.zero_grad()
            (error - gain).backward()
            nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], 0.5)
            optimiser.step()


def report(args: Args, policy: Policy) -> Evaluation:
    """Play held-out episodes, print the table, and say whether the limit held."""
    player = collapipe_env.PolicyScheduler(policy, name=NAME)
    result = collapipe_env.evaluate(
        [*args.against, player], args.scenario, seeds=args.episodes, rounds=args.rounds
    )
    print(f"\n{result.title}; limit of the worst node's mean energy: {100 * args.limit:+.1f} %\n")
    print("| scheduler | round delay (s) | worst node's energy over budget (%) | episodes within the limit |")
    print("|---|---:|---:|---:|")
    for name, episodes in result.episodes.items():
        delay, cost = result[name].delay_mean, result[name].energy_excess
        within = sum(episode.worst_energy_ratio - 1.0 <= args.limit for episode in episodes)
        print(
            f"| {result[name].title} | {delay.mean:.3f} ({delay.low:.3f} ... {delay.high:.3f}) "
            f"| {100 * cost.mean:+.2f} ({100 * cost.low:+.2f} ... {100 * cost.high:+.2f}) "
            f"| {within} of {len(episodes)} |"
        )
    cost, verdict = result[NAME].energy_excess, "HELD" if holds(result, args.limit) else "did NOT hold"
    print(
        f"\n{NAME}: the limit of {100 * args.limit:+.1f} % {verdict} on the held-out episodes: "
        f"{100 * cost.mean:+.2f} %, upper end of the 95 % interval {100 * cost.high:+.2f} %"
    )
    return result


def holds(result: Evaluation, limit: float) -> bool:
    """Whether the whole interval of the worst node's mean cost lies within the limit."""
    cost: Estimate = result[NAME].energy_excess
    return (cost.mean if np.isnan(cost.high) else cost.high) <= limit  # one episode has no interval


def main(args: Args) -> Evaluation:
    """Train, save, evaluate."""
    torch.set_num_threads(1)  # networks this small are fastest in one thread
    args.out.mkdir(parents=True, exist_ok=True)
    with SummaryWriter(str(args.out / "tensorboard")) as writer:
        writer.add_text("options", "\n".join(f"* {name}: {value}" for name, value in asdict(args).items()))
        policy, best = train(args, writer)
    if best is None:
        print(
            "no version kept to the limit on the validation episodes, so the last one plays: try more --steps"
        )
    path = args.out / "policy.pt"
    torch.save(policy.state_dict(), path)
    result = report(args, policy)
    print(f"weights: {path}   curves: tensorboard --logdir {args.out}")
    return result


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
