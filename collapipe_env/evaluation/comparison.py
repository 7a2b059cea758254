"""Comparison of schedulers on one scenario, and the view over several scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.evaluation.labels import BUDGET_NOTE, SERVER_NOTE, label_of
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.resampling import Estimate, interquartile_mean, stratified_estimate
from collapipe_env.evaluation.runner import Outcome
from collapipe_env.evaluation.statistics import (
    Results,
    Summary,
    relative_differences,
    summarise_all,
    target_of,
)
from collapipe_env.schedulers import LEARNED
from collapipe_env.zoo.shipped_agents import is_shipped, shown_agent

REFERENCE = "dssra"
"""Default scheduler to which the others are compared."""


@dataclass(frozen=True)
class ScenarioComparison:
    """Result of a comparison on one scenario.

    Attributes:
        plan: The plan that was played.
        results: Each scheduler's episodes, for those that could play, in the requested order.
        impossible: Reasons why the others could not play.
        reference: Name of the scheduler to which the others are compared.
        summaries: A row of each scheduler, shortest priced delay (or priced time per unit of progress) first;
            those over their energy budgets come last.
        target: Target loss [nat]; NaN if there is none.
        goal: A sentence about the target.
    """

    plan: EvaluationPlan
    results: Results
    impossible: dict[str, str]
    reference: str
    summaries: list[Summary]
    target: float
    goal: str

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.plan.scenario.name

    @property
    def as_asked(self) -> list[Summary]:
        """The rows in the requested order of the schedulers."""
        found = {summary.scheduler: summary for summary in self.summaries}
        return [found[name] for name in self.results]

    def to_dict(self) -> dict[str, Any]:
        """Reference, target loss, rows and every round of every episode, for a JSON file."""
        return {
            "reference": self.reference,
            "target_loss": self.target,
            "summary": self.as_asked,
            "episodes": self.results,
        }


def reference_of(schedulers: Iterable[str]) -> str:
    """Name of the default reference scheduler: DSSRA if it plays, otherwise the first."""
    names = list(schedulers)
    return REFERENCE if REFERENCE in names else names[0]


def summarise_scenario(
    plan: EvaluationPlan, outcome: Outcome, reference: str | None = None
) -> ScenarioComparison:
    """Summarise one scenario.

    Args:
        plan: The plan that was played.
        outcome: Outcome of the plan.
        reference: Name of the scheduler to which the others are compared; by default :func:`reference_of`.
    """
    results = outcome.results
    reference = reference_of(plan.schedulers) if reference is None else reference
    if not results:
        nothing = "No scheduler could play."
        return ScenarioComparison(plan, {}, outcome.impossible, reference, [], float("nan"), nothing)
    target, goal = target_of(plan.scenario, results)
    summaries = summarise_all(results, target, reference, plan.scenario.dynamics.rounds)
    summaries.sort(key=lambda s: (s.gate.failed, s.measure.mean))
    return ScenarioComparison(plan, results, outcome.impossible, reference, summaries, target, goal)


def overall(comparisons: Sequence[ScenarioComparison]) -> list[Summary]:
    """A row of each scheduler over all scenarios, least priced first, those over their budgets last.

    Args:
        comparisons: One for each scenario; scenarios that their reference could not play do not count.

    Returns:
        Rows with ``scheduler`` and ``title``; ``scenarios``, the names of those that it could play with the
        reference, and over them: ``difference``, the interquartile mean over their episodes of the priced
        delay (or priced time per unit of progress) over the reference's in the same episode, less 1, where
        the bootstrap resamples each scenario's episodes separately; ``rank``, the mean with equal weights,
        NaN if it is over budget in one; ``excess``, the largest energy excess; ``server_blocks`` and
        ``runs``, the largest numbers; ``failed``, whether it is over its energy budget in any.
    """
    counted = [c for c in comparisons if c.reference in c.results]
    found = []
    for name in dict.fromkeys(name for c in counted for name in c.results):
        played = [c for c in counted if name in c.results]
        rows = [next(row for row in c.summaries if row.scheduler == name) for c in played]
        samples = [relative_differences(c.results[name], c.results[c.reference]) for c in played]
        own = Estimate(0.0) if name == played[0].reference else None
        found.append(
            Summary(
                scheduler=name,
                title=rows[0].title,
                scenarios=tuple(c.name for c in played),
                difference=own or stratified_estimate(samples, interquartile_mean),
                rank=float(np.mean([row.rank.mean for row in rows])),
                excess=max(row.energy_excess.mean for row in rows),
                server_blocks=max(row.server_blocks for row in rows),
                runs=max(row.runs for row in rows),
                failed=any(row.gate.failed for row in rows),
            )
        )
    return sorted(found, key=lambda row: (row.failed, row.difference.mean))


def common_labels(rows: Sequence[Summary]) -> dict[str, str]:
    """One label for each scheduler of several scenarios, with all titles that it has in them."""
    found = {}
    for name in dict.fromkeys(row.scheduler for row in rows):
        own = [row for row in rows if row.scheduler == name]
        titles = " / ".join(dict.fromkeys(row.title for row in own))
        found[name] = label_of(titles, max(row.server_blocks for row in own), max(row.runs for row in own))
    return found


def notes(comparisons: Sequence[ScenarioComparison]) -> list[str]:
    """Lines that explain the mark, and name the files of trained agents if there are any."""
    lines = []
    marked = [e for c in comparisons for one in c.results.values() for e in one if e.server_blocks > 0]
    if any(e.server_energy_ratio == 0.0 for e in marked):
        lines.append(SERVER_NOTE)
    elif marked:
        lines.append(BUDGET_NOTE)
    for comparison in comparisons:
        plan, results = comparison.plan, comparison.results
        if LEARNED in results and plan.agents:
            place = f" in {comparison.name}" if len(comparisons) > 1 else ""
            runs = f"{len(plan.agents)} training runs" if len(plan.agents) > 1 else "trained agent"
            files = ", ".join(map(shown_agent, plan.agents))
            lines.append(f"{results[LEARNED][0].title}{place}: {runs}, from {files}")
    shipped = {name: e[0].title for c in comparisons for name, e in c.results.items() if is_shipped(name)}
    return lines + [f"{title}: trained agent, from {name}" for name, title in shipped.items()]
