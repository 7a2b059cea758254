"""Pictures of the scaling study, from its stored measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from scaling_points import BATCH, Axis
from scaling_profile import REST
from scaling_tables import TITLES, Series, quantities

from collapipe_env.evaluation.plotting import COLOURS, FAINT, INK, MARKERS, RC, log_axis, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIMES, MEMORY = ("single", "vector", "decision"), ("resident", "kept")
UNITS = {**dict.fromkeys(TIMES, 1e6), **dict.fromkeys(MEMORY, 1e-3)}
"""What a second, or a byte, is in the unit of the picture: microseconds and kilobytes."""


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


def profile_picture(profiles: Mapping[str, Any]) -> Figure:
    """Stacked bars: what share of a step each part takes, and the time of the step beside.

    Args:
        profiles: Profiles by ``"<scenario> <size>"``.
    """
    parts = list(next(iter(profiles.values()))["shares"])
    with mpl.rc_context(RC):
        figure = new_figure(8.4, 0.42 * len(profiles) + 1.3)
        panel = figure.subplots()
        for place, (key, found) in enumerate(profiles.items()):
            left = 0.0
            for look, part in enumerate(parts):
                colour = colour_of(part, look)
                share = 100.0 * found["shares"][part]
                panel.barh(place, share, left=left, color=colour, edgecolor="white", linewidth=0.8)
                if share >= 5.0:
                    panel.text(
                        left + share / 2.0,
                        place,
                        f"{share:.0f}",
                        color="white",
                        ha="center",
                        va="center",
                        fontsize=8,
                    )
                left += share
            size = int(key.split()[1])
            panel.text(102.0, place, f"{1e6 * found['plain_s'] / size:,.4g} µs", color=INK, va="center")
        panel.set_yticks(range(len(profiles)), [name_of(key) for key in profiles])
        panel.invert_yaxis()
        panel.set_xlim(0.0, 116.0)
        panel.set_xticks(range(0, 101, 20))
        panel.grid(axis="y", visible=False)
        panel.set_xlabel("share of a step (%), and its time for one environment")
        handles = [
            mpl.patches.Patch(color=colour_of(part, look), label=part) for look, part in enumerate(parts)
        ]
        figure.legend(
            handles=handles, loc="outside upper center", ncols=len(parts), fontsize=8.5, columnspacing=1.0
        )
    return figure


def colour_of(part: str, look: int) -> str:
    """Colour of a part; grey is for the rest alone."""
    colours = [colour for colour in COLOURS if colour != "#666666"]
    return FAINT if part == REST else colours[look % len(colours)]


def name_of(key: str) -> str:
    """``"medium 256"`` as a label."""
    scenario, size = key.split()
    return f"{scenario}, single" if size == "1" else f"{scenario}, one of {size}"
