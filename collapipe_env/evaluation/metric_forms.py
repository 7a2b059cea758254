"""Names, units and directions of the tasks' metrics, for tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class MetricForm:
    """Form in which a metric is shown.

    Attributes:
        title: Name.
        unit: Unit; empty for a pure number.
        scale: Factor from the metric to its unit.
        digits: Format of the number.
        lower_is_better: Whether a smaller value is better.
    """

    title: str
    unit: str = "%"
    scale: float = 100.0
    digits: str = ".1f"
    lower_is_better: bool = False


FORMS = {
    "bleu": MetricForm("BLEU"),
    "chrf": MetricForm("chrF"),
    "mcc": MetricForm("Matthews corr."),
    "entity_f1": MetricForm("entity F1"),
    "perplexity": MetricForm("perplexity", "", 1.0, ".2f", lower_is_better=True),
    "bits_per_byte": MetricForm("bits per byte", "bit", 1.0, ".3f", lower_is_better=True),
}
"""Forms of metrics that are not shares of one, or have names of their own."""


def metric_form(name: str) -> MetricForm:
    """Return the form of a metric: by default, a share of 1 where more is better."""
    return FORMS.get(name) or MetricForm(name.replace("_", " "))


def lower_is_better_note(names: Iterable[str]) -> list[str]:
    """Return a sentence that names the metrics where less is better; none if there are none.

    Args:
        names: Names of metrics.
    """
    forms = map(metric_form, dict.fromkeys(names))
    titles = [form.title for form in forms if form.lower_is_better]
    return [f"Of {' and '.join(titles)}, less is better."] if titles else []
