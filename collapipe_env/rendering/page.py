"""Layout of the page: panels, heading and legends."""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.rendering import side_panels, site_maps
from collapipe_env.rendering.gantt import draw_gantt
from collapipe_env.rendering.legend import draw_legend, legend_entries
from collapipe_env.rendering.panel import Panel
from collapipe_env.rendering.round_view import RoundView, slowest
from collapipe_env.rendering.sheet import Sheet
from collapipe_env.rendering.style import node_colours
from collapipe_env.simulator.system import MOBILITY

WIDTH_PX, HEIGHT_PX = 1200, 800
LEFT_PX, RIGHT_PX = 104.0, 14.0
LEGEND_PX, TOP_PX, BOTTOM_PX = 42.0, 62.0, 40.0
"""Row of the legends, upper edge of the panels, and their lower edge from the bottom of the page."""
MOST_BARS = 40
"""Most nodes that get a bar each; more are drawn as a heat map."""
PIPELINE_SHARE, ENERGY_SHARE, HISTORY_SHARE = 0.60, 0.37, 0.15
"""Share of the width for the pipelines, and of the height beside them for energy and for history."""


def filled(view: RoundView) -> Sheet:
    """Lay out and fill a page."""
    page = Sheet(WIDTH_PX, HEIGHT_PX)
    width, bottom = page.width, page.height - BOTTOM_PX
    middle, right = PIPELINE_SHARE * width, width - RIGHT_PX
    usable = bottom - TOP_PX
    _heading(page, view)
    detailed = [view.charts[n].timeline for n in slowest(view.charts)]
    draw_legend(page, legend_entries(detailed), 16.0, middle + 30.0, LEGEND_PX)
    gantt_px = usable
    if view.side_m is not None and MOBILITY in view.round.state.processes:
        gantt_px -= site_maps.STRIP_PX
        maps_top = bottom - site_maps.MAP_PX + 8.0
        site_maps.draw_maps(page, view, LEFT_PX, maps_top, middle - LEFT_PX)
    draw_gantt(Panel(page, LEFT_PX, TOP_PX, middle - LEFT_PX, gantt_px), view.charts, view.devices)

    start = middle + 52.0
    span = right - start
    _node_legend(page, view, start, right)
    energy_px, history_px = ENERGY_SHARE * usable, HISTORY_SHARE * usable
    _energy(page, view, start, TOP_PX + 18.0, span, energy_px - 18.0)
    table_top, history_top = TOP_PX + energy_px + 46.0, bottom - history_px
    _allocation(page, view, start, table_top, span, history_top - table_top - 50.0)
    half = 0.5 * (span - 46.0)
    delay = Panel(page, start, history_top, half, history_px)
    number = int(view.round.state.round_index) + 1
    side_panels.draw_history(delay, view.delay_history, number, "round delay (s)", "#0072B2")
    loss = Panel(page, start + half + 46.0, history_top, half, history_px)
    side_panels.draw_history(loss, view.loss_history, number, "evaluation loss", "#D55E00")
    return page


def _heading(page: Sheet, view: RoundView) -> None:
    state, costs = view.round.state, view.round.costs
    facts = [view.title, f"round {int(state.round_index) + 1}", f"delay {float(costs.delay):.4g} s"]
    if len(view.loss_history) and math.isfinite(view.loss_history[-1]):
        facts.append(f"loss {view.loss_history[-1]:.4g}")
    if view.known_error_db is not None:
        facts.append(f"gains known to {view.known_error_db:.2g} dB")
    text = "   ·   ".join(facts)
    # A long title is written smaller: a bold letter is about 0.95 pixels wide per point.
    size = min(12.0, (page.width - 32.0) / (0.95 * len(text)))
    page.write(16.0, 18.0, text, size, bold=True)


def _node_legend(page: Sheet, view: RoundView, x: float, right: float) -> None:
    names = ["CU", *(f"d{k}" for k in range(view.devices))]
    step = min(46.0, (right - x) / len(names))
    at = x + step * np.arange(len(names))
    wide = min(10.0, 0.8 * step)
    page.boxes(at, at + wide, LEGEND_PX - 5.0, LEGEND_PX + 5.0, node_colours(view.devices))
    if step >= 34.0:
        for i, name in enumerate(names):
            page.write(float(at[i]) + 13.0, LEGEND_PX, name, 7.5)
        return
    # Too many nodes for a name beside each: only the first and the last are named, above the ramp.
    for i in (0, len(names) - 1):
        page.write(float(at[i]) + 0.5 * wide, LEGEND_PX - 13.0, names[i], 7.5, across="center")


def _energy(page: Sheet, view: RoundView, x: float, y: float, width: float, height: float) -> None:
    costs = view.round.costs
    # With budgets per second the line at 1 is the budget's power.
    second = "energy e / budget" if costs.budget_period_s is None else "power / budget"
    titles = ("energy queue z (budgets)", second)
    values = (view.round.backlog, costs.energy_ratio / (float(costs.allowance) or 1.0))
    for i in range(2):
        if view.node_present.size <= MOST_BARS:
            each = 0.5 * (height - 38.0)
            panel = Panel(page, x, y + i * (each + 38.0), width, each)
            side_panels.draw_bars(panel, view, values[i], titles[i], budget_line=i == 1)
        else:
            each = 0.5 * (width - 34.0)
            panel = Panel(page, x + i * (each + 34.0), y + 20.0, each, height - 20.0)
            side_panels.draw_heat_map(panel, view, values[i], titles[i], budget_line=i == 1)


def _allocation(page: Sheet, view: RoundView, x: float, y: float, width: float, height: float) -> None:
    gap = 20.0
    widths = np.array([0.40, 0.22, 0.16, 0.22]) * (width - 3.0 * gap)
    left = x + np.concatenate([[0.0], np.cumsum(widths[:-1] + gap)])
    segments, powers, band, counts = (Panel(page, left[i], y, widths[i], height) for i in range(4))
    side_panels.draw_segments(segments, view)
    side_panels.draw_powers(powers, view)
    side_panels.draw_bandwidth(band, view)
    side_panels.draw_counts(counts, view)
