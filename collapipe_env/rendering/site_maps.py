"""Maps of clusters whose devices move: positions of the nodes, and rates of the pipeline's links."""

from __future__ import annotations

import math
from typing import NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.colors import LogNorm

from collapipe_env.ground.arrays import FloatArray, on_host
from collapipe_env.rendering.colours import CU_COLOUR, FAINT, GRID, INK
from collapipe_env.rendering.panel import Panel
from collapipe_env.rendering.round_view import RoundView, slowest
from collapipe_env.rendering.sheet import Sheet
from collapipe_env.rendering.style import node_colours
from collapipe_env.simulator.system import MOBILITY

MAP_PX, GAP_PX = 116.0, 20.0
STRIP_PX = MAP_PX + 60.0
"""Height that the maps take below the pipelines, words included."""
SCALE_PX = 92.0
"""Width of the legend beside them."""


class ClusterMap(NamedTuple):
    """Positions in a cluster whose devices move, relative to its CU.

    Attributes:
        east_m: (K,) devices eastwards from the CU [m].
        north_m: (K,) devices northwards from the CU [m].
        station_m: Base station, eastwards and northwards from the CU [m].
        links: Sender, receiver (0 for the CU, else one more than the device slot) and time of the whole
            mini-batch forward [s], for each hop of the pipeline.
    """

    east_m: FloatArray
    north_m: FloatArray
    station_m: tuple[float, float]
    links: tuple[tuple[int, int, float], ...]


def map_of(view: RoundView, cluster: int) -> ClusterMap:
    """Return the places of a cluster's devices, and the hops of its pipeline."""
    costs, walk = view.round.costs, view.round.state.processes[MOBILITY]
    # For the whole mini-batch, so that clusters with different micro-batches compare by their rates.
    hops = costs.elements.hop_forward[cluster] * view.round.allocation.micro_batches[cluster]
    # Empty slots have a rank that is next to no other, so they have no links.
    following = on_host(view.record.costs.graph.successor)[view.row, cluster]  # worked out for timelines
    pairs = np.argwhere(following & costs.plays[cluster])
    half = 0.5 * (view.side_m or 0.0)
    station = -walk["cu_position"][cluster]
    return ClusterMap(
        east_m=walk["x"][cluster] - half,
        north_m=walk["y"][cluster] - half,
        station_m=(float(station[0]), float(station[1])),
        links=tuple((int(i), int(j), float(hops[i])) for i, j in pairs),
    )


def draw_maps(page: Sheet, view: RoundView, x: float, y: float, width: float) -> None:
    """Draw squares from ``y`` downwards for the detailed clusters that fit, and the legend of links."""
    room = int((width - SCALE_PX + GAP_PX) // (MAP_PX + GAP_PX))
    shown = {n: map_of(view, n) for n in sorted(slowest(view.charts, min(4, room)))}
    seconds = [min(max(link[2], 1e-12), 1e12) for site in shown.values() for link in site.links]
    ends = min(seconds, default=1.0), max(seconds, default=1.0)
    for i, (cluster, site) in enumerate(shown.items()):
        _map(Panel(page, x + i * (MAP_PX + GAP_PX), y, MAP_PX, MAP_PX), view, cluster, site, ends)
    if seconds:
        _scale(page, x + width - SCALE_PX + 44.0, y, ends)


def _shade(seconds: npt.ArrayLike, ends: tuple[float, float]) -> FloatArray:
    """Return the colours of links by the logarithm of their times: light for quick links."""
    place = LogNorm(*ends, clip=True)(np.asarray(seconds))
    return np.asarray(matplotlib.colormaps["plasma_r"](0.12 + 0.83 * place))


def _map(panel: Panel, view: RoundView, cluster: int, site: ClusterMap, ends: tuple[float, float]) -> None:
    half = max(0.5 * (view.side_m or 0.0), view.reach_m or 0.0)
    panel.scale((-half, half), (-half, half))
    panel.title(f"c{cluster}, {2.0 * half:.3g} m", lift=9.0)
    left, right, top, foot = panel.x, panel.x + panel.width, panel.y, panel.y + panel.height
    corners = [(left, top), (right, top), (right, foot), (left, foot)]
    panel.page.rules(list(zip(corners, corners[1:] + corners[:1], strict=True)), FAINT, 0.7, 1.0)
    x, y = float(panel.to_x(0.0)), float(panel.to_y(0.0))  # of the CU
    panel.page.rules([((left, y), (right, y)), ((x, top), (x, foot))], GRID, 0.6, 0.5)
    east = np.concatenate([[0.0], site.east_m])
    north = np.concatenate([[0.0], site.north_m])
    at_x, at_y = panel.to_x(east), panel.to_y(north)
    for i, j, seconds in site.links:
        panel.page.curve(at_x[[i, j]], at_y[[i, j]], color=_shade(seconds, ends), linewidth=1.8)
    colours = np.array(node_colours(len(site.east_m)))
    there = np.flatnonzero(view.round.state.present[cluster])
    if view.reach_m is not None:
        around = np.linspace(0.0, 2.0 * np.pi, 97)
        circle = view.reach_m * np.cos(around), view.reach_m * np.sin(around)
        panel.page.curve(panel.to_x(circle[0]), panel.to_y(circle[1]), color=FAINT, linewidth=0.8)
    if there.size:
        panel.page.dots(at_x[there + 1], at_y[there + 1], "o", 34.0, list(colours[there + 1]))
    panel.page.dots(at_x[:1], at_y[:1], "D", 30.0, [CU_COLOUR])
    # The base station is far outside: a triangle at the edge points to it.
    far = max(abs(site.station_m[0]), abs(site.station_m[1]), 1e-9)
    edge = [half * component / far for component in site.station_m]
    place = panel.to_x(edge[:1]), panel.to_y(edge[1:])
    panel.page.curve(*place, color=INK, linestyle="none", marker="^", markersize=5.0)
    distance = math.hypot(*site.station_m)
    panel.words(left + 0.5 * panel.width, foot + 10.0, f"▲ base station {distance:.0f} m", 7.0)


def _scale(page: Sheet, x: float, y: float, ends: tuple[float, float]) -> None:
    """Draw the colours of links with their times, quick links below."""
    page.write(x - 24.0, y - 9.0, "hop (s)", 8.0)
    steps = 24
    times = np.geomspace(*ends, steps)
    edges = y + MAP_PX - 0.8 * MAP_PX * np.arange(steps + 1) / steps - 0.1 * MAP_PX
    page.boxes(x - 24.0, x - 12.0, edges[1:], edges[:-1], _shade(times, ends))
    # A single time gets a single label.
    named = (0, steps - 1) if ends[1] > ends[0] else (0,)
    for i in named:
        page.write(x - 8.0, float(0.5 * (edges[i] + edges[i + 1])), f"{times[i]:.3g}", 7.0)
