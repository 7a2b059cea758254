"""Step rates under Stable-Baselines3: the native adapter, DummyVecEnv and SubprocVecEnv, side by side.

Each plays the surrogate with stored actions. DummyVecEnv and SubprocVecEnv hold bare environments, without
the wrappers that ``make_vec_env`` puts around each, so this is the best that they can do. Of the adapter
also: what it adds to the native vector environment, what full information costs, and how long PPO's whole
collection of rollouts takes beside the steps alone. Times count per environment and step and are given in
single steps of CartPole::

    python benchmarks/sb3_adapters.py
    python benchmarks/sb3_adapters.py --scenarios medium --subproc --slice-seconds 0.5
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
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
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from collapipe_env.agents.learned.hyperparameters import PPOParameters
from collapipe_env.agents.learned.models import build_model
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import CollaPipeVecEnv, make_sb3_vec_env
from collapipe_env.errors import ScenarioError
from collapipe_env.scenario import load_scenario

YARDSTICK = "CartPole-v1"
ACTIONS_IN_STORE = 16


def cartpole() -> Contestant:
    """The yardstick: a single CartPole as ``gymnasium.make`` gives it, without the checking wrapper."""
    env = gym.make(YARDSTICK, disable_env_checker=True)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(ACTIONS_IN_STORE)]
    env.reset(seed=0)

    def play(calls: int) -> None:
        for i in range(calls):
            _, _, terminated, truncated, _ = env.step(actions[i % ACTIONS_IN_STORE])
            if terminated or truncated:
                env.reset()

    return Contestant(YARDSTICK, 1, play)


def stepping(name: str, step: Callable[[Any], Any], space: gym.Space[Any], num_envs: int) -> Contestant:
    """Plays stored actions; the environment has been reset."""
    space.seed(0)
    actions = [space.sample() for _ in range(ACTIONS_IN_STORE)]

    def play(calls: int) -> None:
        for i in range(calls):
            step(actions[i % ACTIONS_IN_STORE])

    return Contestant(name, num_envs, play)


def vec_env(name: str, env: VecEnv) -> Contestant:
    """Steps an environment of Stable-Baselines3."""
    env.seed(0)
    env.reset()
    space = gym.vector.utils.batch_space(env.action_space, env.num_envs)
    return stepping(name, env.step, space, env.num_envs)


def native(name: str, scenario: str, num_envs: int) -> Contestant:
    """Steps the vector environment without the adapter."""
    env = make_sb3_vec_env(scenario, num_envs, learner="surrogate").env
    env.reset(seed=0)
    return stepping(name, env.step, env.action_space, num_envs)


def rollouts(name: str, env: CollaPipeVecEnv) -> Contestant:
    """Collects PPO's rollouts with the package's own hyper-parameters, and learns nothing from them."""
    parameters = PPOParameters()
    model = build_model(parameters, env, seed=0)
    model.set_logger(configure(None, []))
    setattr(model, "train", lambda: None)  # noqa: B010 - a method of the class
    transitions = parameters.rollout_steps * env.num_envs

    def play(calls: int) -> None:
        model.learn(calls * transitions, reset_num_timesteps=False)

    return Contestant(name, transitions, play)


def contestants(
    scenario: str, adapter: Sequence[int], dummy: Sequence[int], subproc: Sequence[int], stack: ExitStack
) -> Iterator[Contestant]:
    """All contestants of one scenario.

    Args:
        scenario: Name or path.
        adapter: Sizes of the adapter's runs.
        dummy: Sizes of DummyVecEnv's runs.
        subproc: Sizes of SubprocVecEnv's runs, one process an environment.
        stack: Closes what needs closing.
    """
    single = partial(CollaPipeEnv, scenario, "surrogate")
    build = partial(make_sb3_vec_env, scenario, learner="surrogate")
    for size in dict.fromkeys(adapter):
        yield native(f"{scenario}, native x {size}", scenario, size)
        yield vec_env(f"{scenario}, adapter x {size}", build(size))
        yield vec_env(f"{scenario}, adapter with full info x {size}", build(size, info="full"))
        yield rollouts(f"{scenario}, rollouts through the adapter x {size}", build(size))
    for size in dict.fromkeys(dummy):
        yield vec_env(f"{scenario}, DummyVecEnv x {size}", DummyVecEnv([single] * size))
    for size in dict.fromkeys(subproc):
        env = SubprocVecEnv([single] * size)
        stack.callback(env.close)
        yield vec_env(f"{scenario}, SubprocVecEnv x {size}", env)


def compared(scenario: str, adapter: Sequence[int], timings: dict[str, Timing]) -> list[Figure]:
    """The figures of one scenario."""
    cart = timings[YARDSTICK]
    found = [
        replace(ratio_figure(name, timing, cart), note=f"{1.0 / timing.median:,.0f} steps/s")
        for name, timing in timings.items()
        if name != YARDSTICK
    ]
    for size in dict.fromkeys(adapter):
        ours, bare = timings[f"{scenario}, adapter x {size}"], timings[f"{scenario}, native x {size}"]
        whole = timings[f"{scenario}, rollouts through the adapter x {size}"]
        for what, timing, yardstick in (("adapter", ours, bare), ("rollouts", whole, ours)):
            ratio = ratio_figure(f"{scenario}, {what} over the steps alone x {size}", timing, yardstick)
            found.append(replace(ratio, unit="x " + yardstick.name.split(", ")[1]))
    return found


def figures(
    scenarios: Sequence[str] = ("small", "medium"),
    adapter: Sequence[int] = (8, 64, 256),
    dummy: Sequence[int] = (8, 64),
    subproc: Sequence[int] = (2, 8),
    slice_seconds: float = 0.25,
    repeats: int = 7,
) -> list[Figure]:
    """Measure.

    Args:
        scenarios: Names or paths.
        adapter: Sizes of the adapter's runs.
        dummy: Sizes of DummyVecEnv's runs.
        subproc: Sizes of SubprocVecEnv's runs.
        slice_seconds: Length of a slice.
        repeats: Slices of each contestant.

    Returns:
        Times per environment and step in steps of CartPole, then what the adapter and the collection of
        rollouts add.
    """
    if "forkserver" in multiprocessing.get_all_start_methods():
        # The libraries are read once, by the process that the workers are forked from.
        multiprocessing.set_forkserver_preload([DummyVecEnv.__module__, CollaPipeEnv.__module__])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found: list[Figure] = []
    try:
        for scenario in dict.fromkeys(scenarios):
            with ExitStack() as stack:
                all_of_them = [cartpole(), *contestants(scenario, adapter, dummy, subproc, stack)]
                found += compared(scenario, adapter, take_turns(all_of_them, slice_seconds, repeats))
    finally:
        torch.set_num_threads(threads)
    return found


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenarios", nargs="+", default=["small", "medium"], metavar="NAME")
    sizes: tuple[tuple[str, list[int]], ...] = (
        ("adapter", [8, 64, 256]),
        ("dummy", [8, 64]),
        ("subproc", [2, 8]),
    )
    for name, default in sizes:
        text = f"sizes of the {name} runs (default: {default})"
        parser.add_argument(f"--{name}", nargs="*", type=int, default=default, metavar="E", help=text)
    parser.add_argument("--slice-seconds", type=float, default=0.25, metavar="S", help="length of a slice")
    parser.add_argument("--repeats", type=int, default=7, metavar="R", help="slices of each contestant")
    output = RESULTS / "sb3_adapters.json"
    parser.add_argument("--output", type=Path, default=output, metavar="FILE", help="JSON file to write")
    options = parser.parse_args(arguments)
    for name in options.scenarios:
        try:
            load_scenario(name)
        except ScenarioError as error:
            parser.error(f"--scenarios: {error}")
    for name, _ in sizes:
        if any(size < 1 for size in getattr(options, name)):
            parser.error(f"--{name}: {getattr(options, name)} must be at least 1 each")
    check_slices(parser, options)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and store it."""
    options = parse_arguments(arguments)
    sizes = (options.adapter, options.dummy, options.subproc)
    found = figures(options.scenarios, *sizes, options.slice_seconds, options.repeats)
    print(figure_table(found))
    stored = {name: value for name, value in vars(options).items() if name != "output"}
    what = "time per environment and step in steps of CartPole, medians over interleaved slices"
    write_figures(options.output, what, found, stored)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
