"""Rules for local steps and participation by the time to a loss, under real training and one budget.

DSSRA with each fixed number of local steps and all clusters, the same with clusters that may sit out, and
``dssra-target`` play the same held-out episodes under a budget per second until a simulated time has passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from generated_parts import markdown_table
from player import KEPT, Play, rounds

from collapipe_env.agents.dssra.target import DSSRATarget
from collapipe_env.envs.default_reward import default_target_loss
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.plotting import COLOURS, DASHES, INK, MUTED, RC, new_figure, save
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE

DOCS = Path(__file__).parents[2] / "docs"
PROCESSES = 2
MOST_ROUNDS = 1000
"""Most rounds of an episode; a simulated time ends it earlier."""
POINTS = 200
"""Points of a curve."""
TARGET = "dssra-target"
"""Title of the rule that chooses everything."""


RULES: Mapping[str, tuple[str, Callable[[Scenario], DSSRATarget]]] = {
    **{
        f"h{steps}{name}": (
            f"H = {steps}, {who} clusters",
            partial(DSSRATarget, participation=who == "some", local_steps=(steps,)),
        )
        for who, name, numbers in (("all", "", (1, 4, 16)), ("some", "_some", (1, 4)))
        for steps in numbers
    },
    "target_all": ("dssra-target, all clusters", partial(DSSRATarget, participation=False)),
    "target": (TARGET, DSSRATarget),
}
"""Title and scheduler of each rule, in the order of the table."""


class Played(NamedTuple):
    """A rule's episodes, with mean local steps of clusters that take part, and the share that do."""

    title: str
    results: list[EpisodeResult]
    steps: float
    share: float


def opened(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Changes that open both decisions and set budgets per second."""
    return {
        "workload.task": entry["task"],
        "decisions": [*COLLAPIPE, "participation", "local_steps"],
        "budgets.per": "second",
        "dynamics.rounds": MOST_ROUNDS,
        "dynamics.target_loss": None,
        # Rounds of 16 local steps are few, so each is evaluated.
        "learning.evaluate_every": 1,
        "learning.metric_every": MOST_ROUNDS,
    }


def rounds_until(play: Play, seconds: float) -> int:
    """Rounds after which a simulated time [s] has passed in every episode.

    The learner does not affect delays, so the surrogate is enough.
    """
    passed, number = np.zeros(play.episodes), 0
    for number, seen in enumerate(rounds(play), 1):  # noqa: B007 - the last one counts
        passed += seen.record.costs.delay
        if (passed >= seconds).all():
            break
    return number


def play_all(entry: Mapping[str, Any], scenario: Scenario, seconds: float, episodes: int) -> list[Played]:
    """Play every rule with real training, and return their episodes."""
    plans = []
    for name, (_, rule) in RULES.items():
        options = {} if rule is DSSRATarget else rule.keywords
        play = Play(
            entry["scenario"], opened(entry), scheduler="dssra-target", options=options,
            episodes=episodes, seed=HELD_OUT_SEED,
        )  # fmt: skip
        plans.append(
            EvaluationPlan(
                scenario=scenario,
                schedulers=(name,),
                agents=(),
                episodes=episodes,
                rounds=rounds_until(play, seconds),
                learner="real",
                folder=KEPT / "target" / f"{scenario.name}-{entry['task']}" / name,
                factories={name: rule},
            )
        )
    outcomes = evaluate_all(plans, PROCESSES)
    found = []
    for (name, (title, _)), plan, outcome in zip(RULES.items(), plans, outcomes, strict=True):
        steps, players = [], []
        for episode in range(episodes):
            for decided in EpisodeFiles(plan.folder, name, episode, 0).read_decisions(scenario, plan.rounds):
                plays = np.asarray(decided.participates) != 0
                steps += np.asarray(decided.local_steps)[plays].tolist()
                players += plays.tolist()
        found.append(Played(title, outcome.results[name], float(np.mean(steps)), float(np.mean(players))))
    return found


def curve(result: EpisodeResult, column: str, grid: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The smoothed loss [nat] after ascending amounts of a column, ``delay`` [s] or ``energy_j`` [J]."""
    spent = np.cumsum(getattr(result, column)) * (1.0 - 1e-12)
    return np.array([result.initial_loss, *result.smoothed_loss])[np.searchsorted(spent, grid, side="right")]


def spent_until(result: EpisodeResult, column: str, target: float) -> float:
    """The time or energy until the smoothed loss reaches a target; NaN if it never does."""
    below = np.flatnonzero(np.asarray(result.smoothed_loss) <= target)
    return float(np.cumsum(getattr(result, column))[below[0]]) if below.size else math.nan


def table(played: Sequence[Played], target: float, seconds: float) -> str:
    """The table of the rules, until a simulated time [s]."""
    rows = []
    for one in played:
        times = [spent_until(r, "delay", target) for r in one.results]
        energies = [spent_until(r, "energy_j", target) for r in one.results]
        losses = [
            [curve(r, "delay", np.array([t]))[0] for t in (0.2 * seconds, seconds)] for r in one.results
        ]
        reached = sum(not math.isnan(t) for t in times)
        all_reached = reached == len(times)
        rows.append(
            [
                one.title,
                f"{one.steps:.1f}",
                f"{100.0 * one.share:.0f} %",
                f"{np.mean([r.seconds_per_progress for r in one.results]):.0f}",
                f"{np.mean(times):.0f}" if all_reached else f"{reached}/{len(times)} reached",
                f"{np.mean(energies) / 1e3:.2f}" if all_reached else "–",
                f"{np.mean([sum(r.energy_j) / sum(r.delay) for r in one.results]):.2f}",
                f"{np.mean([r.worst_energy_ratio for r in one.results]):.2f}",
                *(f"{value:.3f}" for value in np.mean(losses, axis=0)),
            ]
        )
    names = (
        "rule", "mean H", "take part", "s per progress", f"s to {target:.3f} nat", "kJ to it", "mean W",
        "worst power / budget", f"loss after {0.2 * seconds:g} s", f"after {seconds:g} s",
    )  # fmt: skip
    return markdown_table(names, rows)


def draw(played: Sequence[Played], target: float, path: Path) -> None:
    """Draw loss against simulated time and against energy."""
    with mpl.rc_context(RC):
        figure = new_figure(10.0, 4.2)
        axes = figure.subplots(1, 2, sharey=True)
        for which, (column, unit, label) in enumerate(
            (("delay", 60.0, "simulated time (min)"), ("energy_j", 1e3, "energy of all nodes (kJ)"))
        ):
            ends = [min(sum(getattr(r, column)) for r in one.results) for one in played]
            for place, one in enumerate(played):
                grid = np.linspace(0.0, ends[place], POINTS)
                losses = np.array([curve(r, column, grid) for r in one.results])
                style = {"linewidth": 2.4} if one.title == TARGET else {"linewidth": 1.3}
                colour = INK if one.title == TARGET else COLOURS[place]
                dashed = {"linestyle": "--"} if "some" in one.title else {}
                axes[which].plot(
                    grid / unit, losses.mean(axis=0), color=colour, label=one.title, **style, **dashed
                )
            axes[which].axhline(target, color=MUTED, linewidth=1.0, linestyle=DASHES)
            axes[which].set_xlim(0.0, min(max(ends), 1.5 * float(np.median(ends))) / unit)
            axes[which].set_xlabel(label)
        axes[0].set_ylabel("evaluation loss, smoothed (nat)")
        axes[1].legend(loc="upper right")
        save(figure, path)


def study(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of the rules; the curves go to ``docs/images``."""
    scenario = load_scenario(entry["scenario"]).with_overrides(opened(entry))
    seconds, episodes = (60.0, 1) if quick else (entry["seconds"], entry["episodes"])
    target = default_target_loss(scenario)
    played = play_all(entry, scenario, seconds, episodes)
    if not quick:
        draw(played, target, DOCS / "images" / f"time_to_target-{scenario.name}-{entry['task']}.png")
    return table(played, target, seconds)
