"""RecurrentPPO of sb3-contrib as a cluster policy: one network with a memory, shared by all clusters.

    pip install -e ".[examples]"
    python examples/recurrent_ppo.py                        # scenario small-stale, a few minutes on one core
    python examples/recurrent_ppo.py --scenario large-stale --steps 32768 --seed 1 --out runs/stale/1
    python examples/recurrent_ppo.py --scenario large-stale --runs runs/stale/*   # compares saved runs
    python examples/recurrent_ppo.py --help

A memory can help where the observation does not show all that matters: gains that are known late, devices
whose reliability nobody is told. ``ClusterRows`` presents E environments of N clusters as E N environments of
one cluster each. A row is rewarded by its cluster's difference reward, so the library's own
``MlpLstmPolicy`` becomes a policy for any cluster. ``ClusterMemory`` plays it: it splits an observation into
the same rows and has a state for each. ``PolicyScheduler`` hands the states from round to round and clears
them at every reset. The run keeps the version that is best on validation episodes, and ends with a table:
DSSRA, RecurrentPPO, and the same weights with the state wiped before every round.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
import tyro
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.vec_env import VecEnvWrapper

import collapipe_env
from collapipe_env import PolicyScheduler, Scenario, load_scenario
from collapipe_env.agents.learned.callbacks import Validation
from collapipe_env.agents.learned.cluster_net import ClusterFeatures
from collapipe_env.agents.learned.validation import Score, Validator
from collapipe_env.envs.observation import FlatObserver
from collapipe_env.envs.sb3 import CollaPipeVecEnv, make_sb3_vec_env
from collapipe_env.evaluation.evaluate import Evaluation
from collapipe_env.simulator.build import action_codec

Floats = npt.NDArray[np.float32]
VALIDATIONS = 20
"""Validations of a training."""


@dataclass(frozen=True)
class Args:
    """Options of the command line."""

    scenario: str = "small-stale"
    """Shipped scenario or YAML file."""
    steps: int = 200_000
    """Rounds of training, all environments together."""
    envs: int = 64
    """Environments that play at once."""
    rollout: int = 16
    """Rounds that each plays between two updates; the memory learns over as many."""
    minibatch: int = 256
    """Rounds in a gradient step, all clusters of each."""
    epochs: int = 8
    """Passes over each rollout."""
    hidden: int = 64
    """Width of the memory, and of the layer behind it."""
    validation_episodes: int = 16
    """Episodes on which versions are compared during training."""
    episodes: int = 10
    """Held-out episodes at the end."""
    against: tuple[str, ...] = ("dssra",)
    """Schedulers that play the same held-out episodes."""
    seed: int = 0
    """Governs weights, exploration and training episodes."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/examples/recurrent_ppo")
    """Folder for weights, validations and TensorBoard curves."""
    runs: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FOLDER ...")] = ()
    """Folders of saved runs to compare instead of training."""


class Rows:
    """Splits observations into a row for each cluster: its features, and their mean over all clusters."""

    def __init__(self, scenario: Scenario) -> None:
        builder = FlatObserver(scenario)
        self.observation_space = builder.space()
        self.clusters, self.entries = scenario.clusters, action_codec(scenario).cluster_entries
        self._features = ClusterFeatures(builder.space(), builder.layout, scenario, backlog_unit=4.0)
        self.width = 2 * self._features.features_dim

    def __call__(self, observation: Any) -> Floats:
        """Rows (E N, 2 F) of observations (E, D)."""
        rows = self._features(torch.as_tensor(observation)).numpy()
        pool = np.broadcast_to(rows.mean(axis=1, keepdims=True), rows.shape)
        return np.concatenate((rows, pool), axis=-1).reshape(-1, self.width)


class ClusterRows(VecEnvWrapper):
    """E environments of N clusters as E N environments of one cluster each.

    A row's reward is its cluster's difference reward.

    Args:
        venv: The environments.
    """

    def __init__(self, venv: CollaPipeVecEnv) -> None:
        self.rows = Rows(venv.env.scenario)
        box = spaces.Box(-np.inf, np.inf, (self.rows.width,), np.float32)
        super().__init__(venv, box, spaces.Box(-1.0, 1.0, (self.rows.entries,), np.float32))
        self.num_envs = venv.num_envs * self.rows.clusters

    def reset(self) -> Floats:
        """Start new episodes."""
        return self.rows(self.venv.reset())

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Store the entries (E N, 2K + 3) of the next step."""
        self.venv.step_async(actions.reshape(self.venv.num_envs, -1))

    def step_wait(self) -> Any:
        """Play one round in every environment."""
        assert isinstance(self.venv, CollaPipeVecEnv)
        observation, _, done, infos = self.venv.step_wait()
        N = self.rows.clusters
        credited = self.venv.cluster_rewards().ravel()
        told: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for env in np.flatnonzero(done):
            last = self.rows(infos[env]["terminal_observation"][None])
            for cluster in range(N):
                told[env * N + cluster] = {
                    "TimeLimit.truncated": infos[env]["TimeLimit.truncated"],
                    "terminal_observation": last[cluster],
                }
            told[env * N]["episode"] = infos[env]["episode"]
        return self.rows(observation), credited, np.repeat(done, N), told


class ClusterMemory:
    """Plays a model of :class:`ClusterRows`, with a state for each cluster.

    Args:
        scenario: The scenario to schedule.
        forgetful: Whether states are wiped before every round.
    """

    def __init__(self, model: RecurrentPPO, scenario: Scenario, *, forgetful: bool = False) -> None:
        self.policy, self._rows, self._forgetful = model.policy, Rows(scenario), forgetful
        self.observation_space = self._rows.observation_space

    def predict(
        self, observation: Floats, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Floats, Any]:
        """Actions (E, N (2K + 3)) for observations (E, D), and the states of all clusters."""
        begins = np.ones(len(observation), np.bool_) if self._forgetful else episode_start
        starts = np.repeat(begins, self._rows.clusters)
        action, state = self.policy.predict(self._rows(observation), state, starts, deterministic)
        return action.reshape(len(observation), -1), state


class Validated(PolicyScheduler):
    """The same, as a policy that keeps its state for itself."""

    def predict(self, observation: Floats, *, deterministic: bool = True) -> tuple[Floats, None]:
        """Most likely actions for observations (E, D)."""
        assert deterministic
        return self.act(observation, None), None  # type: ignore[arg-type]


def trained(args: Args, scenario: Scenario) -> None:
    """Train a policy, and keep the version that is best on validation episodes in ``best.zip``."""
    env = ClusterRows(make_sb3_vec_env(scenario, args.envs, learner="surrogate"))
    N = scenario.clusters
    rate = min(0.016 / N, 0.003)
    network = {"net_arch": [args.hidden], "log_std_init": -1.0, "lstm_hidden_size": args.hidden}
    model = RecurrentPPO(
        "MlpLstmPolicy",
        env,
        learning_rate=lambda remaining: rate * remaining,
        n_steps=args.rollout,
        batch_size=args.minibatch * N,
        n_epochs=args.epochs,
        gamma=0.0,  # the default reward is the exact drift, which charges for later queues already
        policy_kwargs={**network, "enable_critic_lstm": False},
        seed=args.seed,
        device="cpu",
        tensorboard_log=str(args.out / "tensorboard"),
    )
    validator = Validator(scenario, args.validation_episodes)
    history: list[Score] = []

    def validate(model: RecurrentPPO, steps: int, seconds: float) -> Score:
        return validator(Validated(ClusterMemory(model, scenario)), steps // N, seconds)

    def keep(score: Score) -> None:
        better = all(score.better_than(other) for other in history)
        history.append(score)
        if better:
            model.save(args.out / "best.zip")
        print(
            f"{score.steps:>10,} rounds  {score.seconds:5.0f} s   priced delay {score.priced_delay:6.2f} s"
            f"{'   best' if better else ''}",
            flush=True,
        )

    steps = args.steps * N
    validation = Validation(validate, max(steps // VALIDATIONS, 1), 0.0, keep)  # type: ignore[arg-type]
    print(f"training RecurrentPPO on {scenario.name} for {args.steps:,} rounds", flush=True)
    model.learn(steps, validation, progress_bar=sys.stderr.isatty())
    validation.validate()
    text = json.dumps([score.to_dict() for score in history], indent=1)
    (args.out / "validations.json").write_text(text)


def main(args: Args) -> Evaluation:
    """Train a policy and compare it on held-out episodes; or compare saved ones."""
    torch.set_num_threads(1)  # networks this small are fastest in one thread
    scenario = load_scenario(args.scenario)
    if not args.runs:
        args.out.mkdir(parents=True, exist_ok=True)
        trained(args, scenario)
    schedulers: list[Any] = [*args.against]
    for folder in args.runs or (args.out,):
        model = RecurrentPPO.load(folder / "best.zip", device="cpu")
        name = f"RecurrentPPO {folder.name}" if args.runs else "RecurrentPPO"
        wiped = ClusterMemory(model, scenario, forgetful=True)
        schedulers.append(PolicyScheduler(ClusterMemory(model, scenario), name=name))
        schedulers.append(PolicyScheduler(wiped, name=f"{name}, state wiped"))
    result = collapipe_env.evaluate(schedulers, scenario, seeds=args.episodes)
    print(result)
    print(f"weights: {', '.join(str(folder / 'best.zip') for folder in args.runs or (args.out,))}")
    return result


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
