"""Rank correlation of schedulers' time-to-target between surrogate and real training (Spearman).

Every scheduler plays the same held-out episodes with real training; the surrogate then follows the very
same decisions, so that delays and losses of micro-batches are equal and only the learning differs. The target
is the smoothed loss that the median real episode has reached after 60 % of the rounds. Episodes that never
reach it count with their whole length. Schedulers whose training the surrogate does not model (split
training, stale weights) are left out of the headline figure and reported apart. Finished episodes are kept,
so an interrupted call goes on where it was. Run::

    python benchmarks/surrogate_ranking.py
    python benchmarks/surrogate_ranking.py --scenario medium --task ner --episodes 5
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from measuring import RESULTS, command, followed, store, within
from scipy.stats import rankdata, spearmanr

from collapipe_env.allocation import ASYNC, COMMON, Allocation
from collapipe_env.arrays import FloatArray
from collapipe_env.errors import DataError, ScenarioError
from collapipe_env.evaluation.runner import EvaluationPlan, decisions_of, evaluate_all
from collapipe_env.evaluation.scheduler_loading import require_scheduler
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import scheduler_names

GOAL = 0.9
TARGET_ROUND = 0.6
"""Share of the rounds after which the median real episode has just reached the target."""
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Options:
    """Rank correlation of schedulers' time-to-target between surrogate and real training."""

    scenario: str = "small"
    """A shipped scenario or a YAML file."""
    task: str | None = None
    """Task to train; the scenario's own by default."""
    schedulers: tuple[str, ...] = ()
    """Schedulers to rank, at least 3; all by default."""
    episodes: int = 3
    """Held-out episodes of each, 1 to 1,000."""
    rounds: int | None = None
    """Rounds of an episode, at least 5; the scenario's by default."""
    target: float | None = None
    """Target loss in nats; by default that of the median real episode after 60 % of the rounds."""
    folder: Path = Path("surrogate-ranking")
    """Folder of the finished episodes."""
    processes: int = 1
    """Worker processes, 1 to 512."""
    output: Path = RESULTS / "surrogate_ranking.json"
    """JSON file to write."""

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            ScenarioError: Names the option, its value and the range.
        """
        within(
            ("--episodes", self.episodes, 1, 1000),
            ("--processes", self.processes, 1, 512),
            ("--rounds", self.rounds, 5, 10_000_000),
        )
        if self.target is not None and not 0.0 < self.target < math.inf:
            raise ScenarioError(f"--target: {self.target} is not a finite number above 0")
        for scheduler in self.schedulers:
            require_scheduler(scheduler)
        if 0 < len(set(self.schedulers)) < 3 or len(set(self.schedulers)) < len(self.schedulers):
            raise ScenarioError(f"--schedulers: {self.schedulers}; name at least 3 different ones")


@dataclass(frozen=True)
class Course:
    """One episode under one learner: an entry for each round.

    Attributes:
        delay: Round delays [s].
        loss: Smoothed loss after each round [nat].
    """

    delay: FloatArray
    loss: FloatArray

    def to_target(self, target: float) -> tuple[float, int, bool]:
        """Seconds and rounds until the loss is at the target (else of the episode), and whether it is."""
        below = np.flatnonzero(self.loss <= target)
        rounds = int(below[0]) + 1 if below.size else len(self.delay)
        return float(self.delay[:rounds].sum()), rounds, bool(below.size)


LEARNERS = ("real", "surrogate")


@dataclass(frozen=True)
class Ranked:
    """One scheduler under both learners: an entry for each episode, by learner.

    Attributes:
        scheduler: Name it is asked for by.
        modelled: Whether the surrogate models its training.
        seconds: Simulated time to the target [s].
        rounds: Rounds to the target.
        reached: Whether the target was reached.
    """

    scheduler: str
    modelled: bool
    seconds: dict[str, list[float]]
    rounds: dict[str, list[int]]
    reached: dict[str, list[bool]]

    @classmethod
    def of(
        cls, scheduler: str, modelled: bool, courses: Mapping[str, Sequence[Course]], target: float
    ) -> Ranked:
        """Hold a scheduler's episodes under both learners against the target."""
        found = {learner: [one.to_target(target) for one in courses[learner]] for learner in LEARNERS}
        columns = ({learner: [e[i] for e in found[learner]] for learner in LEARNERS} for i in range(3))
        return cls(scheduler, modelled, *columns)


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation between the learners, of means over episodes.

    Attributes:
        rho: The coefficient; NaN where one of the learners ranks all the same.
        low: Lower end of its 95 % bootstrap interval over schedulers and episodes.
        high: Upper end.
        schedulers: How many are ranked.
    """

    rho: float
    low: float
    high: float
    schedulers: int


def modelled(allocations: Sequence[Allocation]) -> bool:
    """Whether the surrogate models how these plans train: one common head, no stale weights."""
    return not any(
        (a.server_mode is not None and bool(np.any(a.server_mode != COMMON)))
        or (a.schedule is not None and bool(np.any(a.schedule == ASYNC)))
        for a in allocations
    )


def play(options: Options) -> tuple[EvaluationPlan, dict[str, dict[str, list[Course]]], dict[str, str]]:
    """Play all episodes that are not finished yet.

    Returns:
        The plan, the episodes by scheduler and learner, and why schedulers that cannot play the scenario
        cannot.
    """
    scenario = load_scenario(options.scenario)
    scenario = scenario.with_task(options.task or scenario.workload.task)
    plan = EvaluationPlan(
        scenario=scenario,
        schedulers=options.schedulers or scheduler_names(),
        agent=None,
        episodes=options.episodes,
        rounds=min(options.rounds or scenario.dynamics.rounds, scenario.dynamics.rounds),
        learner="real",
        folder=options.folder / scenario.name,
    )
    (outcome,) = evaluate_all([plan], options.processes, tolerant=True)
    courses: dict[str, dict[str, list[Course]]] = {}
    for name, results in outcome.results.items():
        real = [Course(np.array(r.delay), np.array(r.smoothed_loss)) for r in results]
        courses[name] = {"real": real, "surrogate": []}
        for episode, played in enumerate(real):
            course = [(record.costs.delay[0], loss) for record, loss in followed(plan, name, episode)]
            delay, loss = np.array(course).T
            if not np.allclose(delay, played.delay, rtol=1e-9):
                raise DataError(
                    f"{plan.folder}: the decisions of {name!r} in episode {episode} give other delays now; "
                    "delete the folder to measure again"
                )
            courses[name]["surrogate"].append(Course(delay, loss))
    return plan, courses, outcome.impossible


def default_target(courses: Sequence[Course]) -> float:
    """The smoothed loss that the median episode has reached after 60 % of the rounds [nat]."""
    place = math.ceil(TARGET_ROUND * len(courses[0].loss)) - 1
    return float(np.median([one.loss[place] for one in courses]))


def correlation(torch: FloatArray, surrogate: FloatArray, seed: int = 0) -> Correlation:
    """Spearman's coefficient of the means over episodes, with a bootstrap interval.

    Both schedulers and episodes are resampled: either could have been others.

    Args:
        torch: One figure for each scheduler and episode (schedulers, episodes).
        surrogate: The same under the surrogate.
        seed: Of the resampling.
    """
    schedulers, episodes = torch.shape
    rng = np.random.default_rng(seed)
    rows = rng.integers(schedulers, size=(RESAMPLES, schedulers, 1))
    columns = rng.integers(episodes, size=(RESAMPLES, 1, episodes))
    first, second = (rankdata(table[rows, columns].mean(axis=-1), axis=-1) for table in (torch, surrogate))
    # Spearman's coefficient is Pearson's of the ranks; resamples whose ranks are all the same have none.
    first, second = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (first, second))
    scale = np.sqrt((first**2).sum(axis=-1) * (second**2).sum(axis=-1))
    drawn = (first * second).sum(axis=-1)[scale > 0.0] / scale[scale > 0.0]
    tails = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(drawn, [tails, 100.0 - tails]) if drawn.size else (math.nan, math.nan)
    means = torch.mean(axis=1), surrogate.mean(axis=1)
    varied = all(np.ptp(mean) > 0.0 for mean in means)
    rho = float(spearmanr(*means).statistic) if varied else math.nan
    return Correlation(rho, float(low), float(high), schedulers)


def correlations(schedulers: Sequence[Ranked]) -> dict[str, Correlation]:
    """The coefficients of seconds and rounds to the target, of modelled schedulers and of all."""
    figures = {}
    for group, chosen in (("modelled", [r for r in schedulers if r.modelled]), ("all", list(schedulers))):
        if len(chosen) < 3:
            raise ScenarioError(
                f"only {len(chosen)} {group} schedulers can play this scenario; a ranking needs at least 3"
            )
        for unit in ("seconds", "rounds"):
            tables = (
                np.array([getattr(r, unit)[learner] for r in chosen], dtype=np.float64)
                for learner in LEARNERS
            )
            figures[f"{group}_{unit}"] = correlation(*tables)
    return figures


def report(schedulers: Sequence[Ranked], figures: Mapping[str, Correlation], target: float) -> str:
    """The table as text, and the coefficients."""
    lines = [
        f"target {target:.4f} nat",
        f"{'scheduler':20} {'real s':>10} {'surrogate s':>11} {'real rounds':>13} {'surrogate rounds':>16}"
        "  reached by",
    ]
    for r in schedulers:
        seconds, rounds = ({k: np.mean(v) for k, v in d.items()} for d in (r.seconds, r.rounds))
        real, surrogate = (sum(r.reached[learner]) for learner in LEARNERS)
        lines.append(
            f"{r.scheduler:20} {seconds['real']:10.1f} {seconds['surrogate']:11.1f} {rounds['real']:13.1f} "
            f"{rounds['surrogate']:16.1f}  {real} and {surrogate} of {len(r.reached['real'])}"
            + ("" if r.modelled else "   (not modelled)")
        )
    for name, found in figures.items():
        group, _, unit = name.partition("_")
        verdict = ""
        if name == "modelled_seconds":
            verdict = f"; goal at least {GOAL:g} {'met' if found.rho >= GOAL else 'missed'}"
        lines.append(
            f"rho of {unit} to the target, {group} schedulers ({found.schedulers}): {found.rho:.3f} "
            f"[{found.low:.3f}, {found.high:.3f}]{verdict}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, rank, print and store; returns the exit status."""
    return command(Options, _run, __doc__, arguments)


def _run(options: Options) -> None:
    plan, courses, impossible = play(options)
    target = options.target
    if target is None:
        target = default_target([one for found in courses.values() for one in found["real"]])
    schedulers = [
        Ranked.of(
            name,
            modelled([a for episode in range(plan.episodes) for a in decisions_of(plan, name, episode)]),
            found,
            target,
        )
        for name, found in courses.items()
    ]
    schedulers.sort(key=lambda r: float(np.mean(r.seconds["real"])))
    figures = correlations(schedulers)
    print(report(schedulers, figures, target))
    for name, reason in impossible.items():
        print(f"{name}: not possible: {reason}")
    task = plan.scenario.workload.task
    store(
        options.output,
        "schedulers' time to a target loss under real training and under the surrogate",
        replace(options, scenario=plan.scenario.name, task=task, rounds=plan.rounds),
        target_nat=target,
        correlations={name: asdict(found) for name, found in figures.items()},
        goal_met=figures["modelled_seconds"].rho >= GOAL,
        schedulers=[asdict(entry) for entry in schedulers],
        impossible=impossible,
    )


if __name__ == "__main__":
    sys.exit(main())
