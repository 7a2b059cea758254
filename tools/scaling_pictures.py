"""Pictures of the scaling study, from its stored measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from scaling_points import BATCH, Axis
from scaling_tables import TITLES, Series, quantities

from collapipe_env.evaluation.plotting import COLOURS, MARKERS, RC, log_axis, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIMES, MEMORY = ("single", "vector", "decision"), ("resident", "kept")
UNITS = {**dict.fromkeys(TIMES, 1e6), **dict.fromkeys(MEMORY, 1e-3)}
"""Value of a second, or a byte, in the unit of the picture: microseconds and kilobytes."""


def line(axes: Axes, series: Series, what: str, look: int) -> None:
    """Draw one quantity over the sizes."""
    axes.plot(
        list(series),
        [UNITS[what] * value for value in series.values()],
        color=COLOURS[look],
        marker=MARKERS[look],
        markersize=4.0,
        linewidth=1.5,
        label=f"step, one of a batch ({BATCH}, or E)" if what == "vector" else TITLES[what],
    )


def growth_picture(
    groups: Mapping[str, Any], axes: Sequence[Axis], shown: Sequence[str], label: str
) -> Figure:
    """One panel for each axis, both scales logarithmic.

    Args:
        groups: Results of the study.
        axes: Which to draw; the number of environments has only steps.
        shown: Quantities.
        label: Of the vertical scales.
    """
    drawn = [(axis, quantities(groups, axis)) for axis in axes]
    drawn = [(axis, series) for axis, series in drawn if any(what in series for what in shown)]
    columns = min(len(drawn), 3 if len(drawn) != 4 else 4)
    rows = -(-len(drawn) // columns)
    with mpl.rc_context(RC):
        figure = new_figure(2.7 * columns + 0.5, 2.5 * rows + 0.7)
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for panel, (_, series) in zip(panels, drawn, strict=False):
            for look, what in enumerate(shown):
                if what in series:
                    line(panel, series[what], what, look)
            panel.set_xscale("log")
            panel.set_yscale("log")
        for panel, (axis, series) in zip(panels, drawn, strict=False):
            named = ticks(list(next(iter(series.values()))))
            panel.set_xlabel(axis.label)
            panel.set_xticks([], minor=True)
            panel.set_xticks(named, [str(size) for size in named])
            log_axis(panel, "y")
            panel.tick_params(labelleft=True)
        for panel in panels[len(drawn) :]:
            panel.set_axis_off()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.supylabel(label, fontsize=RC["font.size"])
    return figure


def ticks(sizes: Sequence[int]) -> list[int]:
    """Sizes that are named below a panel: each at least 1.6 times the one before, so that they keep apart."""
    chosen = [sizes[0]]
    least = max(1.6, (sizes[-1] / sizes[0]) ** (1.0 / 6.0))
    for size in sizes[1:]:
        if size >= 0.999 * least * chosen[-1]:
            chosen.append(size)
    return chosen
