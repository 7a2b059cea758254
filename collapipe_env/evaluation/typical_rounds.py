"""Typical rounds of several schedulers on one page, on one time scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collapipe_env.evaluation.comparison import ScenarioComparison, notes
from collapipe_env.evaluation.episode import replay, typical_round
from collapipe_env.evaluation.runner import decisions_of
from collapipe_env.schedulers import LEARNED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from collapipe_env.rendering.round_view import Chart
    from collapipe_env.simulator.record import RoundRecord

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


def typical_chart(comparison: ScenarioComparison, scheduler: str) -> tuple[str, RoundRecord, Chart]:
    """The slowest cluster of the round with the median delay of a scheduler's first episode (and run).

    Returns:
        The scheduler's name in pictures, the round, and the cluster's chart.
    """
    from collapipe_env.rendering.round_view import RoundView, slowest

    plan, episode = comparison.plan, comparison.results[scheduler][0]
    index = typical_round(episode.delay)
    decisions = decisions_of(plan, scheduler, episode.episode, episode.run)
    record = replay(plan.scenario, episode.episode, decisions, index)
    label = next(s.label for s in comparison.summaries if s.scheduler == scheduler)
    charts = RoundView(record, label).charts
    return label, record, charts[slowest(charts, 1)[0]]


def gantt_figure(comparison: ScenarioComparison, asked: Sequence[str]) -> Figure:
    """Draw the typical rounds one below the other.

    Args:
        asked: Schedulers to draw; empty for the best few.
    """
    from collapipe_env.rendering.colours import FAINT
    from collapipe_env.rendering.gantt import draw_gantt
    from collapipe_env.rendering.legend import draw_legend, legend_entries
    from collapipe_env.rendering.panel import Panel
    from collapipe_env.rendering.sheet import Sheet

    names = chosen(comparison, asked)
    found = [typical_chart(comparison, name) for name in names]
    charts = [chart for _, _, chart in found]
    below = notes([replace(comparison, results={name: comparison.results[name] for name in names})])
    ends = [chart.timeline.end_s for chart in charts]
    heights = [
        min(max(ROW * (len(chart.timeline.elements) + 2), LEAST_HEIGHT), MOST_HEIGHT) for chart in charts
    ]
    width, height = (
        LEFT + WIDTH + RIGHT,
        HEAD + sum(TOP + each + FOOT for each in heights) + NOTE * len(below),
    )
    page = Sheet(width, height)
    heading = f"{comparison.name}: slowest cluster in each scheduler's typical round (median delay)"
    page.write(16.0, 20.0, heading, 12.0, bold=True)
    draw_legend(page, legend_entries([chart.timeline for chart in charts]), 16.0, width - RIGHT, LEGEND)
    top = HEAD
    for (label, record, chart), end, each in zip(found, ends, heights, strict=True):
        share = end / max(ends)
        own = share < LEAST_WIDTH
        number, delay_s = int(record.state.round_index[0]) + 1, float(record.costs.delay[0])
        facts = [label, f"round {number}", f"delay {delay_s:.4g} s"]
        facts += ["time axis of its own"] if own else []
        page.write(16.0, top + 22.0, "   ·   ".join(facts), 10.0, bold=True)
        panel = Panel(page, LEFT, top + TOP, WIDTH * (1.0 if own else share), each)
        draw_gantt(panel, [chart], record.state.present.shape[-1])
        top += TOP + each + FOOT
    for line in below:
        page.write(16.0, top, line, 8.0, colour=FAINT)
        top += NOTE
    return page.figure
