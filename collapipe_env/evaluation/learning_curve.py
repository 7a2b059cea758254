"""Picture of an agent's validations over its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.evaluation.plotting import (
    DASHES,
    MUTED,
    footer,
    legend_beside,
    line_key,
    looks_of,
    new_figure,
    short_name,
    whole_numbers,
)
from collapipe_env.evaluation.statistics import Summary, measure_name
from collapipe_env.schedulers import LEARNED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def learning_curve(
    history: Sequence[Mapping[str, float]], summaries: Sequence[Summary], title: str
) -> Figure:
    """Draw the validations, with the other schedulers' priced delays for comparison.

    Args:
        history: Validations, as ``Score.to_dict`` gives them, at least one.
        summaries: The schedulers, least priced delay first.
        title: Name of the scenario.
    """
    figure = new_figure(6.8, 5.0)
    delay_axes, energy_axes = figure.subplots(2, 1, sharex=True)
    looks = looks_of([LEARNED, *(summary.scheduler for summary in summaries)])
    agent = next((summary.label for summary in summaries if summary.scheduler == LEARNED), "agent")
    steps = np.array([score["steps"] for score in history])
    delay = np.array([score["priced_delay"] for score in history])
    ratio = np.array([score["energy_ratio"] for score in history])
    own = {"color": looks[LEARNED].colour, "marker": looks[LEARNED].marker, "markersize": 4}
    delay_axes.plot(steps, delay, label=f"{short_name(agent)}: validation", linewidth=1.5, **own)
    top, beyond = 1.08 * float(delay.max()), []
    for summary in summaries:
        level, look = summary.measure.mean, looks[summary.scheduler]
        if summary.scheduler == LEARNED:
            continue
        if level > 1.25 * top:
            beyond.append(f"{summary.label} ({level:.3g} s)")
            continue
        top = max(top, 1.06 * level)
        delay_axes.plot(
            [0.0, float(steps[-1])], [level, level], color=look.colour, linewidth=1.1, linestyle=DASHES,
            marker=look.marker, markevery=[1], markersize=5, label=short_name(summary.label),
        )  # fmt: skip
    delay_axes.set_ylim(0.0, top)
    measure = measure_name(summaries)
    delay_axes.set_ylabel(f"{measure} (s)")
    delay_axes.set_title(f"{title}: validation during training", loc="left", fontsize=10.5)
    energy_axes.plot(steps, 100.0 * (ratio - 1.0), linewidth=1.5, **own)
    energy_axes.axhline(0.0, color=MUTED, linewidth=1.0, linestyle=DASHES)
    energy_axes.set_ylabel("worst node's energy\nabove budget (%)")
    energy_axes.set_xlabel("training steps")
    whole_numbers(energy_axes)
    energy_axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    energy_axes.set_xlim(left=0.0)
    budget = line_key("budget (lower panel)", color=MUTED, linestyle=DASHES)
    legend_beside(figure, [*delay_axes.get_legend_handles_labels()[0], budget])
    told = f"Dashed lines with markers: {measure} of the other schedulers over the held-out episodes."
    footer(figure, [told, *([f"Beyond the axis: {', '.join(beyond)}."] if beyond else [])])
    return figure
