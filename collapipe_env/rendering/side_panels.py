"""The panels beside the pipelines: energy, allocation, history."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.rendering.colours import FAINT, INK, SERVER_COLOUR
from collapipe_env.rendering.panel import LEAST_FONT, Panel, ticks_between
from collapipe_env.rendering.round_view import RoundView, local_steps
from collapipe_env.rendering.style import ink_on, node_colours


def draw_bars(panel: Panel, view: RoundView, values: FloatArray, title: str, budget_line: bool) -> None:
    """Draw a bar per node, grouped by cluster, coloured by node; a cross marks an absent node.

    Args:
        values: (N, K+1), >= 0.
        budget_line: Whether to mark the value 1.
    """
    clusters, nodes = values.shape
    x = np.arange(clusters)[:, None] * (nodes + 1.0) + np.arange(nodes)
    there = view.node_present
    highest = float(np.max(values[there], initial=0.0))
    top = 1.12 * max(highest, 1.15 if budget_line else 0.1)
    panel.scale((-1.0, float(x[-1, -1]) + 1.0), (0.0, top))
    panel.title(title)
    panel.frame()
    panel.ticks("y", ticks_between(0.0, top, 4), grid=True)
    panel.ticks("x", [float(v) for v in x.mean(axis=1)], _names(clusters))
    colours = np.array(node_colours(view.devices))
    which = np.broadcast_to(np.arange(nodes), values.shape)[there]
    panel.bars(x[there] - 0.42, x[there] + 0.42, 0.0, values[there], list(colours[which]))
    _crosses(panel, x[~there], np.zeros(int((~there).sum())), 4.0, lift=4.0)
    if budget_line:
        ends = panel.to_x([*panel.x_range]), panel.to_y([1.0, 1.0])
        panel.page.curve(*ends, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))


def draw_heat_map(panel: Panel, view: RoundView, values: FloatArray, title: str, budget_line: bool) -> None:
    """Draw a cell per node: clusters downwards, nodes across, a cross for an absent node; the scale on top.

    Args:
        panel: Panel of the cells; title and scale take 34 pixels above it.
        values: (N, K+1), >= 0.
        budget_line: Whether the scale has its middle at 1, the budget.
    """
    there = view.node_present
    top = 2.0 if budget_line else max(float(np.max(values[there], initial=0.0)), 0.1)
    colour_map = matplotlib.colormaps["PuOr_r" if budget_line else "cividis"]
    clusters, nodes = values.shape
    panel.scale((-0.5, nodes - 0.5), (clusters - 0.5, -0.5))
    panel.title(title, lift=31.0)
    row, node = np.nonzero(there)
    shades = colour_map(np.clip(values[there] / top, 0.0, 1.0))
    panel.bars(node - 0.5, node + 0.5, row + 0.5, row - 0.5, shades, edge="white", line_widths=0.3)
    missing_row, missing_node = np.nonzero(~there)
    _crosses(panel, missing_node, missing_row, 3.0)
    step = max(1, int(np.ceil(22.0 * nodes / panel.width)))
    names = ["CU", *(f"d{k}" for k in range(nodes - 1))]
    panel.ticks("x", range(0, nodes, step), names[::step], size=6.0)
    step = max(1, int(np.ceil(11.0 * clusters / panel.height)))
    panel.ticks("y", range(0, clusters, step), _names(clusters)[::step], size=6.0)

    scale = Panel(panel.page, panel.x, panel.y - 12.0, panel.width, 7.0)
    scale.scale((0.0, 64.0), (0.0, 1.0))
    at = np.arange(64)
    scale.bars(at, at + 1.1, 0.0, 1.0, colour_map(at / 63.0))
    line = scale.y - 6.0
    scale.words(scale.x, line, "0", 6.0, across="left")
    if budget_line:
        scale.words(scale.x + 0.5 * scale.width, line, "1", 6.0)
    scale.words(scale.x + scale.width, line, "≥ 2" if budget_line else f"{top:.3g}", 6.0, across="right")


def draw_segments(panel: Panel, view: RoundView) -> None:
    """Draw the blocks per device and those of the server, stacked along the pipeline, a row per cluster.

    Where plans cap clocks, the height of a device's part shows its cap; full height means no cap.
    """
    K, plan = view.devices, view.round.allocation
    stage, on_server = plan.groups.stage, plan.server.server_blocks
    # In the order of their stages, idle devices last, then the server.
    order = np.argsort(np.where(stage < 0, K, stage), axis=-1, kind="stable")
    places = np.pad(order, ((0, 0), (0, 1)), constant_values=K)
    held = np.concatenate([_held(view), on_server[:, None]], axis=1).astype(np.float64)
    blocks = np.take_along_axis(held, places, axis=1)
    edges = np.concatenate([np.zeros((len(blocks), 1)), np.cumsum(blocks, axis=1)], axis=1)
    total = max(float(edges[:, -1].max()), 1.0)
    row_px = _cluster_rows(panel, view, (0.0, total), names=True)
    caps = np.pad(plan.said("clock_cap"), ((0, 0), (0, 1)), constant_values=1.0)
    notes = ["grey: server"] * bool(held[:, K].any()) + ["height: clock"] * bool((caps < 1.0).any())
    panel.title(f"blocks ({', '.join(notes)})" if notes else "blocks per device")
    panel.ticks("x", ticks_between(0.0, total, 4, integer=True), grid=True)
    row, slot = np.nonzero(blocks)
    device = places[row, slot]
    colours = np.array([*node_colours(K)[1:], SERVER_COLOUR])
    left, right = edges[row, slot], edges[row, slot + 1]
    half = 0.38 * caps[row, device]
    panel.bars(left, right, row + half, row - half, list(colours[device]), edge="white", line_widths=0.6)
    size = min(7.0, 0.6 * row_px)
    if size < LEAST_FONT:
        return
    middle_x, middle_y = panel.to_x(0.5 * (left + right)), panel.to_y(row)
    room = (right - left) / total * panel.width
    for i in range(len(row)):
        text = str(int(blocks[row[i], slot[i]]))
        if room[i] > 0.95 * size * len(text) + 2.0:
            colour = ink_on(str(colours[device[i]]))
            panel.words(float(middle_x[i]), float(middle_y[i]), text, size, colour=colour)


def draw_powers(panel: Panel, view: RoundView) -> None:
    """Draw the transmit powers in dBm: a dot per device that transmits, a diamond for the CU."""
    power = view.round.allocation.node_power
    active = np.pad(_held(view) > 0, ((0, 0), (1, 0)), constant_values=True) & (power > 0.0)
    dbm = 10.0 * np.log10(np.where(active, power, 1.0)) + 30.0
    low, high = (float(dbm[active].min()), float(dbm[active].max())) if active.any() else (0.0, 20.0)
    x_range = min(low, high - 10.0) - 1.5, high + 1.5
    row_px = _cluster_rows(panel, view, x_range)
    panel.title("power (dBm)")
    panel.ticks("x", ticks_between(*x_range, 3, integer=True), grid=True)
    row, node = np.nonzero(active)
    colours = np.array(node_colours(view.devices))
    size = float(np.clip(1.6 * row_px, 8.0, 26.0))
    for marker, chosen, factor in (("o", node > 0, 1.0), ("D", node == 0, 0.8)):
        x, y = panel.to_x(dbm[row, node][chosen]), panel.to_y(row[chosen])
        panel.page.dots(x, y, marker, size * factor, list(colours[node[chosen]]))


def draw_bandwidth(panel: Panel, view: RoundView) -> None:
    """Draw the bandwidth in per cent of the uplink, a bar per cluster."""
    percent = 100.0 * view.round.allocation.bandwidth * view.round.costs.plays
    top = max(1.1 * float(percent.max()), 1.0)
    _cluster_rows(panel, view, (0.0, top))
    panel.title("band (%)")
    panel.ticks("x", ticks_between(0.0, top, 2, integer=True), grid=True)
    row = np.arange(len(percent))
    panel.bars(0.0, percent, row + 0.3, row - 0.3, "#7a8fa6")


def draw_counts(panel: Panel, view: RoundView) -> None:
    """Write micro-batches, and the fraction of them that arrived, as a small table.

    A star marks clusters that recompute activations. Local steps stand beside the micro-batches unless all
    clusters take one. Clusters that sit out get a dash.
    """
    plan, plays = view.round.allocation, view.round.costs.plays
    steps, arrivals = local_steps(view.round), view.round.surviving_fraction()
    recomputes = plan.said("recompute") > 0
    row_px = panel.height / len(plays)
    panel.scale((0.0, 1.0), (len(plays) - 0.5, -0.5))
    size = min(7.5, max(LEAST_FONT, 0.6 * row_px))
    every = max(1, int(np.ceil(1.45 * size / row_px)))
    batches, arrived = panel.x + 0.25 * panel.width, panel.x + panel.width
    several = bool((steps > 1).any())
    panel.words(batches, panel.y - 10.0, "H x M" if several else "M", 8.0, across="right")
    if recomputes.any():
        panel.words(arrived, panel.y + panel.height + 12.0, "* recomputes", 7.5, across="right")
    panel.words(arrived, panel.y - 10.0, "arrived", 8.0, across="right")
    for n in range(0, len(plays), every):
        y = float(panel.to_y(n))
        if not plays[n]:
            panel.words(batches, y, "-", size, across="right")
            panel.words(arrived, y, "sits out", size, across="right")
            continue
        taken, star = f"{steps[n]} x " * several, " *" * bool(recomputes[n])
        panel.words(batches, y, f"{taken}{plan.micro_batches[n]}{star}", size, across="right")
        panel.words(arrived, y, f"{100.0 * arrivals[n]:.0f} %", size, across="right")


def draw_history(panel: Panel, values: Sequence[float], last_round: int, title: str, colour: str) -> None:
    """Draw a curve that ends at this round, its last point marked."""
    y = np.asarray(values, dtype=np.float64)
    x = np.arange(last_round - len(y) + 1, last_round + 1)
    known = np.isfinite(y)
    panel.title(title)
    panel.words(panel.x + 0.5 * panel.width, panel.y + panel.height + 24.0, "round", 7.5)
    low, high = (float(y[known].min()), float(y[known].max())) if known.any() else (0.0, 1.0)
    pad = 0.08 * (high - low) or max(0.05 * abs(high), 0.05)
    x_range = (float(x[0]) if len(x) else float(last_round)) - 0.5, last_round + 0.5
    panel.scale(x_range, (low - pad, high + pad))
    panel.frame()
    panel.ticks("x", ticks_between(*x_range, 4, integer=True))
    if not known.any():
        middle = panel.x + 0.5 * panel.width, panel.y + 0.5 * panel.height
        panel.words(*middle, "no value yet", 7.0, colour=FAINT)
        return
    panel.ticks("y", ticks_between(low - pad, high + pad, 4), grid=True)
    across, up = panel.to_x(x[known]), panel.to_y(y[known])
    panel.page.curve(across, up, color=colour, linewidth=1.2)
    panel.page.curve(across[-1:], up[-1:], color=colour, linestyle="none", marker="o", markersize=3.5)


def _names(clusters: int) -> list[str]:
    return [f"c{n}" for n in range(clusters)]


def _held(view: RoundView) -> IntArray:
    """Return the blocks on each device (N, K), none in a cluster that sits out."""
    held: IntArray = view.round.allocation.device_blocks * view.round.costs.plays[:, None]
    return held


def _cluster_rows(
    panel: Panel, view: RoundView, x_range: tuple[float, float], *, names: bool = False
) -> float:
    """Give the panel a row per cluster, downwards; return the height of one in pixels."""
    count = len(view.round.costs.plays)
    row_px = panel.height / count
    panel.scale(x_range, (count - 0.5, -0.5))
    panel.frame()
    if names:
        every = max(1, int(np.ceil(10.0 / row_px)))
        size = min(7.0, max(LEAST_FONT, 0.62 * row_px * every))
        panel.ticks("y", range(0, count, every), _names(count)[::every], size=size)
    return row_px


def _crosses(panel: Panel, x: npt.ArrayLike, y: npt.ArrayLike, size: float, *, lift: float = 0.0) -> None:
    if np.size(x):
        place = panel.to_x(x), panel.to_y(y) - lift
        panel.page.curve(*place, color=FAINT, linestyle="none", marker="x", markersize=size)
