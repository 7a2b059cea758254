"""All benchmarks one after another, in one table beside their goals.

Each part is a script of this folder that can also be run by itself, with more options. A part that fails is
reported with its reason, and the others go on. Missed goals are no error: this is a measurement. Run::

    python benchmarks/suite.py
    python benchmarks/suite.py --only step_rate sb3_adapters
    python benchmarks/suite.py --quick --output quick.json
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from measuring import RESULTS, Figure, check_output, figure_table, write_figures

WHAT = "all benchmarks: figures by part, beside their goals (at most)"
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


@dataclass(frozen=True)
class Part:
    """A benchmark of the suite.

    Attributes:
        about: What it measures, in a few words.
        quick: Arguments of its ``figures`` for a run that only shows that it works.
    """

    about: str
    quick: Mapping[str, Any] = field(default_factory=dict)


PARTS: dict[str, Part] = {
    "step_rate": Part(
        "steps against Gymnasium's classics", {"num_envs": (4,), "slice_seconds": 0.005, "repeats": 2}
    ),
    "sb3_adapters": Part(
        "ways into Stable-Baselines3",
        {
            "scenarios": ("small",),
            "adapter": (2,),
            "dummy": (2,),
            "subproc": (),
            "slice_seconds": 0.005,
            "repeats": 2,
        },
    ),
    "ppo_ceiling": Part(
        "PPO's time beside the environment's",
        {"scenario": "small", "num_envs": 2, "slice_seconds": 0.005, "repeats": 2},
    ),
    "torch_backend": Part(
        "environments as PyTorch tensors",
        {"scenario": "small", "num_envs": (2,), "dtypes": ("float64",), "slice_seconds": 0.005, "repeats": 2},
    ),
    "import_and_render": Part(
        "start of the package, and pictures",
        {"scenarios": ("small",), "processes": 1, "frames": 2, "first_step": "small"},
    ),
}
"""Parts in the order in which they run: the name is the script's."""


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
        found: list[Figure] = module.figures(**(PARTS[name].quick if quick else {}))
    except (Exception, SystemExit) as error:
        first = next(iter(str(error).splitlines()), "")
        return [Figure(name, None, "", note=f"{type(error).__name__}: {first}".rstrip(": "))]
    return [replace(figure, name=f"{name}: {figure.name}") for figure in found]


def run_all(names: Sequence[str], quick: bool, output: Path) -> tuple[list[Figure], bool]:
    """Run parts one after another; what is done is stored after each.

    Args:
        names: The parts.
        quick: Whether to measure with short slices.
        output: JSON file to write.

    Returns:
        All figures, and whether the run came to its end.
    """
    done: list[Figure] = []
    finished: dict[str, float] = {}
    for place, name in enumerate(names, 1):
        print(f"[{place}/{len(names)}] {name}: {PARTS[name].about}", flush=True)
        start = time.perf_counter()
        try:
            done += run_part(name, quick)
        except KeyboardInterrupt:
            return done, False
        finished[name] = round(time.perf_counter() - start, 1)
        write_figures(output, WHAT, done, {"only": list(names), "quick": quick, "seconds": finished})
        left = f"; {len(names) - place} to go" if place < len(names) else ""
        print(f"      {finished[name]:.0f} s, stored in {output}{left}", flush=True)
    return done, True


def verdict(figures: Sequence[Figure]) -> str:
    """How many goals were met, and what was skipped."""
    goals = [f for f in figures if f.goal is not None]
    line = f"{sum(f.verdict == 'met' for f in goals)} of {len(goals)} goals met"
    skipped = [f.name for f in figures if f.verdict == "skipped"]
    return line + (f"; skipped: {', '.join(skipped)}" if skipped else "")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        epilog="parts: " + "; ".join(f"{name} ({part.about})" for name, part in PARTS.items()),
    )
    parser.add_argument("--only", nargs="+", default=list(PARTS), metavar="PART", help="only these parts")
    parser.add_argument(
        "--quick", action="store_true", help="short slices: shows that it works, measures nothing"
    )
    default = RESULTS / "bench.json"
    parser.add_argument("--output", type=Path, default=default, metavar="FILE", help="JSON file to write")
    options = parser.parse_args(arguments)
    for name in options.only:
        if name not in PARTS:
            parser.error(f"--only: {name!r} is no part; there are {', '.join(PARTS)}")
    check_output(parser, options)
    options.only = [name for name in PARTS if name in options.only]
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, print the table; returns the exit status: 0 also where goals are missed."""
    options = parse_arguments(arguments)
    figures, complete = run_all(options.only, options.quick, options.output)
    if figures:
        print(f"\n{figure_table(figures)}\n\nwritten to {options.output}")
    if not complete:
        kept = f"what was done is in {options.output}" if figures else "no part was done"
        print(f"interrupted: {kept}; run again with --only for the rest")
    print(verdict(figures))
    return 0 if complete else INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
