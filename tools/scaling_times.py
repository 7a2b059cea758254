"""Time of steps and of DSSRA's decisions along one axis of the scaling study, all sizes taking turns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from scaling_points import BATCH, Axis, scenario_at

import collapipe_env  # noqa: F401 - registers the ids
from collapipe_env.agents.dssra import DSSRA
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.world import World

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from measuring import (  # noqa: F401 - its folder is no package: others import it from here
    RESULTS,
    Contestant,
    SliceOptions,
    command,
    machine,
    take_turns,
)

ID = "CollaPipeSurrogate-v0"
STORE = 16
"""Actions, and states for DSSRA, that a contestant goes through again and again."""
SINGLE, VECTOR, DECISION = "single", "vector", "decision"
"""Timed quantities: a step of a single environment, one of a native batch's, and a decision of DSSRA."""


def environment(scenario: Scenario, num_envs: int | None) -> Any:
    """An environment with the surrogate learner, reset.

    Args:
        scenario: What to play.
        num_envs: Size of the native vector environment; ``None`` for a single one.
    """
    if num_envs is None:
        env: Any = gym.make(ID, scenario=scenario, disable_env_checker=True)
    else:
        env = gym.make_vec(ID, num_envs=num_envs, scenario=scenario)
    env.reset(seed=0)
    return env


def player(env: Any, store: int = STORE) -> Callable[[int], None]:
    """Steps an environment with random actions over the ends of episodes.

    Args:
        env: A single or a vector environment, reset.
        store: Actions that it goes through.
    """
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(store)]
    single = isinstance(env, gym.Env)

    def play(calls: int) -> None:
        for i in range(calls):
            _, _, terminated, truncated, _ = env.step(actions[i % store])
            if single and (terminated or truncated):
                env.reset()

    return play


def decider(scenario: Scenario) -> Callable[[int], None]:
    """Decides for one environment with DSSRA, on one thread, in states of an episode of its own.

    Args:
        scenario: What to play.
    """
    scheduler = DSSRA(scenario, threads=1)
    simulator = World(scenario, IdleLearner(1), 1)
    simulator.reset([np.random.default_rng(0)])
    states = []
    for _ in range(STORE):
        states.append(simulator.state.map(np.copy))
        simulator.step(scheduler.allocate(simulator.state))

    def play(calls: int) -> None:
        for i in range(calls):
            scheduler.allocate(states[i % STORE])

    return play


def contestants(axis: Axis) -> list[Contestant]:
    """Everything that is timed along an axis, named ``"<what> <size>"``."""
    found = []
    for value in axis.values:
        scenario = scenario_at(axis.name, value)
        if axis.name == "environments":
            found.append(Contestant(f"{VECTOR} {value}", value, player(environment(scenario, value))))
            continue
        found.append(Contestant(f"{SINGLE} {value}", 1, player(environment(scenario, None))))
        found.append(Contestant(f"{VECTOR} {value}", BATCH, player(environment(scenario, BATCH))))
        found.append(Contestant(f"{DECISION} {value}", 1, decider(scenario)))
    return found


def measure(axis: Axis, slice_seconds: float, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Time one axis.

    Args:
        axis: What changes.
        slice_seconds: Length of a slice [s].
        repeats: Slices of each, >= 1.

    Returns:
        Seconds per environment of each slice, by what is timed and by size.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for name, timing in take_turns(contestants(axis), slice_seconds, repeats).items():
        what, value = name.split()
        found.setdefault(what, {})[value] = list(timing.seconds)
    return found
