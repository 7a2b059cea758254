"""Training runs behind ``docs/learning.md``: shared parts of its two commands.

Runs are held-out episodes under the real learner, played and kept by the package's own evaluation: a run
whose files fit is not trained again.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Annotated, Any

import matplotlib as mpl
import numpy as np
from generated_parts import typed_command, write_parts

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.plotting import RC, save
from collapipe_env.evaluation.provenance import versions
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.feasibility import EnergyBudgetWarning
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.files import write_text
from collapipe_env.scenario import Scenario

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from measuring import command
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "learning.md"
PICTURES = DOCS / "images" / "learning"


class RunOptions(BaseModel):
    """Options of both commands."""

    episodes: Annotated[int, Field(ge=1)] = 3
    """Runs of each case."""
    processes: Annotated[int, Field(ge=1)] = 2
    """Worker processes, with one thread each."""
    work: Path = Path("runs")
    """Folder of the finished runs, the table and the figure."""
    no_page: bool = False
    """Leave the page in docs as it is."""


@dataclass(frozen=True)
class Curve:
    """One run at its evaluations.

    Attributes:
        seconds: Simulated time until each evaluation [s]; the first is the untrained model's.
        loss: Evaluation loss [nat].
        metric: The task's headline metric; without the untrained model's.
    """

    seconds: FloatArray
    loss: FloatArray
    metric: FloatArray


def main(
    kind: type[Any], run: Callable[[Any, list[str]], None], about: str | None, arguments: Sequence[str] | None
) -> int:
    """Read a command line and run it with the options and the arguments; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        # Fixed allocations ignore budgets, and how well a scheduler keeps them is shown elsewhere.
        warnings.simplefilter("ignore", EnergyBudgetWarning)
        return command(kind, lambda options: run(options, given), about)(given)


def planned(options: RunOptions, name: str, scenario: Scenario, scheduler: str) -> EvaluationPlan:
    """Plan all runs of a case.

    Args:
        options: Number of runs, and where they are kept.
        name: Name of the case, and of its folder.
        scenario: The scenario; its rounds are the rounds of a run.
        scheduler: Scheduler that allocates.
    """
    return EvaluationPlan(
        scenario=scenario.with_overrides({"name": name}),
        schedulers=(scheduler,),
        agents=(),
        episodes=options.episodes,
        rounds=scenario.dynamics.rounds,
        learner="real",
        folder=options.work / "runs" / name,
    )


def train(plans: Mapping[str, EvaluationPlan], processes: int) -> dict[str, list[EpisodeResult]]:
    """Train what is not finished, seed by seed, and return the runs of each case."""
    outcomes = evaluate_all(list(plans.values()), processes)
    return {name: next(iter(outcome.results.values())) for name, outcome in zip(plans, outcomes, strict=True)}


def evaluations(rounds: int, wanted: int) -> dict[str, object]:
    """Settings for about ``wanted`` evaluations, one of them after the last round."""
    least = max(rounds // wanted, 1)
    every = max(divisor for divisor in range(1, least + 1) if rounds % divisor == 0)
    return {
        "dynamics.rounds": rounds,
        "dynamics.target_loss": None,
        "learning.evaluate_every": every,
        "learning.metric_every": every,
        "learning.device": "cpu",
    }


def curve(result: EpisodeResult, every: int) -> Curve:
    """A run at its evaluations, one every ``every`` rounds."""
    chosen = slice(every - 1, None, every)
    return Curve(
        seconds=np.concatenate(([0.0], np.cumsum(result.delay)[chosen])),
        loss=np.array([result.initial_loss, *result.loss[chosen]]),
        metric=np.array(result.metric[chosen]),
    )


def time_to_loss(run: Curve, target: float) -> float:
    """Simulated time at which the loss first reaches the target [s], linear between evaluations; else NaN."""
    below = np.flatnonzero(run.loss <= target)
    if not below.size:
        return float("nan")
    part = slice(max(below[0] - 1, 0), below[0] + 1)
    return float(np.interp(-target, -run.loss[part], run.seconds[part]))


def reached(times: Sequence[float]) -> str:
    """Simulated times to a loss as text; if some runs never reach it, the number that do."""
    there = [seconds for seconds in times if not np.isnan(seconds)]
    return interval(times, ".0f") if len(there) == len(times) else f"{len(there)} of {len(times)} reach it"


def interval(values: Sequence[float], digits: str) -> str:
    """Mean and 95 % bootstrap interval over seeds, as text."""
    found = estimate(list(values))
    mean = format(found.mean, digits)
    return mean if np.isnan(found.low) else f"{mean} ({found.low:{digits}}…{found.high:{digits}})"


def band(axes: Axes, x: FloatArray, runs: Sequence[FloatArray], colour: str) -> FloatArray:
    """Draw the mean over seeds, and a band from the least to the greatest; returns the mean."""
    values = np.array(runs)
    mean: FloatArray = values.mean(axis=0)
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=colour, linewidth=1.5)
    return mean


def publish(
    part: str, table: str, picture: Path, draw: Callable[[], Figure], command_line: Sequence[str], page: bool
) -> None:
    """Write figure and table into the work folder and, if ``page``, into the page.

    Args:
        part: Name of the page's part; the part with the command is named after it.
        table: The table in Markdown.
        picture: File of the figure in the work folder.
        command_line: Script and arguments.
        page: Whether to write the page.
    """
    with mpl.rc_context(RC):
        save(draw(), picture)
    write_text(picture.with_name("table.md"), table + "\n")
    print(table)
    if page:
        PICTURES.mkdir(parents=True, exist_ok=True)
        copyfile(picture, PICTURES / picture.name)
        write_page(part, table, command_line)
        print(f"wrote {PICTURES / picture.name}")
    print(f"wrote {picture.parent}/: {picture.name}, table.md")


def write_page(part: str, content: str, command_line: Sequence[str]) -> None:
    """Write a part of the page, and the command that made it.

    Args:
        part: Name of the page's part; the part with the command is named after it.
        content: New content of the part, in Markdown.
        command_line: Script and arguments.
    """
    named = ", ".join(f"{n} {v}" for n, v in versions().items() if n in ("collapipe-env", "torch"))
    block = f"```bash\n{typed_command(['python', *command_line])}\n```"
    stamp = f"{block}\n\n{named}. Finished {time.strftime('%Y-%m-%d')}."
    write_parts(PAGE, {part: content, f"{part} command": stamp})
    print(f"wrote {PAGE}")
