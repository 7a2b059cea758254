"""A comparison over scenarios: each scenario's summaries, and one view over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from collapipe_env.evaluation.labels import label_of
from collapipe_env.evaluation.runner import EvaluationPlan, Outcome
from collapipe_env.evaluation.statistics import (
    Estimate,
    Results,
    Summary,
    interquartile_mean,
    relative_differences,
    stratified_estimate,
    summarise_all,
    target_of,
)


@dataclass(frozen=True)
class ScenarioComparison:
    """What came of one scenario.

    Attributes:
        plan: What was played.
        results: Each scheduler's episodes, of those that could play.
        impossible: Why each of the others could not.
        summaries: A summary of each, shortest mean round delay first.
        target: Target loss [nat].
        goal: A sentence about it.
    """

    plan: EvaluationPlan
    results: Results
    impossible: dict[str, str]
    summaries: list[Summary]
    target: float
    goal: str

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.plan.scenario.name


@dataclass(frozen=True)
class Overall:
    """One scheduler over all scenarios that it could play with the reference.

    Attributes:
        scheduler: Name it was asked for by.
        title: Its own name.
        scenarios: Names of these scenarios.
        difference: Interquartile mean, over episodes of all of them, of the mean round delay over the
            reference's in the same episode, less 1. The bootstrap resamples each scenario's episodes by
            themselves.
        rank: Mean rank over scenarios, every scenario counting alike.
        excess: Largest energy excess of its scenarios: worst node's time-average energy over its budget,
            less 1.
        server_blocks: Most encoder blocks that the edge server ran for a cluster in any of them.
    """

    scheduler: str
    title: str
    scenarios: tuple[str, ...]
    difference: Estimate
    rank: float
    excess: float
    server_blocks: int

    @property
    def label(self) -> str:
        """Its own name, marked if it uses the edge server's compute."""
        return label_of(self.title, self.server_blocks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def summarise_scenario(plan: EvaluationPlan, outcome: Outcome, reference: str) -> ScenarioComparison:
    """Summarise one scenario.

    Args:
        plan: What was played.
        outcome: What came of it.
        reference: Name of the scheduler that the others are held against.
    """
    results = outcome.results
    if not results:
        return ScenarioComparison(plan, {}, outcome.impossible, [], float("nan"), "Nobody could play.")
    target, goal = target_of(plan.scenario, results)
    summaries = sorted(summarise_all(results, target, reference), key=lambda s: s.delay_mean.mean)
    return ScenarioComparison(plan, results, outcome.impossible, summaries, target, goal)


def overall(comparisons: Sequence[ScenarioComparison], reference: str) -> list[Overall]:
    """Every scheduler over all scenarios, shortest delays first.

    Args:
        comparisons: One for each scenario.
        reference: Name of the scheduler that the others are held against; scenarios that it could not play
            do not count.
    """
    counted = [c for c in comparisons if reference in c.results]
    found = []
    for name in dict.fromkeys(name for c in counted for name in c.results):
        played = [c for c in counted if name in c.results]
        lines = [next(s for s in c.summaries if s.scheduler == name) for c in played]
        samples = [relative_differences(c.results[name], c.results[reference]) for c in played]
        found.append(
            Overall(
                scheduler=name,
                title=lines[0].title,
                scenarios=tuple(c.name for c in played),
                difference=(
                    Estimate(0.0)
                    if name == reference
                    else stratified_estimate(samples, statistic=interquartile_mean)
                ),
                rank=float(np.mean([line.rank.mean for line in lines])),
                excess=max(line.energy_excess.mean for line in lines),
                server_blocks=max(line.server_blocks for line in lines),
            )
        )
    return sorted(found, key=lambda o: o.difference.mean)
