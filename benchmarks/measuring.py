"""What the benchmarks share: contestants that take turns, and figures beside their goals.

All contestants take turns in short slices, so that a busy machine slows all of them alike; what counts is
the ratio of two contestants within one run.
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
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm import tqdm

from collapipe_env import files

RESULTS = Path(__file__).parent / "results"
"""Where benchmarks store what they measured."""

PACKAGES = ("collapipe-env", "gymnasium", "numpy", "numba", "stable-baselines3", "torch")


@dataclass(frozen=True)
class Contestant:
    """Something that is measured.

    Attributes:
        name: Row of the table.
        units: What one call counts for, such as the environments that it steps.
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
        units: What one call counts for.
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


@dataclass(frozen=True)
class Figure:
    """One measured number beside its goal.

    Attributes:
        name: What was measured.
        value: The number; ``None`` where it was skipped.
        unit: Its unit, such as ``"x CartPole-v1"`` or ``"s"``.
        low: Least over the slices.
        high: Most over the slices.
        goal: What it should be at most; ``None`` without a goal.
        note: Why it was skipped, or what to know.
    """

    name: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    goal: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``met``, ``missed`` with the factor, ``skipped``, or nothing without a goal."""
        if self.value is None:
            return "skipped"
        if self.goal is None:
            return ""
        if self.value <= self.goal:
            return "met"
        return f"missed by {self.value / self.goal:.2f} x" if self.goal else "missed"


def calls_in_a_slice(contestant: Contestant, seconds: float) -> int:
    """Calls that fill about the wanted time, found by doubling; warms the contestant up, too."""
    contestant.play(1)  # what is compiled or imported in a first call says nothing about the next ones
    calls = 1
    while True:
        start = time.perf_counter()
        contestant.play(calls)
        spent = time.perf_counter() - start
        if spent >= seconds / 2.0:
            return max(round(calls * seconds / spent), 1)
        calls *= 2


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
        calls.append(calls_in_a_slice(contestant, seconds))
        progress.update()
    found: list[list[float]] = [[] for _ in contestants]
    for _ in range(repeats):
        for contestant, count, times in zip(contestants, calls, found, strict=True):
            progress.set_postfix_str(contestant.name, refresh=False)
            start = time.perf_counter()
            contestant.play(count)
            times.append((time.perf_counter() - start) / (count * contestant.units))
            progress.update()
    progress.close()
    return {c.name: Timing(c.name, c.units, tuple(t)) for c, t in zip(contestants, found, strict=True)}


def check_output(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse a folder as ``--output``."""
    if options.output.is_dir():
        parser.error(f"--output: {options.output} is a folder; name a file")


def check_slices(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse bad values of ``--slice-seconds``, ``--repeats`` and ``--output``."""
    if not 0.001 <= options.slice_seconds <= 60.0:
        parser.error(f"--slice-seconds: {options.slice_seconds:g} is not within 0.001 to 60")
    if not 1 <= options.repeats <= 1000:
        parser.error(f"--repeats: {options.repeats} is not within 1 to 1000")
    check_output(parser, options)


def ratio_figure(name: str, timing: Timing, yardstick: Timing, goal: float | None = None) -> Figure:
    """How much longer something takes than a yardstick of the same run."""
    value, low, high = timing.ratio_to(yardstick)
    return Figure(name, value, f"x {yardstick.name}", low, high, goal)


def figure_table(figures: Sequence[Figure]) -> str:
    """Figures beside their goals, as text."""
    width = max((len(f.name) for f in figures), default=0)
    lines = [f"{'figure':{width}s}  {'value':>10s}  {'goal':>8s}  {'range':>19s}  unit"]
    for f in figures:
        value = "-" if f.value is None else f"{f.value:.4g}"
        goal = "" if f.goal is None else f"{f.goal:.4g}"
        spread = "" if f.low is None or f.high is None else f"{f.low:.4g}..{f.high:.4g}"
        remark = ", ".join(part for part in (f.verdict, f.note) if part)
        lines.append(
            f"{f.name:{width}s}  {value:>10s}  {goal:>8s}  {spread:>19s}  {f.unit}"
            + (f"  [{remark}]" if remark else "")
        )
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What is needed to read timings: versions and the machine."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        versions[name] = metadata.version(name)
    return {"versions": versions, "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()}}


def write_figures(path: Path, what: str, figures: Sequence[Figure], options: dict[str, Any]) -> None:
    """Store figures with their options and the machine; written aside, then renamed."""
    listed = [{**asdict(f), "verdict": f.verdict} for f in figures]
    files.write_json(path, {"what": what, "options": options, **machine(), "figures": listed})
