"""Step rates of the environments against Gymnasium's classics, measured side by side.

All contestants take turns in short slices, so that a busy machine slows all of them alike; the figure of
each is the median over its slices. Run::

    python benchmarks/step_rate.py
    python benchmarks/step_rate.py --slice-seconds 0.5 --repeats 9 --num-envs 64 256

One step of a vector environment counts as as many steps as it has environments.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from tqdm import tqdm

import collapipe_env
from collapipe_env import files
from collapipe_env.envs.registration import environment_ids

YARDSTICK = "CartPole-v1"
CLASSICS = (YARDSTICK, "Pendulum-v1")
ACTIONS_IN_STORE = 16


@dataclass(frozen=True)
class Contestant:
    """One environment under measurement.

    Attributes:
        name: Row of the table.
        num_envs: Environments that one call steps.
        play: Plays a number of calls.
    """

    name: str
    num_envs: int
    play: Callable[[int], None]


@dataclass(frozen=True)
class Result:
    """What came out for one contestant.

    Attributes:
        name: Row of the table.
        num_envs: Environments that one call steps.
        steps_per_second: Median over the slices.
        slowest_slice: Least steps per second of a slice.
        fastest_slice: Most steps per second of a slice.
        ratio_to_cartpole: Steps per second over those of CartPole.
    """

    name: str
    num_envs: int
    steps_per_second: float
    slowest_slice: float
    fastest_slice: float
    ratio_to_cartpole: float


def single(name: str) -> Contestant:
    """A single environment as ``gymnasium.make`` gives it, without the checking wrapper."""
    env = gym.make(name, disable_env_checker=True)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(ACTIONS_IN_STORE)]
    env.reset(seed=0)

    def play(calls: int) -> None:
        for i in range(calls):
            _, _, terminated, truncated, _ = env.step(actions[i % ACTIONS_IN_STORE])
            if terminated or truncated:
                env.reset()

    return Contestant(name, 1, play)


def vector(name: str, num_envs: int) -> Contestant:
    """The native vector environment."""
    env: gym.vector.VectorEnv[Any, Any, Any] = gym.make_vec(name, num_envs=num_envs)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(ACTIONS_IN_STORE)]
    env.reset(seed=0)

    def play(calls: int) -> None:
        for i in range(calls):
            env.step(actions[i % ACTIONS_IN_STORE])

    return Contestant(f"{name} x {num_envs}", num_envs, play)


def slice_rate(contestant: Contestant, calls: int) -> float:
    """Steps per second over one slice."""
    start = time.perf_counter()
    contestant.play(calls)
    return calls * contestant.num_envs / (time.perf_counter() - start)


def calls_in_a_slice(contestant: Contestant, seconds: float) -> int:
    """Calls that fill about the wanted time, found by doubling."""
    calls = 1
    while True:
        start = time.perf_counter()
        contestant.play(calls)
        spent = time.perf_counter() - start
        if spent >= seconds / 2.0:
            return max(round(calls * seconds / spent), 1)
        calls *= 2


def measure(contestants: Sequence[Contestant], seconds: float, repeats: int) -> list[Result]:
    """Let all contestants take turns and sum up.

    Args:
        contestants: CartPole among them.
        seconds: Length of a slice.
        repeats: Slices of each.
    """
    progress = tqdm(total=len(contestants) * (repeats + 1), unit="slice", disable=not sys.stderr.isatty())
    calls = []
    for contestant in contestants:
        calls.append(calls_in_a_slice(contestant, seconds))  # warms up, too
        progress.update()
    rates: list[list[float]] = [[] for _ in contestants]
    for _ in range(repeats):
        for contestant, count, found in zip(contestants, calls, rates, strict=True):
            progress.set_postfix_str(contestant.name, refresh=False)
            found.append(slice_rate(contestant, count))
            progress.update()
    progress.close()
    medians = {c.name: statistics.median(r) for c, r in zip(contestants, rates, strict=True)}
    return [
        Result(
            name=contestant.name,
            num_envs=contestant.num_envs,
            steps_per_second=medians[contestant.name],
            slowest_slice=min(found),
            fastest_slice=max(found),
            ratio_to_cartpole=medians[contestant.name] / medians[YARDSTICK],
        )
        for contestant, found in zip(contestants, rates, strict=True)
    ]


def table(results: Sequence[Result]) -> str:
    """The results as text."""
    width = max(len(r.name) for r in results)
    lines = [f"{'environment':{width}s}  {'steps/s':>10s}  {'slices (min..max)':>20s}  {'/ CartPole':>10s}"]
    for r in results:
        spread = f"{r.slowest_slice:,.0f}..{r.fastest_slice:,.0f}"
        lines.append(
            f"{r.name:{width}s}  {r.steps_per_second:10,.0f}  {spread:>20s}  {r.ratio_to_cartpole:10.4f}"
        )
    return "\n".join(lines)


def write_json(path: Path, results: Sequence[Result], options: argparse.Namespace) -> None:
    """Store the results with what is needed to read them; written aside, then renamed."""
    content = {
        "what": "steps per second, medians over interleaved slices; a vector step counts num_envs steps",
        "options": {"slice_seconds": options.slice_seconds, "repeats": options.repeats},
        "versions": {
            "collapipe_env": collapipe_env.__version__,
            "gymnasium": gym.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()},
        "results": [asdict(r) for r in results],
    }
    files.write_json(path, content)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read and check the command line."""
    known = [name for name, _ in environment_ids()]
    # The default id is the medium scenario under another name, and a surrogate's round costs the same in
    # every task.
    ladder = [n for n in known if n.startswith("CollaPipeSurrogate-") and n.endswith("-Classification-v0")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ids", nargs="+", default=ladder, metavar="ID", help="our environments")
    parser.add_argument(
        "--num-envs", nargs="*", type=int, default=[64, 256], metavar="E", help="sizes of the vector runs"
    )
    parser.add_argument("--slice-seconds", type=float, default=0.25, metavar="S", help="length of a slice")
    parser.add_argument("--repeats", type=int, default=7, metavar="R", help="slices of each environment")
    default = Path(__file__).parent / "results" / "step_rate.json"
    parser.add_argument("--output", type=Path, default=default, metavar="FILE", help="JSON file to write")
    options = parser.parse_args(arguments)
    for name in options.ids:
        if name not in known:
            parser.error(f"--ids: {name!r} is not registered; there are {', '.join(known)}")
    if any(size < 1 for size in options.num_envs):
        parser.error(f"--num-envs: {options.num_envs} must be at least 1 each")
    if not 0.001 <= options.slice_seconds <= 60.0:
        parser.error(f"--slice-seconds: {options.slice_seconds:g} is not within 0.001 to 60")
    if not 1 <= options.repeats <= 1000:
        parser.error(f"--repeats: {options.repeats} is not within 1 to 1000")
    if options.output.is_dir():
        parser.error(f"--output: {options.output} is a folder; name a file")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and store it."""
    options = parse_arguments(arguments)
    contestants = [single(name) for name in (*CLASSICS, *dict.fromkeys(options.ids))]
    for name in dict.fromkeys(options.ids):
        contestants += [vector(name, size) for size in dict.fromkeys(options.num_envs)]
    results = measure(contestants, options.slice_seconds, options.repeats)
    print(table(results))
    write_json(options.output, results, options)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
