"""Training runs behind ``docs/learning.md``: shared parts of its studies.

Runs are held-out episodes under the real learner, played and kept by the package's own evaluation: a run
whose files fit is not trained again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from player import KEPT

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.plotting import save
from collapipe_env.evaluation.provenance import versions
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.feasibility import EnergyBudgetWarning
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario, load_scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = Path(__file__).parents[2] / "docs" / "images" / "learning"
WHOLE_TEST: Mapping[str, object] = {
    "learning.evaluation_split": "test",
    "learning.evaluation_samples": 1_000_000,
    "learning.metric_samples": 1_000_000,
}
"""Changes of a scenario that scores its whole test part."""


@dataclass(frozen=True)
class Training:
    """What an entry trains.

    Attributes:
        scenario: A shipped scenario or a YAML file.
        rounds: Rounds of a run; 0 leaves them to the study.
        episodes: Runs of each case.
        work: Folder of the finished runs.
        processes: Worker processes, with one thread each.
        drawn: Whether the picture of the documentation is written.
    """

    scenario: str
    rounds: int
    episodes: int
    work: Path
    processes: int = 2
    drawn: bool = True

    @classmethod
    def of(cls, entry: Mapping[str, Any], quick: bool, name: str) -> Training:
        """The training of an entry; a quick one has one run of two rounds."""
        if quick:
            return cls(entry["scenario"], 2, 1, KEPT / "quick" / name, drawn=False)
        return cls(entry["scenario"], entry.get("rounds", 0), entry["episodes"], KEPT / name)

    def whole(self, task: str) -> Scenario:
        """The scenario with a task."""
        return load_scenario(self.scenario).with_task(task)


class Curve(NamedTuple):
    """One run at its evaluations: the first, of time and loss, is the untrained model's."""

    seconds: FloatArray
    loss: FloatArray
    metric: FloatArray


def planned(options: Training, name: str, scenario: Scenario, scheduler: str) -> EvaluationPlan:
    """All runs of a case, over the scenario's rounds."""
    return EvaluationPlan(
        scenario=scenario.with_overrides({"name": name}),
        schedulers=(scheduler,),
        agents=(),
        episodes=options.episodes,
        rounds=scenario.dynamics.rounds,
        learner="real",
        folder=options.work / name,
    )


def train(plans: Mapping[str, EvaluationPlan], processes: int) -> dict[str, list[EpisodeResult]]:
    """Train what is not finished, seed by seed, and return the runs of each case."""
    with warnings.catch_warnings():
        # Fixed allocations ignore budgets, and how well a scheduler keeps them is shown elsewhere.
        warnings.simplefilter("ignore", EnergyBudgetWarning)
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
    seconds = np.concatenate(([0.0], np.cumsum(result.delay)[chosen]))
    loss = np.array([result.initial_loss, *result.loss[chosen]])
    return Curve(seconds, loss, np.array(result.metric[chosen]))


def time_to_loss(run: Curve, target: float) -> float:
    """Simulated time at which the loss first reaches the target [s], linear between evaluations; else NaN."""
    below = np.flatnonzero(run.loss <= target)
    if not below.size:
        return float("nan")
    part = slice(max(below[0] - 1, 0), below[0] + 1)
    return float(np.interp(-target, -run.loss[part], run.seconds[part]))


def reached(times: Sequence[float]) -> str:
    """Simulated times to a loss as text; if some runs never reach it, the number that do."""
    there = int(np.isfinite(times).sum())
    return interval(times, ".0f") if there == len(times) else f"{there} of {len(times)} reach it"


def interval(values: Sequence[float], digits: str) -> str:
    """Mean and 95 % bootstrap interval over seeds, as text."""
    found = estimate(list(values))
    mean = format(found.mean, digits)
    return mean if np.isnan(found.low) else f"{mean} ({found.low:{digits}}…{found.high:{digits}})"


def band(axes: Axes, x: FloatArray, runs: Sequence[FloatArray], colour: str) -> FloatArray:
    """Draw the mean over seeds, and a band from the least to the greatest; returns the mean."""
    mean: FloatArray = np.mean(runs, axis=0)
    axes.fill_between(x, np.min(runs, axis=0), np.max(runs, axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=colour, linewidth=1.5)
    return mean


def drawn(options: Training, figure: Figure, name: str) -> None:
    """Write a picture of the page, unless the training is a quick one."""
    if options.drawn:
        save(figure, PICTURES / name)


def stamped(text: str) -> str:
    """A part with the versions that trained, and the date."""
    named = ", ".join(f"{n} {v}" for n, v in versions().items() if n in ("collapipe-env", "torch"))
    return f"{text}\n\n{named}. Finished {time.strftime('%Y-%m-%d')}."
