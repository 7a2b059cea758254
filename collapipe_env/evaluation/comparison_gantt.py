"""Typical rounds of several schedulers on one page, on one scale of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collapipe_env.evaluation.comparison import ScenarioComparison
from collapipe_env.evaluation.episode import replay, typical_round
from collapipe_env.evaluation.registry import LEARNED
from collapipe_env.evaluation.runner import decisions_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from collapipe_env.rendering import RoundView
    from collapipe_env.rendering.sheet import Sheet

BEST = 3
"""Schedulers beside the reference and the agent where none are asked for."""
HEAD, LEFT, TOP, FOOT, RIGHT = 62.0, 150.0, 42.0, 62.0, 30.0
"""Heights and widths in pixels: heading, left margin, above, below and right of a chart."""
WIDTH = 1400.0
"""Of the longest chart in pixels."""
ROW, LEAST_HEIGHT, MOST_HEIGHT = 15.0, 150.0, 420.0
"""Pixels of a chart's row, and of the lowest and highest chart."""
LEAST_WIDTH = 0.2
"""Of the longest chart; a chart that is shorter still gets a scale of its own."""


def chosen(comparison: ScenarioComparison, reference: str, asked: Sequence[str]) -> list[str]:
    """Schedulers whose rounds are drawn: those asked for that played, else the best few, shortest first."""
    ordered = [summary.scheduler for summary in comparison.summaries]
    wanted = set(asked) or {reference, LEARNED, *[n for n in ordered if n not in (reference, LEARNED)][:BEST]}
    return [name for name in ordered if name in wanted]


def typical_view(comparison: ScenarioComparison, scheduler: str) -> RoundView:
    """The slowest cluster of the round with the median delay of a scheduler's first episode."""
    from collapipe_env.round_view import round_view

    plan, episode = comparison.plan, comparison.results[scheduler][0]
    index = typical_round(episode.delay)
    record = replay(plan.scenario, episode.episode, decisions_of(plan, scheduler, episode.episode), index)
    view = round_view(record, plan.scenario.workload.local_steps, episode.title)
    slowest = view.detailed(1)[0] if len(view.clusters) > 1 else 0
    only = slice(slowest, slowest + 1)
    return replace(
        view,
        clusters=view.clusters[only],
        backlog=view.backlog[only],
        energy_ratio=view.energy_ratio[only],
        present=view.present[only],
    )


def gantt_figure(comparison: ScenarioComparison, reference: str, asked: Sequence[str]) -> Figure:
    """Draw the typical rounds one below the other.

    Args:
        comparison: The scenario.
        reference: Name of the scheduler that the others are held against.
        asked: Schedulers to draw; empty for the best few.
    """
    import matplotlib

    from collapipe_env.rendering.gantt import draw_gantt
    from collapipe_env.rendering.panel import Panel
    from collapipe_env.rendering.sheet import FigureSheet
    from collapipe_env.rendering.style import RC

    views = [typical_view(comparison, name) for name in chosen(comparison, reference, asked)]
    ends = [max(cluster.timeline.end_s for cluster in view.clusters) for view in views]
    heights = [_height(view) for view in views]
    width, height = LEFT + WIDTH + RIGHT, HEAD + sum(TOP + each + FOOT for each in heights)
    with matplotlib.rc_context(RC):
        page = FigureSheet(width, height)
        heading = f"{comparison.name}: slowest cluster in each scheduler's typical round (median delay)"
        page.write(16.0, 20.0, heading, 12.0, bold=True)
        _legend(page, views)
        top = HEAD
        for view, end, each in zip(views, ends, heights, strict=True):
            share = end / max(ends)
            own = share < LEAST_WIDTH
            facts = [view.title, f"round {view.round_index}", f"delay {view.delay_s:.4g} s"]
            facts += ["time axis of its own"] if own else []
            page.write(16.0, top + 22.0, "   ·   ".join(facts), 10.0, bold=True)
            draw_gantt(Panel(page, LEFT, top + TOP, WIDTH * (1.0 if own else share), each), view)
            top += TOP + each + FOOT
    return page.figure


def _height(view: RoundView) -> float:
    rows = max(len(cluster.timeline.elements) for cluster in view.clusters)
    return min(max(ROW * (rows + 2), LEAST_HEIGHT), MOST_HEIGHT)


def _legend(page: Sheet, views: Sequence[RoundView]) -> None:
    """Swatches of the two directions and of the phases that occur, in a row below the heading."""
    from collapipe_env.rendering.style import FAINT, PHASE_COLOURS, PHASE_NAMES, micro_batch_colours

    timelines = [cluster.timeline for view in views for cluster in view.clusters]
    directions = {event.direction for timeline in timelines for event in timeline.events}
    phases = {phase.label for timeline in timelines for phase in timeline.phases}
    names = ["forward, micro-batch 1…M", "backward", *(["weight gradient"] if "weight" in directions else [])]
    rows: list[tuple[str, Sequence[object]]] = [
        *((name, list(ramp)) for name, ramp in zip(names, micro_batch_colours(5), strict=False)),
        *((name, [PHASE_COLOURS[label]]) for label, name in PHASE_NAMES.items() if label in phases),
    ]
    x = 16.0
    for text, colours in rows:
        for colour in colours:
            page.boxes(x, x + 9.0, 41.0, 51.0, [colour], edge=FAINT, line_widths=0.4)
            x += 9.0
        page.write(x + 6.0, 46.0, text, 8.0)
        x += 24.0 + 6.2 * len(text)
