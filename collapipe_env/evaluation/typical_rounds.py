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

    from collapipe_env.rendering import RoundView

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


def typical_view(comparison: ScenarioComparison, scheduler: str) -> RoundView:
    """The slowest cluster of the round with the median delay of a scheduler's first episode (and run)."""
    from collapipe_env.rendering.round_view import round_view

    plan, episode = comparison.plan, comparison.results[scheduler][0]
    index = typical_round(episode.delay)
    decisions = decisions_of(plan, scheduler, episode.episode, episode.run)
    record = replay(plan.scenario, episode.episode, decisions, index)
    label = next(s.label for s in comparison.summaries if s.scheduler == scheduler)
    view = round_view(record, label)
    slowest = view.detailed(1)[0] if len(view.clusters) > 1 else 0
    only = slice(slowest, slowest + 1)
    return replace(
        view,
        clusters=view.clusters[only],
        backlog=view.backlog[only],
        energy_ratio=view.energy_ratio[only],
        present=view.present[only],
    )


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
    views = [typical_view(comparison, name) for name in names]
    below = notes([replace(comparison, results={name: comparison.results[name] for name in names})])
    ends = [max(cluster.timeline.end_s for cluster in view.clusters) for view in views]
    heights = [_height(view) for view in views]
    width, height = (
        LEFT + WIDTH + RIGHT,
        HEAD + sum(TOP + each + FOOT for each in heights) + NOTE * len(below),
    )
    page = Sheet(width, height)
    heading = f"{comparison.name}: slowest cluster in each scheduler's typical round (median delay)"
    page.write(16.0, 20.0, heading, 12.0, bold=True)
    timelines = [cluster.timeline for view in views for cluster in view.clusters]
    draw_legend(page, legend_entries(timelines), 16.0, width - RIGHT, LEGEND)
    top = HEAD
    for view, end, each in zip(views, ends, heights, strict=True):
        share = end / max(ends)
        own = share < LEAST_WIDTH
        facts = [view.title, f"round {view.round_index}", f"delay {view.delay_s:.4g} s"]
        facts += ["time axis of its own"] if own else []
        page.write(16.0, top + 22.0, "   ·   ".join(facts), 10.0, bold=True)
        draw_gantt(Panel(page, LEFT, top + TOP, WIDTH * (1.0 if own else share), each), view)
        top += TOP + each + FOOT
    for line in below:
        page.write(16.0, top, line, 8.0, colour=FAINT)
        top += NOTE
    return page.figure


def _height(view: RoundView) -> float:
    rows = max(len(cluster.timeline.elements) for cluster in view.clusters)
    return min(max(ROW * (rows + 2), LEAST_HEIGHT), MOST_HEIGHT)
