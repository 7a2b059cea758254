"""Shared parts of the benchmarks: figures beside their goals, commands, episodes played again."""

from __future__ import annotations

import inspect
import itertools
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import tyro

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.runner import decisions_of
from collapipe_env.ground import files
from collapipe_env.ground.errors import CollaPipeError, ScenarioError
from collapipe_env.simulator.record import RoundRecord

RESULTS = Path(__file__).parent / "results"
"""Folder of the benchmarks' results."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""
PACKAGES = ("collapipe-env", "gymnasium", "numpy", "numba", "stable-baselines3", "torch")


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


def followed(plan: EvaluationPlan, scheduler: str, episode: int) -> Iterator[tuple[RoundRecord, float]]:
    """Play the decisions of a finished episode again under the surrogate: each round, and its smoothed loss.

    The learner does not affect the system, so delays and arrivals are those of the episode.

    Args:
        plan: The evaluation that was played.
        scheduler: Name of the scheduler that decided.
        episode: Number of the episode.
    """
    env = CollaPipeVectorEnv(
        num_envs=1,
        scenario=plan.scenario.with_overrides({"dynamics.target_loss": None}),
        learner="surrogate",
        reward="delay",
        autoreset_mode="Disabled",
        max_episode_steps=plan.rounds,
    )
    env.reset(seed=HELD_OUT_SEED + episode)
    for allocation in decisions_of(plan, scheduler, episode):
        env.step_allocation(allocation.map(lambda array: array[None]))
        assert env.last_round is not None
        yield env.last_round, float(env.state.loss[0])


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
    """Versions and the machine, as timings depend on them."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        versions[name] = metadata.version(name)
    return {"versions": versions, "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()}}


def store(options: BenchmarkOptions, what: str, **content: Any) -> None:
    """Store results with their options and the machine, through a temporary file; print the path.

    Args:
        what: What was measured.
        **content: The results.
    """
    used = {name: str(v) if isinstance(v, Path) else v for name, v in asdict(options).items()}
    del used["output"]
    files.write_json(options.file, {"what": what, "options": used, **machine(), **content})
    print(f"written to {options.file}")


def listed(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """Figures with their verdicts as plain data."""
    return [{**asdict(figure), "verdict": figure.verdict} for figure in figures]


def publish(options: BenchmarkOptions, what: str, figures: Sequence[Figure], **content: Any) -> None:
    """Print figures beside their goals, and store them with their verdicts.

    Args:
        what: What was measured.
        **content: More to store.
    """
    print(figure_table(figures))
    store(options, what, **content, figures=listed(figures))


def within(*limits: tuple[str, float | None, float, float]) -> None:
    """Refuse numbers out of range.

    Args:
        limits: Option, its value (``None`` passes), least and largest, for each number.

    Raises:
        ScenarioError: Names the option, its value and the range.
    """
    for name, value, low, high in limits:
        if value is not None and not low <= value <= high:
            raise ScenarioError(f"{name}: {value} is not within {low:,} to {high:,}")


class Between(NamedTuple):
    """Least and largest value of an option, in the annotation of its field; of each value of a tuple."""

    low: float
    high: float


class Checked:
    """Options whose annotations say their ranges."""

    def check(self) -> None:
        """Refuse options that cannot be run.

        Raises:
            ScenarioError: Names the option, its value and the range.
        """
        # A subclass that sets another default keeps the range.
        hints = [get_type_hints(kind, include_extras=True).items() for kind in type(self).__mro__]
        for name, hint in itertools.chain.from_iterable(hints):
            for bounds in getattr(hint, "__metadata__", ()):
                if isinstance(bounds, Between):
                    value = getattr(self, name)
                    each = value if isinstance(value, tuple) else (value,)
                    within(*((f"--{name.replace('_', '-')}", one, *bounds) for one in each))


@dataclass(frozen=True)
class BenchmarkOptions(Checked):
    """Options of a script that stores its results."""

    output: Path | None = None
    """JSON file to write; by default benchmarks/results/NAME.json with the script's name."""

    @property
    def file(self) -> Path:
        """The JSON file to write."""
        return self.output or RESULTS / Path(inspect.getfile(type(self))).with_suffix(".json").name


def command(
    kind: type[Any],
    run: Callable[[Any], None],
    about: str | None,
    arguments: Sequence[str] | None = None,
) -> int:
    """Read a command line and run it.

    Args:
        kind: Dataclass of the options, with ``check``, and ``output`` for a file.
        run: Function to run with the options.
        about: The script's docstring.
        arguments: Command line without the program's name; that of this process by default.

    Returns:
        The exit status: 0, 2 for bad input, 130 after Ctrl-C.
    """
    options = tyro.cli(kind, description=about, args=arguments, config=(tyro.conf.FlagCreatePairsOff,))
    try:
        output = getattr(options, "output", None)
        if output is not None and output.is_dir():
            raise ScenarioError(f"--output: {output} is a folder; name a file")
        options.check()
        run(options)
    except CollaPipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: what was stored before is kept", file=sys.stderr)
        return INTERRUPTED
    return 0
