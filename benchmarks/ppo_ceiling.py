"""PPO's training time on the environment beside Stable-Baselines3's own ceiling.

The ceiling is the same PPO on an environment that does nothing: same spaces, stored observations and rewards,
episodes of the same length, empty information. Both train in turns, a few rollouts each, in one process with
one thread. Two settings: the package's own hyper-parameters, and Stable-Baselines3's best case, where one
minibatch holds a whole rollout::

    python benchmarks/ppo_ceiling.py
    python benchmarks/ppo_ceiling.py --scenario small --num-envs 256 --minibatch 512

Time splits into the update and the collection of rollouts, and the collection into the environment's steps
and the rest: the policy, copies, and the values of the last observations of truncated episodes. Those
Stable-Baselines3 computes one by one, and the ceiling does without; a second ceiling, whose episodes are
truncated as ours are, shows what they take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from measuring import (
    RESULTS,
    Contestant,
    Figure,
    Timing,
    check_slices,
    figure_table,
    ratio_figure,
    take_turns,
    write_figures,
)
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure

from collapipe_env.agents.learned.hyperparameters import PPOParameters
from collapipe_env.agents.learned.models import build_model
from collapipe_env.envs.sb3 import CollaPipeVecEnv, StepReturn, make_sb3_vec_env
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import ScenarioError
from collapipe_env.scenario import load_scenario

GOAL = 1.15
"""Most that training may take of the ceiling's time."""
STORE = 16
PARTS = ("training", "update", "collection", "environment")


class TimedEnv(CollaPipeVecEnv):
    """The adapter, with a clock.

    Attributes:
        seconds: Time spent in steps so far.
    """

    def __init__(self, env: CollaPipeVectorEnv) -> None:
        super().__init__(env)
        self.seconds = 0.0

    def step_wait(self) -> StepReturn:
        """Play one round."""
        start = time.perf_counter()
        result = self.play()
        self.seconds += time.perf_counter() - start
        return result

    def play(self) -> StepReturn:
        """What is timed."""
        return super().step_wait()


class DoNothing(TimedEnv):
    """An environment that takes no time: it repeats stored observations, rewards and ends.

    Args:
        env: Gives spaces and episode length.
        truncated: Whether the information at an episode's end says that it was truncated; empty otherwise.
    """

    def __init__(self, env: CollaPipeVectorEnv, truncated: bool = False) -> None:
        super().__init__(env)
        rng = np.random.default_rng(0)
        env.observation_space.seed(0)
        self._observations = [env.observation_space.sample() for _ in range(STORE)]
        self._rewards = [rng.normal(-1.0, 0.1, env.num_envs).astype(np.float32) for _ in range(STORE)]
        self._ends = [np.full(env.num_envs, end) for end in (False, True)]
        self._infos: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]
        self._last_infos = [
            {"TimeLimit.truncated": True, "terminal_observation": row} if truncated else {}
            for row in self._observations[0]
        ]
        self._rounds = env.scenario.dynamics.rounds
        self._steps = 0

    def reset(self) -> npt.NDArray[np.float32]:
        """The first observation."""
        super().reset()
        first: npt.NDArray[np.float32] = self._observations[0]
        return first

    def play(self) -> StepReturn:
        """The next stored arrays."""
        self._steps += 1
        place = self._steps % STORE
        if self._steps % self._rounds:
            return self._observations[place], self._rewards[place], self._ends[0], self._infos
        # The algorithm adds the values of truncated episodes to the rewards, hence the copy.
        return self._observations[place], self._rewards[place].copy(), self._ends[1], self._last_infos


class CollectionClock(BaseCallback):
    """Times the collection of rollouts.

    Attributes:
        seconds: Time spent so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._start = 0.0

    def _on_rollout_start(self) -> None:
        self._start = time.perf_counter()

    def _on_rollout_end(self) -> None:
        self.seconds += time.perf_counter() - self._start

    def _on_step(self) -> bool:
        return True


@dataclass(frozen=True)
class Slice:
    """Seconds of one slice: of training in all, and of its parts, the update being what is left."""

    transitions: int
    training: float
    collection: float
    environment: float

    @property
    def update(self) -> float:
        """Time of the gradient steps."""
        return self.training - self.collection


class Training:
    """PPO with the package's hyper-parameters on one of the environments.

    Args:
        name: Row of the table.
        parameters: The hyper-parameters.
        env: What to train on.

    Attributes:
        slices: What was measured, one entry a call of :meth:`play`.
    """

    def __init__(self, name: str, parameters: PPOParameters, env: TimedEnv) -> None:
        self.name = name
        self.slices: list[Slice] = []
        self._env, self._clock = env, CollectionClock()
        self._model = build_model(parameters, env, seed=0)
        self._model.set_logger(configure(None, []))
        self.transitions = parameters.rollout_steps * env.num_envs

    def play(self, calls: int) -> None:
        """Collect a number of rollouts and learn from each."""
        before = (self._clock.seconds, self._env.seconds)
        start = time.perf_counter()
        self._model.learn(calls * self.transitions, self._clock, reset_num_timesteps=False)
        spent = time.perf_counter() - start
        collection, environment = self._clock.seconds - before[0], self._env.seconds - before[1]
        self.slices.append(Slice(calls * self.transitions, spent, collection, environment))

    def timing(self, part: str, repeats: int) -> Timing:
        """Seconds per transition of one part, over the last slices."""
        seconds = tuple(getattr(s, part) / s.transitions for s in self.slices[-repeats:])
        return Timing(self.name, self.transitions, seconds)


def compared(
    title: str, ours: Training, ceiling: Training, truncating: Training, repeats: int
) -> list[Figure]:
    """The figures of one setting: training with its goal, then where the time goes.

    Args:
        title: Begins the names of the figures.
        ours: Training on our environment.
        ceiling: Training on the one that does nothing.
        truncating: The same with truncated episodes.
        repeats: Slices to look at, the last ones.
    """
    mine = {part: ours.timing(part, repeats) for part in PARTS}
    theirs = {part: ceiling.timing(part, repeats) for part in PARTS}
    rates = [f"{1.0 / timings['training'].median:,.0f}" for timings in (mine, theirs)]
    whole = mine["training"]
    found = [
        replace(
            ratio_figure(f"{title}, training", whole, theirs["training"], GOAL),
            note=f"{rates[0]} transitions/s, ceiling {rates[1]}",
        )
    ]
    for part in ("update", "collection"):
        rate = f"{1.0 / mine[part].median:,.0f} transitions/s"
        found.append(replace(ratio_figure(f"{title}, {part}", mine[part], theirs[part]), note=rate))
    other = truncating.timing("training", repeats)
    found.append(ratio_figure(f"{title}, training beside truncated episodes", whole, other))
    for part in PARTS[1:]:
        share, low, high = mine[part].ratio_to(whole)
        note = f"{1e6 * mine[part].median:.2f} us, ceiling {1e6 * theirs[part].median:.2f} us a transition"
        found.append(Figure(f"{title}, share of the {part}", share, "of training", low, high, note=note))
    return found


def figures(
    scenario: str = "medium",
    num_envs: int = 64,
    minibatches: Sequence[int] = (PPOParameters.minibatch, 2048),
    slice_seconds: float = 0.6,
    repeats: int = 7,
) -> list[Figure]:
    """Measure.

    Args:
        scenario: Name or path.
        num_envs: Environments that play at once.
        minibatches: Transitions per gradient step, each a setting of its own.
        slice_seconds: Length of a slice; at least one rollout is played.
        repeats: Slices of each contestant.

    Returns:
        For each setting the time of training over the ceiling's, with the goal, and its parts.
    """
    truncating = partial(DoNothing, truncated=True)
    kinds: tuple[tuple[str, Callable[[CollaPipeVectorEnv], TimedEnv]], ...]
    kinds = (("ours", TimedEnv), ("ceiling", DoNothing), ("truncating ceiling", truncating))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found: list[Figure] = []
    try:
        for minibatch in dict.fromkeys(minibatches):
            parameters = PPOParameters(minibatch=minibatch)
            runs = [
                Training(
                    name, parameters, kind(make_sb3_vec_env(scenario, num_envs, learner="surrogate").env)
                )
                for name, kind in kinds
            ]
            take_turns([Contestant(r.name, r.transitions, r.play) for r in runs], slice_seconds, repeats)
            title = f"PPO on {scenario} x {num_envs}, minibatch {minibatch:,}"
            found += compared(title, runs[0], runs[1], runs[2], repeats)
    finally:
        torch.set_num_threads(threads)
    return found


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenario", default="medium", metavar="NAME", help="what to train on")
    parser.add_argument("--num-envs", type=int, default=64, metavar="E", help="environments at once")
    usual = [PPOParameters.minibatch, 2048]
    text = f"transitions per gradient step, each a setting (default: {usual})"
    parser.add_argument("--minibatch", nargs="+", type=int, default=usual, metavar="B", help=text)
    parser.add_argument("--slice-seconds", type=float, default=0.6, metavar="S", help="length of a slice")
    parser.add_argument("--repeats", type=int, default=7, metavar="R", help="slices of each")
    output = RESULTS / "ppo_ceiling.json"
    parser.add_argument("--output", type=Path, default=output, metavar="FILE", help="JSON file to write")
    options = parser.parse_args(arguments)
    try:
        load_scenario(options.scenario)
    except ScenarioError as error:
        parser.error(f"--scenario: {error}")
    if options.num_envs < 1:
        parser.error(f"--num-envs: {options.num_envs} must be at least 1")
    if any(size < 2 for size in options.minibatch):
        parser.error(f"--minibatch: {options.minibatch} must be at least 2 each")
    check_slices(parser, options)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and store it."""
    options = parse_arguments(arguments)
    found = figures(
        options.scenario, options.num_envs, options.minibatch, options.slice_seconds, options.repeats
    )
    print(figure_table(found))
    stored = {name: value for name, value in vars(options).items() if name != "output"}
    what = "PPO's time over that on an environment that does nothing, medians over interleaved slices"
    write_figures(options.output, what, found, stored)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
