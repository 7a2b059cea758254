"""RecurrentPPO of sb3-contrib under fading with a memory, played with its state.

    pip install -e ".[examples]"
    python examples/recurrent_ppo.py                        # scenario small, some minutes on one core
    python examples/recurrent_ppo.py --fading-correlation 0
    python examples/recurrent_ppo.py --help

With ``radio.fading_correlation`` the gains of a round resemble those of the round before. The observation
holds the gains of the round to come, so a policy without a memory lacks little here: expect no miracle
from the recurrent one. The point is how such a policy is trained on the vector environment and played by
``PolicyScheduler``, which hands its state from round to round and clears it at every reset. The run ends
with a table: DSSRA, PPO with the same steps, RecurrentPPO, and the same weights with the state wiped
before every round, which shows what the state is worth to this policy. Then come the paths of the
weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import tyro
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO

import collapipe_env
from collapipe_env import PolicyScheduler
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.evaluation.evaluate import Evaluation, Player

Model = TypeVar("Model", PPO, RecurrentPPO)


@dataclass(frozen=True)
class Args:
    """Options of the command line."""

    scenario: str = "small"
    """Shipped scenario or YAML file that the example is based on."""
    fading_correlation: float = 0.9
    """Correlation of the fading between two rounds, from 0 to below 1."""
    steps: int = 200_000
    """Rounds of training for each of the two policies, all environments together."""
    envs: int = 64
    """Environments that play at once."""
    rollout: int = 32
    """Rounds that each plays between two updates."""
    minibatch: int = 512
    """Rounds in a gradient step."""
    hidden: int = 128
    """Width of the memory."""
    episodes: int = 10
    """Held-out episodes at the end."""
    against: tuple[str, ...] = ("dssra",)
    """Schedulers that play the same held-out episodes."""
    seed: int = 0
    """Governs weights, exploration and training episodes."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/examples/recurrent_ppo")
    """Folder for weights and TensorBoard curves."""


class Forgetful:
    """A recurrent policy whose state is wiped before every round.

    Args:
        model: The model.
    """

    def __init__(self, model: RecurrentPPO) -> None:
        self._model = model

    def predict(self, observation: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Actions (E, A) for observations (E, D), each as if its episode began there."""
        starts = np.ones(len(observation), dtype=np.bool_)
        action, _ = self._model.predict(observation, episode_start=starts, deterministic=True)
        return action


def trained(args: Args, scenario: dict[str, Any], kind: type[Model]) -> Model:
    """Train a model of one of the two kinds, and save it."""
    env = make_sb3_vec_env(
        scenario, args.envs, seed=args.seed, learner="surrogate", reward="drift_plus_penalty"
    )
    options: dict[str, Any] = {
        "learning_rate": lambda remaining: 1e-3 * remaining,
        "n_steps": args.rollout,
        "batch_size": args.minibatch,
        "n_epochs": 4,
        "gamma": 0.9,
        "gae_lambda": 0.9,
        "seed": args.seed,
        "device": "cpu",
        "tensorboard_log": str(args.out / "tensorboard"),
    }
    network: dict[str, Any] = {"net_arch": [256, 256], "log_std_init": -1.0}
    if kind is RecurrentPPO:
        network["net_arch"] = [256]
        network |= {"lstm_hidden_size": args.hidden, "enable_critic_lstm": False, "shared_lstm": True}
    policy = "MlpLstmPolicy" if kind is RecurrentPPO else "MlpPolicy"
    model = kind(policy, env, policy_kwargs=network, **options)
    print(f"training {kind.__name__} for {args.steps:,} rounds", flush=True)
    model.learn(args.steps, tb_log_name=kind.__name__)
    model.save(args.out / kind.__name__)
    return model


def main(args: Args) -> Evaluation:
    """Train both policies, save them, and compare them on held-out episodes."""
    torch.set_num_threads(1)  # networks this small are fastest in one thread
    scenario = {"base": args.scenario, "radio": {"fading_correlation": args.fading_correlation}}
    plain, recurrent = trained(args, scenario, PPO), trained(args, scenario, RecurrentPPO)
    schedulers: list[Player] = [
        *args.against,
        PolicyScheduler(plain, name="PPO"),
        PolicyScheduler(recurrent, name="RecurrentPPO"),
        PolicyScheduler(Forgetful(recurrent), name="RecurrentPPO, state wiped"),
    ]
    result = collapipe_env.evaluate(schedulers, scenario, seeds=args.episodes)
    print(result)
    print(f"weights: {args.out / 'PPO.zip'}, {args.out / 'RecurrentPPO.zip'}")
    return result


if __name__ == "__main__":
    main(tyro.cli(Args))
