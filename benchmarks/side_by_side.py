"""Contestants that take turns in short slices, so that a busy machine slows all of them alike.

What counts is the ratio of two contestants within one run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium as gym
from measuring import BenchmarkOptions, Figure
from pydantic import Field
from tqdm import tqdm

ACTIONS_IN_STORE = 16
"""Random actions that an environment is given again and again."""


def stepper(env: Any) -> Callable[[int], None]:
    """Return a function that steps an environment with random actions, over ends of episodes.

    Args:
        env: A single environment, or a vector environment that resets itself; reset here.
    """
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(ACTIONS_IN_STORE)]
    env.reset(seed=0)
    single = not hasattr(env, "num_envs")

    def play(calls: int) -> None:
        for i in range(calls):
            _, _, terminated, truncated, _ = env.step(actions[i % ACTIONS_IN_STORE])
            if single and (terminated or truncated):
                env.reset()

    return play


def timed(play: Callable[[int], None], calls: int) -> float:
    """Seconds of some calls."""
    start = time.perf_counter()
    play(calls)
    return time.perf_counter() - start


def calls_in_a_slice(play: Callable[[int], None], seconds: float) -> int:
    """Calls that fill about the wanted time, found by doubling; also warms the environment up."""
    play(1)  # what is compiled or imported in a first call says nothing about the next ones
    calls = 1
    while (spent := timed(play, calls)) < seconds / 2.0:
        calls *= 2
    return max(round(calls * seconds / spent), 1)


@dataclass(frozen=True)
class Contestant:
    """Something that is measured.

    Attributes:
        name: Row of the table.
        units: Units in one call, such as the environments that it steps.
        play: Plays a number of calls.
    """

    name: str
    units: int
    play: Callable[[int], None]


@dataclass(frozen=True)
class Timing:
    """Seconds per unit of one contestant, over its slices.

    Attributes:
        name: Row of the table.
        units: Units in one call.
        seconds: Seconds per unit in each slice, in the order of the run.
    """

    name: str
    units: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the slices [s]."""
        return statistics.median(self.seconds)

    def ratio_to(self, other: Timing) -> tuple[float, float, float]:
        """Median, least and most of this one's time over the other's, slice by slice."""
        ratios = [a / b for a, b in zip(self.seconds, other.seconds, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


def take_turns(contestants: Sequence[Contestant], seconds: float, repeats: int) -> dict[str, Timing]:
    """Let all contestants take turns.

    Args:
        contestants: What to measure; names are unique.
        seconds: Length of a slice.
        repeats: Slices of each.

    Returns:
        Timings by name, in the order given.
    """
    progress = tqdm(total=len(contestants) * (repeats + 1), unit="slice", disable=not sys.stderr.isatty())
    calls = []
    for contestant in contestants:
        progress.set_postfix_str(contestant.name, refresh=False)
        calls.append(calls_in_a_slice(contestant.play, seconds))
        progress.update()
    found: list[list[float]] = [[] for _ in contestants]
    for _ in range(repeats):
        for contestant, count, times in zip(contestants, calls, found, strict=True):
            progress.set_postfix_str(contestant.name, refresh=False)
            times.append(timed(contestant.play, count) / (count * contestant.units))
            progress.update()
    progress.close()
    return {c.name: Timing(c.name, c.units, tuple(t)) for c, t in zip(contestants, found, strict=True)}


def single(row: str, name: str, **options: Any) -> Contestant:
    """A single environment as ``gymnasium.make`` gives it, without the checking wrapper.

    Args:
        row: Row of the table.
        name: Id of the environment.
        options: Further arguments of ``gymnasium.make``.
    """
    return Contestant(row, 1, stepper(gym.make(name, disable_env_checker=True, **options)))


def vector(row: str, name: str, num_envs: int, **options: Any) -> Contestant:
    """The native vector environment of an id; a call counts for all of its environments.

    Args:
        row: Row of the table.
        name: Id of the environment.
        num_envs: Number of environments that step at once.
        options: Further arguments of ``gymnasium.make_vec``.
    """
    return Contestant(row, num_envs, stepper(gym.make_vec(name, num_envs=num_envs, **options)))


def ratio_figure(
    name: str, timing: Timing, yardstick: Timing, goal: float | None = None, rate: bool = False
) -> Figure:
    """Time of a contestant over a yardstick's in the same run; ``rate`` adds steps per second as a note."""
    value, low, high = timing.ratio_to(yardstick)
    note = f"{1.0 / timing.median:,.0f} steps/s" if rate else ""
    return Figure(name, value, f"x {yardstick.name}", low, high, goal, note)


class SliceOptions(BenchmarkOptions):
    """Options of benchmarks whose contestants take turns."""

    slice_seconds: Annotated[float, Field(ge=0.001, le=60.0)] = 0.25
    """Length of a slice [s], 0.001 to 60."""
    repeats: Annotated[int, Field(ge=1, le=1000)] = 7
    """Slices of each contestant, 1 to 1000."""
