"""Panels of a comparison's pictures: one for each scenario, one legend, one look for each scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from collapipe_env.evaluation.comparison import ScenarioComparison, common_labels
from collapipe_env.evaluation.plotting import (
    Look,
    legend_beside,
    line_key,
    looks_of,
    name_width,
    new_figure,
    short_name,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Comparisons = Sequence[ScenarioComparison]
"""One for each scenario that some scheduler could play."""
Looks = Mapping[str, Look]
"""The look of each scheduler by its name."""


class Legend(NamedTuple):
    """Legend of all schedulers beside the panels.

    Attributes:
        extra: Further entries.
        lines: Whether the schedulers have lines, or markers alone.
    """

    extra: Sequence[Artist] = ()
    lines: bool = True


def panels_of(
    comparisons: Comparisons,
    size: tuple[float, float],
    draw: Callable[[Axes, ScenarioComparison, Looks], None],
    *,
    title: str = "{}",
    legend: Legend | None = None,
) -> Figure:
    """A figure with a panel for each scenario, two or three in a row, and a legend of all schedulers.

    Args:
        comparisons: One for each scenario.
        size: Width and height of a panel [inch].
        draw: Draws one panel; a scheduler has the same look in all.
        title: Title of each panel, with a placeholder for the scenario's name.
        legend: Legend beside the panels; ``None`` for none.
    """
    count = len(comparisons)
    columns = 2 if count in (2, 4) else min(count, 3)
    rows = math.ceil(count / columns)
    figure = new_figure(size[0] * columns, size[1] * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[count:]:
        spare.remove()
    summaries = [summary for comparison in comparisons for summary in comparison.summaries]
    looks = looks_of(summary.scheduler for summary in summaries)
    for axes, comparison in zip(panels, comparisons, strict=False):
        draw(axes, comparison, looks)
        axes.set_title(title.format(comparison.name), loc="left", fontsize=10.5)
    if legend is not None:
        handles = [
            line_key(
                short_name(label), color=looks[name].colour, marker=looks[name].marker,
                linestyle=looks[name].line if legend.lines else "none",
            )
            for name, label in common_labels(summaries).items()
        ]  # fmt: skip
        legend_beside(figure, [*handles, *legend.extra], handle_length=2.6 if legend.lines else 1.4)
    return figure


def band(axes: Axes, x: Any, values: Any, look: Look, markers: int) -> None:
    """Draw the mean of values (episodes, points) and their range."""
    low, high = values.min(axis=0), values.max(axis=0)
    axes.fill_between(x, low, high, color=look.colour, alpha=0.12, linewidth=0)
    axes.plot(x, values.mean(axis=0), linewidth=1.4, **line_style(look, len(x), markers))


def line_style(look: Look, points: int, markers: int) -> dict[str, Any]:
    """Matplotlib's settings for a scheduler's line, with about this many markers on it."""
    return {
        "color": look.colour,
        "linestyle": look.line,
        "marker": look.marker,
        "markersize": 4.5,
        "markevery": max(points // markers, 1),
    }


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Schedulers' names beside horizontal bars, the first on top."""
    axes.set_yticks(range(len(names)), [short_name(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")


def most_episodes(comparisons: Comparisons) -> int:
    """Most episodes of a scheduler in any scenario."""
    return max(len(episodes) for c in comparisons for episodes in c.results.values())


def widest_name(comparisons: Comparisons) -> float:
    """Inches that the longest name beside a panel needs."""
    return name_width(name for c in comparisons for name in (*(s.label for s in c.summaries), *c.impossible))
