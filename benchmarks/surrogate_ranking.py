"""Rank correlation of schedulers' time-to-target between surrogate and real training (Spearman).

Every scheduler plays the same held-out episodes under both learners. Delays must be equal: then decisions and
losses of micro-batches are, and only the learning differs. The target is the smoothed loss that the median
real episode has reached after 60 % of the rounds. Episodes that never reach it count with their whole length.
Schedulers whose training the surrogate does not model (split training, stale weights) are left out of the
headline figure and reported separately. Finished episodes are kept, so an interrupted run resumes. Run::

    python benchmarks/surrogate_ranking.py
    python benchmarks/surrogate_ranking.py --scenario medium --task ner --episodes 5
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from measuring import BenchmarkOptions, Figure, command, publish
from pydantic import Field
from scipy.stats import rankdata, spearmanr

from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.runner import decisions_of, evaluate_all
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.physics.allocation import ASYNC, COMMON, Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import scheduler_names

GOAL = 0.9
TARGET_ROUND = 0.6
"""Share of the rounds after which the median real episode has just reached the target."""
RESAMPLES = 2000
LEARNERS = ("real", "surrogate")


class Options(BenchmarkOptions):
    """Rank correlation of schedulers' time-to-target between surrogate and real training."""

    scenario: str = "small"
    """A shipped scenario or a YAML file."""
    task: str | None = None
    """Task to train; the scenario's own by default."""
    schedulers: tuple[str, ...] = ()
    """Schedulers to rank, at least 3; all by default."""
    episodes: Annotated[int, Field(ge=1)] = 3
    """Held-out episodes of each, at least 1."""
    rounds: Annotated[int, Field(ge=5)] | None = None
    """Rounds of an episode, at least 5; the scenario's by default."""
    target: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """Target loss in nats; by default that of the median real episode after 60 % of the rounds."""
    folder: Path = Path("surrogate-ranking")
    """Folder of the finished episodes."""
    processes: Annotated[int, Field(ge=1)] = 1
    """Worker processes, at least 1."""


class Course(NamedTuple):
    """One episode under one learner: delays [s], and smoothed losses after each round [nat]."""

    delay: FloatArray
    loss: FloatArray

    def to_target(self, target: float) -> tuple[float, int, bool]:
        """Seconds and rounds until the loss reaches the target (or the episode ends), and whether it does."""
        below = np.flatnonzero(self.loss <= target)
        rounds = int(below[0]) + 1 if below.size else len(self.delay)
        return float(self.delay[:rounds].sum()), rounds, bool(below.size)


Courses = Mapping[str, Sequence[Course]]
"""A scheduler's episodes by learner."""


class Ranked(NamedTuple):
    """One scheduler under both learners.

    Attributes:
        scheduler: Name by which it is requested.
        modelled: Whether the surrogate models its training.
        figures: Seconds and rounds to the target, and whether it was reached, for each learner and episode
            (2, episodes, 3).
    """

    scheduler: str
    modelled: bool
    figures: FloatArray

    @classmethod
    def of(cls, scheduler: str, modelled: bool, courses: Courses, target: float) -> Ranked:
        """Measure a scheduler's episodes under both learners by the target."""
        found = [[one.to_target(target) for one in courses[learner]] for learner in LEARNERS]
        return cls(scheduler, modelled, np.array(found, dtype=np.float64))


def modelled(allocations: Sequence[Allocation]) -> bool:
    """Whether the surrogate models how these plans train: one common head, no stale weights."""
    return not any(
        bool(np.any(a.server.server_mode != COMMON) or np.any(a.schedules.schedule == ASYNC))
        for a in allocations
    )


def play(options: Options) -> tuple[EvaluationPlan, dict[str, Courses], dict[str, str]]:
    """Play all episodes that are not finished yet.

    Returns:
        The plan under the real learner, the episodes by scheduler and learner, and the reasons of schedulers
        that cannot play the scenario.
    """
    scenario = load_scenario(options.scenario)
    scenario = scenario.with_task(options.task or scenario.workload.task)
    scenario = scenario.with_overrides({"dynamics.target_loss": None})
    plans = [
        EvaluationPlan(
            scenario=scenario,
            schedulers=options.schedulers or scheduler_names(),
            agents=(),
            episodes=options.episodes,
            rounds=min(options.rounds or scenario.dynamics.rounds, scenario.dynamics.rounds),
            learner=learner,
            folder=options.folder / scenario.name / learner,
        )
        for learner in LEARNERS
    ]
    outcomes = evaluate_all(plans, options.processes, tolerant=True)
    courses: dict[str, Courses] = {}
    for name in outcomes[0].results:
        found = {
            learner: [Course(np.array(r.delay), np.array(r.smoothed_loss)) for r in outcome.results[name]]
            for learner, outcome in zip(LEARNERS, outcomes, strict=True)
        }
        for first, second in zip(*found.values(), strict=True):
            if not np.allclose(first.delay, second.delay, rtol=1e-9):
                raise DataError(f"{name!r} decides otherwise under the surrogate: leave it out")
        courses[name] = found
    return plans[0], courses, outcomes[0].impossible


def default_target(courses: Sequence[Course]) -> float:
    """The smoothed loss that the median episode has reached after 60 % of the rounds [nat]."""
    place = math.ceil(TARGET_ROUND * len(courses[0].loss)) - 1
    return float(np.median([one.loss[place] for one in courses]))


def correlation(name: str, real: FloatArray, surrogate: FloatArray) -> Figure:
    """Spearman's coefficient of the means over episodes, with a 95 % bootstrap interval.

    Both schedulers and episodes are resampled, as either could have been others. The coefficient is NaN where
    one of the learners ranks all schedulers the same.

    Args:
        name: Name of the figure.
        real: One number for each scheduler and episode (schedulers, episodes).
        surrogate: The same under the surrogate.
    """
    schedulers, episodes = real.shape
    rng = np.random.default_rng(0)
    rows = rng.integers(schedulers, size=(RESAMPLES, schedulers, 1))
    columns = rng.integers(episodes, size=(RESAMPLES, 1, episodes))
    first, second = (rankdata(table[rows, columns].mean(axis=-1), axis=-1) for table in (real, surrogate))
    # Spearman's coefficient is Pearson's of the ranks; resamples whose ranks are all the same have none.
    first, second = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (first, second))
    scale = np.sqrt((first**2).sum(axis=-1) * (second**2).sum(axis=-1))
    drawn = (first * second).sum(axis=-1)[scale > 0.0] / scale[scale > 0.0]
    low, high = np.percentile(drawn, [2.5, 97.5]) if drawn.size else (math.nan, math.nan)
    means = real.mean(axis=1), surrogate.mean(axis=1)
    varied = all(np.ptp(mean) > 0.0 for mean in means)
    rho = float(spearmanr(*means).statistic) if varied else math.nan
    return Figure(f"{name} ({schedulers})", rho, "rho", float(low), float(high))


def correlations(schedulers: Sequence[Ranked]) -> list[Figure]:
    """The coefficients of seconds and rounds to the target, of modelled schedulers and of all."""
    found = []
    for group, chosen in (("modelled", [r for r in schedulers if r.modelled]), ("all", list(schedulers))):
        if len(chosen) < 3:
            raise ScenarioError(
                f"only {len(chosen)} {group} schedulers can play this scenario; a ranking needs at least 3"
            )
        tables = np.stack([r.figures for r in chosen], axis=1)  # learners, schedulers, episodes, figures
        for place, unit in enumerate(("seconds", "rounds")):
            found.append(correlation(f"{unit}, {group} schedulers", *tables[..., place]))
    return found


def table(schedulers: Sequence[Ranked]) -> str:
    """Means over episodes of both learners, as text."""
    lines = [f"{'scheduler':20}    real s  surrogate s  real rounds  surrogate rounds  reached by"]
    for r in schedulers:
        (real_s, real_n, _), (s, n, _) = r.figures.mean(axis=1)
        real, surrogate = r.figures[..., 2].sum(axis=1)
        lines.append(
            f"{r.scheduler:20} {real_s:9.1f} {s:12.1f} {real_n:12.1f} {n:17.1f}  {real:.0f} and "
            f"{surrogate:.0f} of {r.figures.shape[1]}" + ("" if r.modelled else "   (not modelled)")
        )
    return "\n".join(lines)


def _run(options: Options) -> None:
    plan, courses, impossible = play(options)
    target = options.target or default_target([one for found in courses.values() for one in found["real"]])
    schedulers = []
    for name, found in courses.items():
        plans = [a for episode in range(plan.episodes) for a in decisions_of(plan, name, episode)]
        schedulers.append(Ranked.of(name, modelled(plans), found, target))
    schedulers.sort(key=lambda r: float(r.figures[0, :, 0].mean()))
    figures = correlations(schedulers)
    print(f"target {target:.4f} nat\n{table(schedulers)}")
    for name, reason in impossible.items():
        print(f"{name}: not possible: {reason}")
    met = (figures[0].value or 0.0) >= GOAL
    used: dict[str, Any] = {"scenario": plan.scenario.name, "task": plan.scenario.workload.task}
    publish(
        options.model_copy(update={**used, "rounds": plan.rounds}),
        "schedulers' time to a target loss under real training and under the surrogate (Spearman's rho)",
        figures,
        target_nat=target,
        goal_met=met,
        schedulers=[{**r._asdict(), "figures": r.figures.tolist()} for r in schedulers],
        impossible=impossible,
    )
    print(f"goal, rho of seconds of modelled schedulers at least {GOAL:g}: {'met' if met else 'missed'}")


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
