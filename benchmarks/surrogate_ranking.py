"""Rank correlation of schedulers' time-to-target between surrogate and real training (Spearman).

Every scheduler plays the same held-out episodes with the torch learner; the surrogate then follows the very
same decisions, so that delays and losses of micro-batches are equal and only the learning differs. The target
is the smoothed loss that the median torch episode has reached after 60 % of the rounds. Episodes that never
reach it count with their whole length. Schedulers whose training the surrogate does not model (split
training, stale weights) are left out of the headline figure and reported apart. Finished episodes are kept,
so an interrupted call goes on where it was. Run::

    python benchmarks/surrogate_ranking.py
    python benchmarks/surrogate_ranking.py --scenario medium --task ner --episodes 5
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from measuring import RESULTS, command, store, within
from scipy.stats import rankdata, spearmanr
from tqdm import tqdm

from collapipe_env.allocation import ASYNC, COMMON, Allocation
from collapipe_env.arrays import FloatArray
from collapipe_env.errors import DataError, ScenarioError
from collapipe_env.evaluation.episode import EpisodeResult, play_episode
from collapipe_env.evaluation.runner import EvaluationPlan, decisions_of, evaluate_all
from collapipe_env.evaluation.scheduler_loading import require_scheduler
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import scheduler_names
from collapipe_env.simulator.state import SystemState

GOAL = 0.9
TARGET_ROUND = 0.6
"""Share of the rounds after which the median torch episode has just reached the target."""
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Options:
    """Rank correlation of schedulers' time-to-target between surrogate and torch learner."""

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
    """Target loss in nats; by default that of the median torch episode after 60 % of the rounds."""
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


class Recorded:
    """Decides what was decided before."""

    def __init__(self, name: str, allocations: Sequence[Allocation]) -> None:
        """Take a scheduler's place.

        Args:
            name: Its name.
            allocations: Its decisions, one for each round.
        """
        self.name = name
        self._allocations = allocations
        self._round = 0

    def reset(self, seed: int | None = None) -> None:  # noqa: ARG002 - nothing is drawn
        """Begin with the first decision."""
        self._round = 0

    def act(self, observation: npt.NDArray[np.float32], state: SystemState) -> Allocation:  # noqa: ARG002
        """The next decision."""
        allocation = self._allocations[self._round]
        self._round += 1
        return allocation.map(lambda array: array[None])


@dataclass(frozen=True)
class Ranked:
    """One scheduler under both learners, an entry for each episode.

    Attributes:
        scheduler: Name it is asked for by.
        modelled: Whether the surrogate models its training.
        torch_seconds: Simulated time to the target under the torch learner [s].
        surrogate_seconds: The same under the surrogate.
        torch_rounds: Rounds to the target.
        surrogate_rounds: The same under the surrogate.
        torch_reached: Whether the target was reached.
        surrogate_reached: The same under the surrogate.
    """

    scheduler: str
    modelled: bool
    torch_seconds: list[float]
    surrogate_seconds: list[float]
    torch_rounds: list[int]
    surrogate_rounds: list[int]
    torch_reached: list[bool]
    surrogate_reached: list[bool]


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


def play(
    options: Options,
) -> tuple[EvaluationPlan, dict[str, list[EpisodeResult]], dict[str, list[EpisodeResult]], dict[str, str]]:
    """Play all episodes that are not finished yet.

    Args:
        options: What to play.

    Returns:
        The plan, the torch learner's episodes by scheduler, the surrogate's, and why schedulers that cannot
        play the scenario cannot.
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
    follow = [(name, episode) for name in outcome.results for episode in range(plan.episodes)]
    surrogate: dict[str, list[EpisodeResult]] = {name: [] for name in outcome.results}
    for name, episode in tqdm(follow, desc="surrogate", unit=" episode", disable=None):
        recorded = Recorded(name, decisions_of(plan, name, episode))
        played = play_episode(name, recorded, scenario, episode, plan.rounds, "surrogate").result
        if not np.allclose(played.delay, outcome.results[name][episode].delay, rtol=1e-9):
            raise DataError(
                f"{plan.folder}: the decisions of {name!r} in episode {episode} give other delays now; "
                "delete the folder to measure again"
            )
        surrogate[name].append(played)
    return plan, outcome.results, surrogate, outcome.impossible


def default_target(results: Mapping[str, Sequence[EpisodeResult]], rounds: int) -> float:
    """The smoothed loss that the median torch episode has reached after 60 % of the rounds [nat]."""
    place = math.ceil(TARGET_ROUND * rounds) - 1
    return float(np.median([r.smoothed_loss[place] for episodes in results.values() for r in episodes]))


def to_target(result: EpisodeResult, target: float) -> tuple[float, int, bool]:
    """Seconds and rounds until the smoothed loss is at the target, the whole episode if it never is."""
    below = np.flatnonzero(np.asarray(result.smoothed_loss) <= target)
    rounds = int(below[0]) + 1 if below.size else len(result.delay)
    return float(np.sum(result.delay[:rounds])), rounds, bool(below.size)


def ranked(
    plan: EvaluationPlan,
    torch: Mapping[str, Sequence[EpisodeResult]],
    surrogate: Mapping[str, Sequence[EpisodeResult]],
    target: float,
) -> list[Ranked]:
    """Every scheduler under both learners, the fastest under the torch learner first."""
    found = []
    for name in torch:
        real = [to_target(result, target) for result in torch[name]]
        bound = [to_target(result, target) for result in surrogate[name]]
        plans = [a for episode in range(plan.episodes) for a in decisions_of(plan, name, episode)]
        found.append(
            Ranked(
                name,
                modelled(plans),
                [r[0] for r in real],
                [b[0] for b in bound],
                [r[1] for r in real],
                [b[1] for b in bound],
                [r[2] for r in real],
                [b[2] for b in bound],
            )
        )
    return sorted(found, key=lambda r: float(np.mean(r.torch_seconds)))


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
    for group, chosen in (
        ("modelled", [r for r in schedulers if r.modelled]),
        ("all", list(schedulers)),
    ):
        if len(chosen) < 3:
            raise ScenarioError(
                f"only {len(chosen)} {group} schedulers can play this scenario; a ranking needs at least 3"
            )
        for unit in ("seconds", "rounds"):
            torch, surrogate = (
                np.array([getattr(r, f"{learner}_{unit}") for r in chosen], dtype=np.float64)
                for learner in ("torch", "surrogate")
            )
            figures[f"{group}_{unit}"] = correlation(torch, surrogate)
    return figures


def report(schedulers: Sequence[Ranked], figures: Mapping[str, Correlation], target: float) -> str:
    """The table as text, and the coefficients."""
    lines = [
        f"target {target:.4f} nat",
        f"{'scheduler':20} {'torch s':>10} {'surrogate s':>11} {'torch rounds':>13} {'surrogate rounds':>16}"
        "  reached by",
    ]
    lines += [
        f"{r.scheduler:20} {np.mean(r.torch_seconds):10.1f} {np.mean(r.surrogate_seconds):11.1f} "
        f"{np.mean(r.torch_rounds):13.1f} {np.mean(r.surrogate_rounds):16.1f}  "
        f"{sum(r.torch_reached)} and {sum(r.surrogate_reached)} of {len(r.torch_reached)}"
        + ("" if r.modelled else "   (not modelled)")
        for r in schedulers
    ]
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
    start = time.perf_counter()
    plan, torch, surrogate, impossible = play(options)
    target = default_target(torch, plan.rounds) if options.target is None else options.target
    schedulers = ranked(plan, torch, surrogate, target)
    figures = correlations(schedulers)
    print(report(schedulers, figures, target))
    for name, reason in impossible.items():
        print(f"{name}: not possible: {reason}")
    played = replace(
        options, scenario=plan.scenario.name, task=plan.scenario.workload.task, rounds=plan.rounds
    )
    store(
        options.output,
        "schedulers' time to a target loss under the torch learner and under the surrogate",
        played,
        seconds=time.perf_counter() - start,
        target_nat=target,
        correlations={name: asdict(found) for name, found in figures.items()},
        goal_met=figures["modelled_seconds"].rho >= GOAL,
        schedulers=[asdict(entry) for entry in schedulers],
        impossible=impossible,
    )


if __name__ == "__main__":
    sys.exit(main())
