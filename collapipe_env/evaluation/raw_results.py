"""Raw results as CSV: every round, and every episode."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from collapipe_env.evaluation.comparison import ScenarioComparison
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.episode_result import EpisodeResult

_FORMULA = re.compile(r"'*\s*[-=+@]")
"""Beginning of a text that a spreadsheet may take for a formula, or that :func:`cell_text` may have made."""
KEYS = ("scenario", "scheduler", "run", "episode", "seed")
"""First columns of both files."""
ROUND_FIGURES: dict[str, Callable[[EpisodeResult], Iterable[float]]] = {
    "round": lambda episode: range(1, len(episode.delay) + 1),
    "delay_s": lambda episode: episode.delay,
    "reward": lambda episode: episode.reward,
    "worst_energy_ratio": lambda episode: episode.worst_energy,
    "backlog": lambda episode: episode.backlog,
    "largest_backlog": lambda episode: episode.largest_backlog,
    "loss_nat": lambda episode: episode.loss,
    "smoothed_loss_nat": lambda episode: episode.smoothed_loss,
    "metric": lambda episode: episode.metric,
    "peak_memory_bytes": lambda episode: episode.memory_bytes,
    "decision_s": lambda episode: episode.decision_s,
    "energy_j": lambda episode: episode.energy_j,
    "expected_progress": lambda episode: episode.progress,
}
"""Further columns of the file of rounds, which count from 1."""
EPISODE_FIGURES: dict[str, Callable[[EpisodeResult], float]] = {
    "rounds": lambda episode: len(episode.delay),
    "priced_delay_s": lambda episode: episode.priced_delay,
    "return_per_round": lambda episode: episode.return_per_round,
    "mean_delay_s": lambda episode: float(np.mean(episode.delay)),
    "p95_delay_s": lambda episode: float(np.percentile(episode.delay, 95)),
    "seconds_per_progress": lambda episode: episode.seconds_per_progress,
    "energy_j": lambda episode: float(np.sum(episode.energy_j)),
    "simulated_time_s": lambda episode: float(np.sum(episode.delay)),
    "worst_mean_energy_ratio": lambda episode: episode.worst_energy_ratio,
    "final_backlog": lambda episode: episode.backlog[-1],
    "backlog_slope": lambda episode: episode.backlog_slope,
    "initial_loss_nat": lambda episode: episode.initial_loss,
    "final_smoothed_loss_nat": lambda episode: episode.smoothed_loss[-1],
    "final_metric": lambda episode: episode.metric[-1],
    "peak_memory_bytes": lambda episode: episode.peak_memory_bytes,
    "median_decision_s": lambda episode: float(np.median(episode.decision_s)),
}
"""Further columns of the file of episodes."""


def rounds_csv(comparisons: Sequence[ScenarioComparison]) -> str:
    """A line for each round of each episode; empty where there is no number."""
    return _csv(
        ROUND_FIGURES, comparisons, lambda e: zip(*(of(e) for of in ROUND_FIGURES.values()), strict=True)
    )


def episodes_csv(comparisons: Sequence[ScenarioComparison]) -> str:
    """A line for each episode; empty where there is no number."""
    return _csv(EPISODE_FIGURES, comparisons, lambda e: [[of(e) for of in EPISODE_FIGURES.values()]])


def cell_text(text: str) -> str:
    """Return a name as a cell of a file for spreadsheets, which show it instead of computing a formula.

    Args:
        text: The name. Names that begin with ``=``, ``+``, ``-`` or ``@`` get an apostrophe in front.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def text_of(cell: str) -> str:
    """Return the name that :func:`cell_text` made a cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


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
