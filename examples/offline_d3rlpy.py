"""Offline learning with d3rlpy from data sets of Minari: no round is played until the table at the end.

    pip install -e ".[minari]" structlog colorama dataclasses-json
    pip install --no-deps d3rlpy gym gym-notices
    python tools/make_minari_sets.py --scenarios small
    python examples/offline_d3rlpy.py                                   # imitates DSSRA, minutes on one core
    python examples/offline_d3rlpy.py --algorithm iql --sets dssra random
    python examples/offline_d3rlpy.py --algorithm td3_bc
    python examples/offline_d3rlpy.py --help

Behaviour cloning (bc) copies the actions of a set. Implicit Q-learning (iql) and TD3+BC (td3_bc) also
read its rewards, so that they can tell good rounds from bad ones in a set that holds both. The run ends
with a table on held-out episodes that neither the sets nor any training have seen, and the path of the
weights.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro

import collapipe_env
from collapipe_env import PolicyScheduler
from collapipe_env.evaluation.evaluate import Evaluation


@dataclass(frozen=True)
class Args:
    """Options of the command line."""

    algorithm: Literal["bc", "iql", "td3_bc"] = "bc"
    """How to learn: behaviour cloning, implicit Q-learning, or TD3 with behaviour cloning."""
    data: Path = Path("runs/minari")
    """Folder of the sets, as tools/make_minari_sets.py writes them."""
    scenario: str = "small"
    """Scenario of the sets and of the held-out episodes."""
    sets: tuple[str, ...] = ("dssra",)
    """Schedulers whose sets are learned from, all together."""
    steps: int = 20_000
    """Gradient steps."""
    minibatch: int = 256
    """Rounds in a gradient step."""
    learning_rate: float = 1e-3
    """Size of the gradient steps of the policy."""
    hidden: int = 256
    """Width of the two hidden layers."""
    discount: float = 0.9
    """Discount of later rewards, where they are read."""
    episodes: int = 10
    """Held-out episodes at the end."""
    rounds: int | None = None
    """Rounds of each; by default the scenario's."""
    against: tuple[str, ...] = ("dssra", "random")
    """Schedulers that play the same held-out episodes."""
    seed: int = 0
    """Seed of weights and minibatches."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/examples/offline_d3rlpy")
    """Folder of the weights."""


def load(args: Args) -> Any:
    """Read the sets into d3rlpy's form."""
    os.environ["MINARI_DATASETS_PATH"] = str(args.data.resolve())
    import minari
    from d3rlpy.constants import ActionSpace
    from d3rlpy.dataset import MDPDataset

    episodes = [
        episode
        for name in args.sets
        for episode in minari.load_dataset(f"collapipe/{args.scenario}/{name}-v0").iterate_episodes()
    ]

    rounds = sum(len(episode.rewards) for episode in episodes)

    def joined(parts: list[Any]) -> Any:
        return np.concatenate(parts).astype(np.float32)

    print(f"{len(episodes)} episodes, {rounds:,} rounds, of {', '.join(args.sets)}")
    return MDPDataset(
        # Minari keeps the observation after the last round, too; d3rlpy bootstraps without it.
        observations=joined([episode.observations[:-1] for episode in episodes]),
        actions=joined([episode.actions for episode in episodes]),
        rewards=joined([episode.rewards for episode in episodes]),
        terminals=joined([episode.terminations for episode in episodes]),
        timeouts=joined([episode.truncations for episode in episodes]),
        action_space=ActionSpace.CONTINUOUS,
    )


def build(args: Args) -> Any:
    """Build d3rlpy's algorithm."""
    from d3rlpy.algos import BCConfig, IQLConfig, TD3PlusBCConfig
    from d3rlpy.models.encoders import VectorEncoderFactory
    from d3rlpy.preprocessing import StandardObservationScaler

    common: dict[str, Any] = {
        "batch_size": args.minibatch,
        # Queues of good schedulers are a small part of the observation's range: this magnifies them.
        "observation_scaler": StandardObservationScaler(),
    }
    encoder = VectorEncoderFactory([args.hidden, args.hidden])
    if args.algorithm == "bc":
        config = BCConfig(learning_rate=args.learning_rate, encoder_factory=encoder, **common)
    else:
        kind = IQLConfig if args.algorithm == "iql" else TD3PlusBCConfig
        config = kind(
            gamma=args.discount,
            actor_learning_rate=args.learning_rate,
            actor_encoder_factory=encoder,
            critic_encoder_factory=encoder,
            **common,
        )
    return config.create(device="cpu")


def main(args: Args) -> Evaluation:
    """Learn from the sets, and play what was learned on held-out episodes."""
    import d3rlpy
    from d3rlpy.logging import NoopAdapterFactory

    torch.set_num_threads(1)
    d3rlpy.seed(args.seed)
    dataset, algorithm = load(args), build(args)
    algorithm.fit(
        dataset,
        n_steps=args.steps,
        n_steps_per_epoch=min(args.steps, 2_000),
        logger_adapter=NoopAdapterFactory(),
    )
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{args.algorithm}.pt"
    algorithm.save_model(str(path))
    name = f"{args.algorithm.upper()} from {' and '.join(args.sets)}"
    learned = PolicyScheduler(algorithm, name=name)
    result = collapipe_env.evaluate(
        [*args.against, learned], args.scenario, seeds=args.episodes, rounds=args.rounds
    )
    print(result)
    print(f"weights: {path}")
    return result


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
