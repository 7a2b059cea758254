"""Raw results as CSV: every round, and every episode."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence

from collapipe_env.evaluation.columns import METRICS
from collapipe_env.evaluation.comparison import ScenarioComparison
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.episode_result import EpisodeResult

_FORMULA = re.compile(r"'*\s*[-=+@]")
"""Beginning of a text that a spreadsheet may take for a formula, or that :func:`cell_text` may have made."""
KEYS = ("scenario", "scheduler", "run", "episode", "seed")
"""First columns of both files."""
ROUND_FIGURES = {
    "delay_s": "delay", "reward": "reward", "worst_energy_ratio": "worst_energy", "backlog": "backlog",
    "largest_backlog": "largest_backlog", "loss_nat": "loss", "smoothed_loss_nat": "smoothed_loss",
    "metric": "metric", "peak_memory_bytes": "memory_bytes", "decision_s": "decision_s",
    "energy_j": "energy_j", "expected_progress": "progress",
}  # fmt: skip
"""Further columns of the file of rounds after the round's number, and the lists of an episode they show."""
EPISODE_FIGURES = {column.csv: column.of for column in METRICS if column.csv and column.of}
"""Further columns of the file of episodes."""


def rounds_csv(comparisons: Sequence[ScenarioComparison]) -> str:
    """A line for each round of each episode, counted from 1; empty where there is no number."""

    def lines(episode: EpisodeResult) -> Iterable[Sequence[float]]:
        lists = [getattr(episode, name) for name in ROUND_FIGURES.values()]
        return zip(range(1, len(episode.delay) + 1), *lists, strict=True)

    return _csv(("round", *ROUND_FIGURES), comparisons, lines)


def episodes_csv(comparisons: Sequence[ScenarioComparison]) -> str:
    """A line for each episode; empty where there is no number."""
    return _csv(EPISODE_FIGURES, comparisons, lambda e: [[of(e) for of in EPISODE_FIGURES.values()]])


def cell_text(text: str) -> str:
    """Return a name as a cell; an apostrophe in front keeps spreadsheets from computing it as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def _csv(
    names: Iterable[str],
    comparisons: Sequence[ScenarioComparison],
    lines: Callable[[EpisodeResult], Iterable[Sequence[float]]],
) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*KEYS, *names])
    for comparison in comparisons:
        for scheduler, episodes in comparison.results.items():
            for result in episodes:
                seed = HELD_OUT_SEED + result.episode
                key = (cell_text(comparison.name), cell_text(scheduler), result.run, result.episode, seed)
                for line in lines(result):
                    writer.writerow([*key, *("" if not math.isfinite(v) else v for v in line)])
    return text.getvalue()
