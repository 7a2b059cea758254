"""Shared parts of the benchmarks: options, figures beside their goals, results in files."""

from __future__ import annotations

import inspect
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym
import tyro
from pydantic import BaseModel, ConfigDict

from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.files import write_json

RESULTS = Path(__file__).parent / "results"
"""Folder of the benchmarks' results."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""
PACKAGES = ("collapipe-env", "gymnasium", "numpy", "numba", "stable-baselines3", "torch")


class BenchmarkOptions(BaseModel):
    """Options of a benchmark; their types say their ranges."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: Path | None = None
    """JSON file to write; by default benchmarks/results/NAME.json with the script's name."""

    @property
    def file(self) -> Path:
        """The JSON file to write."""
        return self.output or RESULTS / Path(inspect.getfile(type(self))).with_suffix(".json").name


Given = TypeVar("Given", bound=BaseModel)


@dataclass(frozen=True)
class Figure:
    """One measured number beside its goal.

    Attributes:
        name: What was measured.
        value: The number; ``None`` where it was skipped.
        unit: Its unit, such as ``"x CartPole-v1"`` or ``"s"``.
        low: Least over the slices.
        high: Most over the slices.
        goal: Largest value wanted; ``None`` without a goal.
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
    """Versions and the machine, on which timings depend."""
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}
    return {"versions": versions, "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()}}


def store(options: BenchmarkOptions, what: str, **content: Any) -> None:
    """Store results with their options and the machine; print the path.

    Args:
        what: What was measured.
        **content: The results.
    """
    used = options.model_dump(mode="json", exclude={"output"})
    write_json(options.file, {"what": what, "options": used, **machine(), **content})
    print(f"written to {options.file}")


def publish(options: BenchmarkOptions, what: str, figures: Sequence[Figure], **content: Any) -> None:
    """Print figures beside their goals, and store them with their verdicts.

    Args:
        what: What was measured.
        **content: More to store.
    """
    print(figure_table(figures))
    goals = [figure for figure in figures if figure.goal is not None]
    if goals:
        print(f"{sum(figure.verdict == 'met' for figure in goals)} of {len(goals)} goals met")
    store(options, what, **content, figures=[{**asdict(f), "verdict": f.verdict} for f in figures])


def command(kind: type[Given], run: Callable[[Given], None], about: str | None) -> Callable[..., int]:
    """Make the command line of a script.

    Args:
        kind: Its options.
        run: Function to run with them.
        about: The script's docstring.

    Returns:
        A function of the arguments, those of this process by default, that returns the exit status: 0, 2 for
        bad input, 130 after Ctrl-C.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        options = tyro.cli(kind, description=about, args=arguments, config=(tyro.conf.FlagCreatePairsOff,))
        try:
            run(options)
        except (CollaPipeError, gym.error.Error) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("interrupted: what was stored before is kept", file=sys.stderr)
            return INTERRUPTED
        return 0

    return main
