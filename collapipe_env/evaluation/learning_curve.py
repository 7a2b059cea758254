"""Picture of an agent's validations over its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from collapipe_env.evaluation import plotting
from collapipe_env.evaluation.looks import looks_of
from collapipe_env.evaluation.plotting import DASHES, MARK
from collapipe_env.evaluation.statistics import Summary, measure_name
from collapipe_env.schedulers import LEARNED


def learning_curve(
    history: Sequence[Mapping[str, float]], summaries: Sequence[Summary], title: str
) -> Figure:
    """Draw the validations, with the other schedulers' priced delays for comparison.

    Args:
        history: Validations, as ``Score.to_dict`` gives them, at least one.
        summaries: The schedulers, least priced delay first.
    """
    figure = plotting.new_figure(6.8, 5.0)
    delay_axes, energy_axes = figure.subplots(2, 1, sharex=True)
    looks = looks_of([LEARNED, *(summary.scheduler for summary in summaries)])
    agent = next((summary.label for summary in summaries if summary.scheduler == LEARNED), "agent")
    steps = [score["steps"] for score in history]
    delay = [score["priced_delay"] for score in history]
    over = [100.0 * (score["energy_ratio"] - 1.0) for score in history]
    own = looks[LEARNED].style(markersize=4, linewidth=1.5)
    delay_axes.plot(steps, delay, label=f"{plotting.short_name(agent)}: validation", **own)
    top, beyond = 1.08 * max(delay), []
    for summary in summaries:
        level = summary.measure.mean
        if summary.scheduler == LEARNED:
            continue
        if level > 1.25 * top:
            beyond.append(f"{summary.label} ({level:.3g} s)")
            continue
        top = max(top, 1.06 * level)
        look = looks[summary.scheduler].style(linestyle=DASHES, linewidth=1.1, markevery=[1], markersize=5)
        delay_axes.plot([0.0, steps[-1]], [level, level], label=plotting.short_name(summary.label), **look)
    delay_axes.set_ylim(0.0, top)
    measure = measure_name(summaries)
    delay_axes.set_ylabel(f"{measure} (s)")
    delay_axes.set_title(f"{title}: validation during training", loc="left", fontsize=10.5)
    energy_axes.plot(steps, over, **own)
    energy_axes.axhline(0.0, **MARK)
    energy_axes.set_ylabel("worst node's energy\nabove budget (%)")
    energy_axes.set_xlabel("training steps")
    plotting.whole_numbers(energy_axes)
    energy_axes.xaxis.set_major_formatter("{x:,.0f}")
    energy_axes.set_xlim(left=0.0)
    budget = plotting.mark_key("budget (lower panel)")
    plotting.legend_beside(figure, [*delay_axes.get_legend_handles_labels()[0], budget])
    told = f"Dashed lines with markers: {measure} of the other schedulers over the held-out episodes."
    plotting.footer(figure, [told, *([f"Beyond the axis: {', '.join(beyond)}."] if beyond else [])])
    return figure
