"""Raw results as CSV: every round, and every episode."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from collapipe_env.evaluation.comparison import ScenarioComparison
from collapipe_env.evaluation.episode import HELD_OUT_SEED, EpisodeResult

ROUND_COLUMNS = (
    "scenario", "scheduler", "episode", "seed", "round", "delay_s", "worst_energy_ratio", "backlog",
    "loss_nat", "smoothed_loss_nat", "metric", "peak_memory_bytes", "decision_s",
)  # fmt: skip
"""Of the file of rounds; rounds count from 1."""
EPISODE_COLUMNS = (
    "scenario", "scheduler", "episode", "seed", "rounds", "mean_delay_s", "p95_delay_s", "simulated_time_s",
    "worst_mean_energy_ratio", "final_backlog", "initial_loss_nat", "final_smoothed_loss_nat",
    "final_metric", "peak_memory_bytes", "median_decision_s",
)  # fmt: skip
"""Of the file of episodes."""


def rounds_csv(comparisons: Sequence[ScenarioComparison]) -> str:
    """A line for each round of each episode; empty where there is no number."""
    return _csv(ROUND_COLUMNS, _rounds(comparisons))


def episodes_csv(comparisons: Sequence[ScenarioComparison]) -> str:
    """A line for each episode; empty where there is no number."""
    return _csv(EPISODE_COLUMNS, _episode_lines(comparisons))


def _rounds(comparisons: Sequence[ScenarioComparison]) -> Iterator[list[object]]:
    for key, result in _episodes(comparisons):
        columns = (
            result.delay, result.worst_energy, result.backlog, result.loss, result.smoothed_loss,
            result.metric, result.memory_bytes, result.decision_s,
        )  # fmt: skip
        for index, line in enumerate(zip(*columns, strict=True)):
            yield [*key, index + 1, *line]


def _episode_lines(comparisons: Sequence[ScenarioComparison]) -> Iterator[list[object]]:
    for key, result in _episodes(comparisons):
        yield [
            *key,
            len(result.delay),
            float(np.mean(result.delay)),
            float(np.percentile(result.delay, 95)),
            float(np.sum(result.delay)),
            result.worst_energy_ratio,
            result.backlog[-1],
            result.initial_loss,
            result.smoothed_loss[-1],
            result.metric[-1],
            result.peak_memory_bytes,
            float(np.median(result.decision_s)),
        ]


def _episodes(
    comparisons: Sequence[ScenarioComparison],
) -> Iterator[tuple[tuple[object, ...], EpisodeResult]]:
    for comparison in comparisons:
        for name, episodes in comparison.results.items():
            for result in episodes:
                seed = HELD_OUT_SEED + result.episode
                yield (comparison.name, name, result.episode, seed), result


def _csv(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for line in lines:
        writer.writerow(["" if isinstance(v, float) and not math.isfinite(v) else v for v in line])
    return text.getvalue()
