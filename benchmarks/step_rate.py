"""Time of the environments' steps against Gymnasium's classics, measured side by side.

All contestants take turns in short slices, so that a busy machine slows all of them alike; each figure is
the ratio of two of them, slice by slice, with its range. One step of a vector environment counts as as many
steps as it has environments. Run::

    python benchmarks/step_rate.py
    python benchmarks/step_rate.py --slice-seconds 0.5 --repeats 9 --num-envs 64 256
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from measuring import RESULTS, Figure, command, publish
from side_by_side import Timing, VectorOptions, ratio_figure, single, take_turns, vector

from collapipe_env.envs.registration import environment_ids
from collapipe_env.ground.errors import ScenarioError, nearest_name

WHAT = "time of an environment's step; a step of a vector environment counts as num_envs steps"
YARDSTICK = "CartPole-v1"
CLASSICS = (YARDSTICK, "Pendulum-v1")
SINGLE_GOALS = {"small": 20.0, "medium": 30.0}
"""Most steps of CartPole in the time of a single environment's step, by scenario."""
VECTOR_GOALS = {("medium", 256): 0.5}
"""Most steps of CartPole in the time of a step in the native vector environment, by scenario and size."""
GROWTH = ("xlarge", "medium")
"""Scenarios compared at equal size of the vector environment: the first has 51 times as many devices."""
GROWTH_GOALS = {256: 60.0}
"""Most steps of the smaller scenario in the time of the larger's, by size of the vector environment."""


def known_ids() -> list[str]:
    """Every id that the package registers."""
    return [name for name, _ in environment_ids()]


def ladder() -> list[str]:
    """Surrogate ids of the four scenarios.

    The default id is the medium scenario under another name, and a surrogate's round costs the same in every
    task.
    """
    named = [n for n in known_ids() if n.startswith("CollaPipeSurrogate-")]
    return [n for n in named if n.endswith("-Classification-v0")]


def short(name: str) -> str:
    """Name of an id in the table: the scenario if the id is one of the ladder's, otherwise the id."""
    return name.split("-")[1].lower() if name in ladder() else name


def single_row(name: str) -> str:
    """Row of a single environment."""
    return name if name in CLASSICS else f"{short(name)}, single"


def vector_row(name: str, num_envs: int) -> str:
    """Row of a vector environment."""
    return f"{short(name)}, {num_envs} in a vector"


@dataclass(frozen=True)
class Options(VectorOptions):
    """Time of the environments' steps against Gymnasium's classics."""

    ids: tuple[str, ...] = tuple(ladder())
    """Our environments."""
    num_envs: tuple[int, ...] = (64, 256)
    """Sizes of the vector environments, at least 1 each."""
    output: Path = RESULTS / "step_rate.json"
    """JSON file to write."""

    def check(self) -> None:
        """Refuse options that cannot be run."""
        super().check()
        known = known_ids()
        for name in self.ids:
            if name not in known:
                raise ScenarioError(f"--ids: {name!r} is not registered: {nearest_name(name, known)}")


def figures(
    ids: Sequence[str] | None = None,
    num_envs: Sequence[int] = (64, 256),
    slice_seconds: float = 0.25,
    repeats: int = 7,
) -> list[Figure]:
    """Measure all environments in turns.

    Args:
        ids: This project's environments; the ladder of scenarios by default.
        num_envs: Sizes of the vector environments, >= 1 each.
        slice_seconds: Length of a slice [s].
        repeats: Slices of each, >= 1.

    Returns:
        A figure for each contestant, then the growth from ``medium`` to ``xlarge`` where both are measured.
    """
    ids, sizes = list(dict.fromkeys(ladder() if ids is None else ids)), list(dict.fromkeys(num_envs))
    contestants = [single(single_row(name), name) for name in (*CLASSICS, *ids)]
    contestants += [vector(vector_row(name, size), name, size) for name in ids for size in sizes]
    timings = take_turns(contestants, slice_seconds, repeats)
    found = [
        ratio_figure(row, timing, timings[YARDSTICK], _goals().get(row), rate=True)
        for row, timing in timings.items()
    ]
    return [*found, *_growth(timings, sizes)]


def _goals() -> dict[str, float]:
    """Goals by row."""
    ids = {short(name): name for name in ladder()}
    return {
        **{single_row(ids[scenario]): goal for scenario, goal in SINGLE_GOALS.items()},
        **{vector_row(ids[scenario], size): goal for (scenario, size), goal in VECTOR_GOALS.items()},
    }


def _growth(timings: Mapping[str, Timing], sizes: Sequence[int]) -> Iterator[Figure]:
    larger, smaller = ({short(name): name for name in ladder()}[scenario] for scenario in GROWTH)
    for size in sizes:
        rows = vector_row(larger, size), vector_row(smaller, size)
        if all(row in timings for row in rows):
            name = f"{GROWTH[0]} over {GROWTH[1]}, {size} in a vector"
            yield ratio_figure(name, timings[rows[0]], timings[rows[1]], GROWTH_GOALS.get(size))


def _run(options: Options) -> None:
    found = figures(options.ids, options.num_envs, options.slice_seconds, options.repeats)
    publish(options, WHAT, found)


main = partial(command, Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
