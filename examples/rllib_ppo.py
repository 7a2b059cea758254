"""PPO of RLlib, with rollouts on several env runners.

    pip install -e . "ray[rllib]>=2.60,<2.61"
    python examples/rllib_ppo.py                            # scenario small, two env runners
    python examples/rllib_ppo.py --env-runners 4 --envs 16
    python examples/rllib_ppo.py --scenario medium --iterations 400
    python examples/rllib_ppo.py --help

RLlib's present interface (RLModule, Learner, env runners) on the single environments: each env runner is a
process of Ray that plays several of them, and the learner updates the network from all. An ``env_creator``
builds the environment, with energy queues magnified, since they matter long before they reach their cap. The
trained module then plays held-out episodes beside DSSRA through ``PolicyScheduler``, and the run ends with
the table and the path of the checkpoint.

Rollouts are seldom what training waits for here: the vector environment of ``collapipe train`` plays tens of
thousands of rounds a second in one process. RLlib pays where its algorithms or its cluster are wanted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
import tyro

import collapipe_env
from collapipe_env import PolicyScheduler
from collapipe_env.envs.wrappers import MagnifiedBacklog
from collapipe_env.evaluation.evaluate import Evaluation, Player

NAME = "PPO (RLlib)"
ENVIRONMENT = "collapipe-magnified"
UNIT = 4.0


@dataclass(frozen=True)
class Args:
    """Options of the command line."""

    scenario: str = "small"
    """Shipped scenario or YAML file."""
    iterations: int = 150
    """Updates, each from a batch of all env runners."""
    env_runners: int = 2
    """Processes that play; with 0 the learner's process plays itself."""
    envs: int = 8
    """Environments in each of them."""
    batch: int = 4_096
    """Rounds of a batch."""
    minibatch: int = 512
    """Rounds in a gradient step."""
    episodes: int = 10
    """Held-out episodes at the end."""
    against: tuple[str, ...] = ("dssra", "pipeline")
    """Schedulers that play the same held-out episodes."""
    seed: int = 0
    """Governs weights, exploration and training episodes."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/examples/rllib_ppo")
    """Folder of the checkpoint."""


def create(config: dict[str, Any]) -> gym.Env[Any, Any]:
    """Return one environment, as an env runner asks for it."""
    env = gym.make("CollaPipeSurrogate-v0", scenario=config["scenario"])
    return MagnifiedBacklog(env, unit=UNIT)


def configuration(args: Args) -> Any:
    """Return RLlib's configuration."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    register_env(ENVIRONMENT, create)
    return (
        PPOConfig()
        .environment(ENVIRONMENT, env_config={"scenario": args.scenario})
        .env_runners(num_env_runners=args.env_runners, num_envs_per_env_runner=args.envs)
        .training(
            lr=[[0, 1e-3], [args.iterations * args.batch, 0.0]],
            gamma=0.0,
            lambda_=0.9,
            train_batch_size_per_learner=args.batch,
            minibatch_size=args.minibatch,
            num_epochs=4,
            vf_clip_param=float("inf"),
            grad_clip=0.5,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[256, 256],
                fcnet_activation="tanh",
                vf_share_layers=False,
                free_log_std=True,
            )
        )
        .debugging(seed=args.seed, log_level="ERROR")
    )


class Decisions:
    """The most likely actions of a trained module.

    Args:
        module: The module, an RLModule on torch.
        env: An environment as it was trained on, which magnifies queues.
    """

    def __init__(self, module: Any, env: MagnifiedBacklog) -> None:
        self._module, self._env = module, env

    def predict(self, observation: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Actions (E, A) for observations (E, D)."""
        with torch.no_grad():
            seen = torch.from_numpy(self._env.observation(observation))
            normal = self._module.forward_inference({"obs": seen})["action_dist_inputs"]
        mean: npt.NDArray[np.float32] = normal.chunk(2, dim=-1)[0].numpy()  # and the logarithm of the width
        return mean


def trained(args: Args) -> Any:
    """Train with RLlib, save a checkpoint, and return the module."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    begun = not ray.is_initialized()
    if begun:
        ray.init(num_cpus=args.env_runners + 1, include_dashboard=False, log_to_driver=False)
    try:
        algorithm = configuration(args).build_algo()
        try:
            for iteration in range(1, args.iterations + 1):
                result = algorithm.train()
                played = result["env_runners"]
                if iteration % 10 == 0 or iteration == args.iterations:
                    mean = played.get("episode_return_mean", float("nan"))
                    rounds = int(result["num_env_steps_sampled_lifetime"])
                    print(f"{rounds:>10,} rounds   mean return {mean:9.2f}", flush=True)
            algorithm.save_to_path(str((args.out / "checkpoint").absolute()))
            return algorithm.get_module().to("cpu").eval()
        finally:
            algorithm.stop()
    finally:
        if begun:
            ray.shutdown()


def main(args: Args) -> Evaluation:
    """Train, save a checkpoint, and compare on held-out episodes."""
    torch.set_num_threads(1)  # networks this small are fastest in one thread
    print(f"training on {args.scenario!r} with {args.env_runners} env runners of {args.envs} environments")
    env = create({"scenario": args.scenario})
    assert isinstance(env, MagnifiedBacklog)
    schedulers: list[Player] = [
        *args.against,
        PolicyScheduler(Decisions(trained(args), env), name=NAME),
    ]
    result = collapipe_env.evaluate(schedulers, args.scenario, seeds=args.episodes)
    print(result)
    print(f"checkpoint: {args.out / 'checkpoint'}")
    return result


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
