"""Typical rounds of several schedulers on one page, on one time scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from collapipe_env.evaluation.comparison import ScenarioComparison, notes
from collapipe_env.evaluation.episode import replayed_rounds, typical_round
from collapipe_env.evaluation.runner import decisions_of
from collapipe_env.rendering.colours import FAINT
from collapipe_env.rendering.gantt import draw_gantt
from collapipe_env.rendering.legend import draw_legend, legend_entries
from collapipe_env.rendering.panel import Panel
from collapipe_env.rendering.round_view import RoundView, slowest
from collapipe_env.rendering.sheet import Sheet
from collapipe_env.schedulers import LEARNED

BEST = 3
"""Schedulers drawn besides the reference and the agent, unless some are requested."""
HEAD, LEGEND, LEFT, TOP, FOOT, RIGHT = 62.0, 46.0, 150.0, 42.0, 62.0, 30.0
"""Heights and widths in pixels: heading, middle of its legend, left margin, above, below and right of a
chart."""
NOTE = 16.0
"""Height of a line of explanation at the end."""
WIDTH = 1400.0
"""Width of the longest chart in pixels."""
ROW, LEAST_HEIGHT, MOST_HEIGHT = 15.0, 150.0, 420.0
"""Pixels of a chart's row, and of the lowest and highest chart."""
LEAST_WIDTH = 0.2
"""Smallest share of the longest chart's width; a shorter chart gets a scale of its own."""


def chosen(comparison: ScenarioComparison, asked: Sequence[str]) -> list[str]:
    """Schedulers whose rounds are drawn: the requested ones that played, or the best few, shortest first."""
    reference = comparison.reference
    ordered = [summary.scheduler for summary in comparison.summaries]
    wanted = set(asked) or {reference, LEARNED, *[n for n in ordered if n not in (reference, LEARNED)][:BEST]}
    return [name for name in ordered if name in wanted]


def gantt_figure(comparison: ScenarioComparison, asked: Sequence[str]) -> Figure:
    """Draw typical rounds one below the other: those with the median delay of each first episode (and run).

    Of each round the slowest cluster is drawn.

    Args:
        asked: Schedulers to draw; empty for the best few.
    """
    names = chosen(comparison, asked)
    labels = {summary.scheduler: summary.label for summary in comparison.summaries}
    charts, facts = [], []
    for name in names:
        episode = comparison.results[name][0]
        decisions = decisions_of(comparison.plan, name, episode.episode, episode.run)
        until = decisions[: typical_round(episode.delay) + 1]
        *_, record = replayed_rounds(comparison.plan.scenario, episode.episode, until)
        drawn = RoundView(record, labels[name]).charts
        charts.append(drawn[slowest(drawn, 1)[0]])
        number, delay_s = int(record.state.round_index[0]) + 1, float(record.costs.delay[0])
        facts.append([labels[name], f"round {number}", f"delay {delay_s:.4g} s"])
    below = notes([replace(comparison, results={name: comparison.results[name] for name in names})])
    longest = max(chart.timeline.end_s for chart in charts)
    heights = [min(max(ROW * (len(c.timeline.elements) + 2), LEAST_HEIGHT), MOST_HEIGHT) for c in charts]
    width = LEFT + WIDTH + RIGHT
    page = Sheet(width, HEAD + sum(TOP + each + FOOT for each in heights) + NOTE * len(below))
    heading = f"{comparison.name}: slowest cluster in each scheduler's typical round (median delay)"
    page.write(16.0, 20.0, heading, 12.0, bold=True)
    draw_legend(page, legend_entries([chart.timeline for chart in charts]), 16.0, width - RIGHT, LEGEND)
    top = HEAD
    for chart, told, height in zip(charts, facts, heights, strict=True):
        share = chart.timeline.end_s / longest
        if share < LEAST_WIDTH:
            share = 1.0
            told.append("time axis of its own")
        page.write(16.0, top + 22.0, "   ·   ".join(told), 10.0, bold=True)
        panel = Panel(page, LEFT, top + TOP, WIDTH * share, height)
        draw_gantt(panel, [chart], comparison.plan.scenario.max_devices)
        top += TOP + height + FOOT
    for line in below:
        page.write(16.0, top, line, 8.0, colour=FAINT)
        top += NOTE
    return page.figure
