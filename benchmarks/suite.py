"""All benchmarks one after another, in one table beside their goals.

Each part is a script of this folder that can also be run by itself, with more options. A part that fails is
reported with its reason, and the others go on. Missed goals are no error: this is a measurement. Run::

    python benchmarks/suite.py
    python benchmarks/suite.py --only step_rate gpu
    python benchmarks/suite.py --quick --output quick.json
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from measuring import BenchmarkOptions, Figure, command, figure_table, listed, store

from collapipe_env.ground.errors import ScenarioError, nearest_name

WHAT = "all benchmarks: figures by part, beside their goals (at most)"


@dataclass(frozen=True)
class Part:
    """A benchmark of the suite.

    Attributes:
        about: What it measures, in a few words.
        quick: Its options for a run that only shows that it works.
    """

    about: str
    quick: Mapping[str, Any] = field(default_factory=dict)


_SHORT = {"slice_seconds": 0.005, "repeats": 2}
PARTS: dict[str, Part] = {
    "step_rate": Part(
        "steps against Gymnasium's classics, and of tiers against their static twins",
        {"tiers": ("churn",), "sizes": ("small",), "num_envs": (4,), **_SHORT},
    ),
    "gpu": Part(
        "environments as PyTorch tensors, and training the graph net, on a GPU",
        {"device": "cpu", "scenarios": ("small",), "num_envs": (2,), "dtypes": ("float64",), **_SHORT},
    ),
    "first_decision": Part("compiling, up to DSSRA's first decision", {"processes": 1}),
}
"""Parts in the order in which they run: the name is the script's."""


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """All benchmarks one after another, in one table beside their goals."""

    only: tuple[str, ...] | None = None
    """Only these parts; all by default."""
    quick: bool = False
    """Short slices: shows that it works, measures nothing."""

    def check(self) -> None:
        """Refuse options that cannot be run.

        Raises:
            ScenarioError: Names a part that does not exist.
        """
        if self.only == ():
            raise ScenarioError(f"--only names no part: there are {', '.join(PARTS)}")
        for name in self.only or ():
            if name not in PARTS:
                raise ScenarioError(f"--only: {name!r} is no part: {nearest_name(name, PARTS)}")


def run_part(name: str, quick: bool) -> list[Figure]:
    """Import a part and let it measure.

    Args:
        name: The part.
        quick: Whether to measure with short slices.

    Returns:
        Its figures, with the part's name before theirs; one without a value if it fails.
    """
    try:
        module = importlib.import_module(name)
        options = module.Options(**(PARTS[name].quick if quick else {}))
        options.check()
        found: list[Figure] = module.figures(options)
    except (Exception, SystemExit) as error:
        first = next(iter(str(error).splitlines()), "")
        return [Figure(name, None, "", note=f"{type(error).__name__}: {first}".rstrip(": "))]
    return [replace(figure, name=f"{name}: {figure.name}") for figure in found]


def _run(options: Options) -> None:
    names = [name for name in PARTS if options.only is None or name in options.only]
    done: list[Figure] = []
    finished: dict[str, float] = {}
    try:
        for place, name in enumerate(names, 1):
            print(f"[{place}/{len(names)}] {name}: {PARTS[name].about}", flush=True)
            start = time.perf_counter()
            done += run_part(name, options.quick)
            finished[name] = round(time.perf_counter() - start, 1)
            # What is done is stored after each part.
            store(options, WHAT, seconds=finished, figures=listed(done))
    finally:
        if done:
            print(f"\n{figure_table(done)}\n\n{verdict(done)}")


def verdict(figures: Sequence[Figure]) -> str:
    """Number of goals that were met, and the skipped figures."""
    goals = [f for f in figures if f.goal is not None]
    line = f"{sum(f.verdict == 'met' for f in goals)} of {len(goals)} goals met"
    skipped = [f.name for f in figures if f.verdict == "skipped"]
    return line + (f"; skipped: {', '.join(skipped)}" if skipped else "")


main = partial(command, Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
