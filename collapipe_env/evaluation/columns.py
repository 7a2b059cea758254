"""Columns of tables and files: key, title, unit, format and direction of every figure, told once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.resampling import Estimate

Value = Callable[[EpisodeResult], float]


@dataclass(frozen=True)
class Column:
    """Column of a table: the key of its values in the rows, and how it shows them.

    Attributes:
        key: Key of the values in the rows.
        unit: Unit in which they are shown; empty for a pure number or a text.
        digits: Format of a number; by default two decimals below 10 and none above.
        scale: Factor from the value to its unit.
        name: Title; by default the key with spaces.
        better: Direction that is better: ``"low"``, ``"high"``, or neither.
        of: Value of an episode, over which the row's value is the mean; ``None`` for other columns.
        csv: Name of the episodes' values in ``episodes.csv``; empty where they are not there.
    """

    key: str
    unit: str = ""
    digits: str = ""
    scale: float = 1.0
    name: str = ""
    better: str = ""
    of: Value | None = None
    csv: str = ""

    @property
    def title(self) -> str:
        """Its name alone."""
        return self.name or self.key.replace("_", " ")

    @property
    def heading(self) -> str:
        """Its name and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def parts(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """A row's value and its interval as texts; empty where there is none.

        Args:
            row: Holds a text, a number or an :class:`~collapipe_env.evaluation.resampling.Estimate`.
        """
        value = row.get(self.key, "")
        if isinstance(value, str):
            return value, ""
        return cell(value if isinstance(value, Estimate) else Estimate(value), self.digits, self.scale)


def cell(estimate: Estimate, digits: str, scale: float = 1.0) -> tuple[str, str]:
    """An estimate and its interval as texts.

    Args:
        estimate: The estimate; a dash stands for NaN.
        digits: Format of its numbers; empty for two decimals below 10 and none above.
        scale: Factor to their unit.
    """
    mean, low, high = (value * scale for value in (estimate.mean, estimate.low, estimate.high))
    digits = digits or (".2f" if mean < 10.0 else ".0f")
    interval = "" if math.isnan(low) else f"{low:{digits}}…{high:{digits}}"
    return ("–", "") if math.isnan(mean) else (f"{mean:{digits}}", interval)


def mean_delay(episode: EpisodeResult) -> float:
    """An episode's mean round delay [s]."""
    return float(np.mean(episode.delay))


METRICS = (
    Column("", csv="rounds", of=lambda e: len(e.delay)),
    Column("priced_delay", "s", ".2f", better="low", csv="priced_delay_s", of=lambda e: e.priced_delay),
    Column("return_per_round", "", ".3f", better="high", csv="return_per_round",
           of=lambda e: e.return_per_round),
    Column("delay_mean", "s", ".2f", name="delay", better="low", csv="mean_delay_s", of=mean_delay),
    Column("delay_p95", "s", ".2f", better="low", csv="p95_delay_s",
           of=lambda e: float(np.percentile(e.delay, 95))),
    Column("seconds_per_progress", "s", ".1f", name="per progress", better="low", csv="seconds_per_progress",
           of=lambda e: e.seconds_per_progress),
    Column("", csv="energy_j", of=lambda e: float(np.sum(e.energy_j))),
    Column("", csv="simulated_time_s", of=lambda e: float(np.sum(e.delay))),
    Column("", csv="worst_mean_energy_ratio", of=lambda e: e.worst_energy_ratio),
    Column("energy_excess", "%", "+.1f", 100.0, name="over budget", of=lambda e: e.worst_energy_ratio - 1.0),
    Column("final_backlog", "z", ".1f", csv="final_backlog", of=lambda e: e.backlog[-1]),
    Column("backlog_slope", "%/round", "+.2f", 100.0, csv="backlog_slope", of=lambda e: e.backlog_slope),
    Column("", csv="initial_loss_nat", of=lambda e: e.initial_loss),
    Column("final_loss", "nat", ".3f", better="low", csv="final_smoothed_loss_nat",
           of=lambda e: e.smoothed_loss[-1]),
    Column("metric", "%", ".1f", 100.0, name="task metric", csv="final_metric", of=lambda e: e.metric[-1]),
    Column("peak_memory_bytes", "MB", ".0f", 1e-6, name="peak memory", csv="peak_memory_bytes",
           of=lambda e: e.peak_memory_bytes),
    Column("decision_s", "ms", "", 1e3, name="decision", better="low", csv="median_decision_s",
           of=lambda e: float(np.median(e.decision_s))),
)  # fmt: skip
"""Figures of an episode in the order of ``episodes.csv``; those without a key are only there."""
COLUMNS = {column.key: column for column in METRICS if column.key} | {
    column.key: column
    for column in (
        Column("label", name="scheduler"),
        Column("difference", "%", "+.1f", 100.0, better="low"),
        Column("improvement", "%", ".0f", 100.0, name="faster", better="high"),
        Column("rank", "", ".1f", better="low"),
        Column("time_to_target", "s", ".0f", better="low"),
    )
}
"""Columns of the table of schedulers by their keys in its rows."""
TASK_FORMS: dict[str, tuple[str, str, float, str, str]] = {
    "bleu": ("%", ".1f", 100.0, "BLEU", "high"),
    "chrf": ("%", ".1f", 100.0, "chrF", "high"),
    "mcc": ("%", ".1f", 100.0, "Matthews corr.", "high"),
    "entity_f1": ("%", ".1f", 100.0, "entity F1", "high"),
    "perplexity": ("", ".2f", 1.0, "perplexity", "low"),
    "bits_per_byte": ("bit", ".3f", 1.0, "bits per byte", "low"),
}
"""Forms of tasks' metrics that are not shares of one, or have names of their own."""


def task_column(name: str) -> Column:
    """The column of a task's metric, whose key is ``metrics.NAME``: by default, a share; more is better."""
    form = TASK_FORMS.get(name, ("%", ".1f", 100.0, name.replace("_", " "), "high"))
    return Column(f"metrics.{name}", *form)


def lower_is_better_note(names: Iterable[str]) -> list[str]:
    """A sentence that names the metrics of tasks where less is better; none if there are none."""
    titles = [c.title for c in map(task_column, dict.fromkeys(names)) if c.better == "low"]
    return [f"Of {' and '.join(titles)}, less is better."] if titles else []
