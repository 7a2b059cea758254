"""Gantt chart of the pipelines: micro-batches on devices and links, on one common time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.schedules.timeline import Element, RoundTimeline
from collapipe_env.rendering.colours import FAINT, INK, phase_colour
from collapipe_env.rendering.panel import LEAST_FONT, Panel, seconds, ticks_between
from collapipe_env.rendering.round_view import Chart, slowest
from collapipe_env.rendering.style import HATCH, HATCH_COLOUR, ink_on, micro_batch_colours, node_colours

ROW_UNITS = {"hop": 0.62, "compute": 1.0, "uplink": 0.8, "server": 0.8}
PHASE_UNITS = 0.95
GAP_UNITS = 0.6
LEAST_UNIT_PX = 9.5
MOST_UNIT_PX = 60.0
MOST_PHASE_PX = 24.0
DIRECTIONS = ("forward", "backward", "weight")
FOLDED_BATCHES = 16
"""Beyond this many micro-batches neighbours share a shade, and their bars merge where they touch."""


@dataclass(frozen=True)
class _Rows:
    """Rows of a cluster in pixels of the page: the phases on top, an element in each row below."""

    phase_top: float
    phase_foot: float
    top: FloatArray
    foot: FloatArray

    @property
    def end(self) -> float:
        return float(self.foot[-1])


def draw_gantt(panel: Panel, charts: Sequence[Chart], devices: int) -> None:
    """Draw the detailed charts and, if some clusters are left over, a summary of all.

    Args:
        panel: Panel to draw on; its height decides how many clusters get a detailed chart.
        devices: Device slots per cluster, K.
    """
    chosen, summary_px = _choose(charts, panel.height)
    end_s = max(max(c.timeline.end_s for c in charts), 1e-12)
    panel.scale((0.0, end_s), (0.0, 1.0))
    panel.frame(left=False)
    panel.ticks("x", ticks_between(0.0, end_s, 8), grid=True)
    foot = panel.y + panel.height
    panel.words(panel.x + 0.5 * panel.width, foot + 25.0, "time since the start of the round (s)", 8.0)

    units = sum(_units(charts[n].timeline.elements) for n in chosen)
    unit_px = min((panel.height - summary_px) / units, MOST_UNIT_PX)
    top = panel.y
    for n in chosen:
        first = top + min(PHASE_UNITS * unit_px, MOST_PHASE_PX)
        feet = first + np.cumsum([ROW_UNITS[e.kind] * unit_px for e in charts[n].timeline.elements])
        rows = _Rows(top, first - 1.0, np.concatenate([[first], feet[:-1]]), feet)
        _draw_cluster(panel, charts[n], devices, rows)
        top = rows.end + GAP_UNITS * unit_px
    if summary_px > 0.0:
        _draw_summary(panel, charts, chosen, foot - summary_px)


def _units(elements: tuple[Element, ...]) -> float:
    return PHASE_UNITS + sum(ROW_UNITS[e.kind] for e in elements) + GAP_UNITS


def _choose(charts: Sequence[Chart], height_px: float) -> tuple[list[int], float]:
    """Return the clusters with a detailed chart, as many as stay legible, and the height of the summary."""
    count = len(charts)
    for most in (4, 3, 2, 1):
        chosen = slowest(charts, most)
        summary_px = 0.0 if len(chosen) == count else min(0.36 * height_px, 20.0 + 12.0 * count)
        units = sum(_units(charts[n].timeline.elements) for n in chosen)
        if (height_px - summary_px) / units >= LEAST_UNIT_PX:
            break
    return chosen, summary_px


def _draw_cluster(panel: Panel, cluster: Chart, devices: int, rows: _Rows) -> None:
    elements = cluster.timeline.elements
    height = rows.foot - rows.top
    computing = [i for i, e in enumerate(elements) if e.kind == "compute"]
    # Rows are told apart by a faint stripe under the computing ones, and a chip in the device's colour.
    right = panel.x + panel.width
    panel.page.boxes(panel.x, right, rows.top[computing], rows.foot[computing], "#f4f4f4", z=0.2)
    owned = [i for i in computing if 0 < elements[i].node <= devices]
    palette = node_colours(devices)
    inset = 0.15 * height[owned]
    panel.page.boxes(panel.x - 10.0, panel.x - 3.0, rows.top[owned] + inset, rows.foot[owned] - inset,
        [palette[elements[i].node] for i in owned],
    )  # fmt: skip
    _draw_phases(panel, cluster, rows)
    _draw_events(panel, cluster, rows)

    strip = rows.phase_foot - rows.phase_top
    label = f"{cluster.name}   {seconds(cluster.delay_s)}"
    size = float(np.clip(0.6 * strip, 6.0, 9.0))
    middle = 0.5 * (rows.phase_top + rows.phase_foot)
    panel.words(panel.x - 8.0, middle, label, size, across="right", bold=True)
    for i, element in enumerate(elements):
        size = min(7.5, 0.6 * float(height[i]))
        if size >= LEAST_FONT:
            colour = FAINT if element.kind in ("hop", "uplink") else INK
            y = float(rows.top[i] + 0.5 * height[i])
            panel.words(panel.x - 15.0, y, element.label, size, across="right", colour=colour)


def _draw_phases(panel: Panel, cluster: Chart, rows: _Rows) -> None:
    """Draw the strip of phases, and under it a tint or hatching where the pipeline itself is not drawn."""
    timeline = cluster.timeline
    phases = timeline.phases
    start = panel.to_x([p.start_s for p in phases])
    end = panel.to_x([p.end_s for p in phases])
    strip = [phase_colour(p.label) for p in phases]
    panel.page.boxes(start, end, rows.phase_top, rows.phase_foot, strip, edge="white", line_widths=0.8, z=1.5)

    below = float(rows.top[0])
    tinted = [i for i, p in enumerate(phases) if p.label not in ("step", "wait", "replay")]
    tints = [phase_colour(phases[i].label) + "38" for i in tinted]
    panel.page.boxes(start[tinted], end[tinted], below, rows.end, tints, z=0.4)
    plain = undrawn_steps(timeline)
    panel.page.boxes(start[plain], end[plain], below, rows.end, "none", edge=HATCH_COLOUR, hatch=HATCH, z=0.3)

    size = min(7.5, 0.55 * (rows.phase_foot - rows.phase_top))
    steps = sum(p.label == "step" for p in phases)
    step = 0
    for i, phase in enumerate(phases):
        text: str = phase.label
        if phase.label == "step":
            step += 1
            text = f"local step {step} of {steps}" if steps > 1 else "local step"
            text += f" ({cluster.schedule})" * bool(cluster.schedule)
        if size >= LEAST_FONT and end[i] - start[i] > 0.85 * size * len(text) + 4.0:
            colour = ink_on(phase_colour(phase.label))
            middle = 0.5 * (rows.phase_top + rows.phase_foot)
            panel.words(float(0.5 * (start[i] + end[i])), middle, text, size, colour=colour)


def undrawn_steps(timeline: RoundTimeline) -> list[int]:
    """Return the indices of the local steps without events of their own; they are hatched."""
    drawn_until = max((e.end_s for e in timeline.events), default=0.0) * (1.0 - 1e-9)
    return [
        i for i, p in enumerate(timeline.phases) if p.label in ("step", "replay") and p.start_s >= drawn_until
    ]


def _draw_events(panel: Panel, cluster: Chart, rows: _Rows) -> None:
    events = cluster.timeline.events
    if not events:
        return
    element = np.array([e.element for e in events])
    batch = np.array([e.micro_batch for e in events])
    direction = np.array([DIRECTIONS.index(e.direction) for e in events])
    start = panel.to_x([e.start_s for e in events])
    end = panel.to_x([e.end_s for e in events])

    count = max(cluster.micro_batches, int(batch.max()) + 1)
    shades = min(count, FOLDED_BATCHES)
    shade = batch * shades // count
    order = np.lexsort((start, direction, element))
    element, direction, shade, start, end = (v[order] for v in (element, direction, shade, start, end))
    if count > FOLDED_BATCHES:
        # A bar joins its left neighbour if it has the same row and shade and no visible gap.
        alike = (element[1:] == element[:-1]) & (direction[1:] == direction[:-1]) & (shade[1:] == shade[:-1])
        joined = alike & (start[1:] - end[:-1] < 0.6)
        first = np.flatnonzero(np.concatenate([[True], ~joined]))
        end = np.maximum.reduceat(end, first)
        element, direction, shade, start = (v[first] for v in (element, direction, shade, start))

    colours = micro_batch_colours(shades)[direction, shade]
    end = np.maximum(end, start + 1.0)  # even the shortest event is visible
    height = (rows.foot - rows.top)[element]
    inset = np.where(height > 7.0, 0.1 * height, 0.3)
    top, foot = rows.top[element] + inset, rows.foot[element] - inset
    wide = end - start > 4.0
    # Two collections of one line width each: Matplotlib scales dashes for every width in a list.
    for some, width in ((wide, 0.5), (~wide, 0.0)):
        panel.page.boxes(
            start[some], end[some], top[some], foot[some], colours[some], edge="white", line_widths=width
        )


def _draw_summary(panel: Panel, charts: Sequence[Chart], chosen: list[int], top: float) -> None:
    """Draw a strip of phases for every cluster; those with a detailed chart above have bold names."""
    panel.words(panel.x, top + 6.0, f"all {len(charts)} clusters", 8.0, across="left", bold=True)
    top += 16.0
    row_px = (panel.y + panel.height - top) / len(charts)
    size = min(7.0, max(LEAST_FONT, 0.62 * row_px))
    every = int(np.ceil(1.45 * size / row_px))
    for n, cluster in enumerate(charts):
        if n % every == 0:
            text = f"{cluster.name}   {seconds(cluster.delay_s)}"
            panel.words(panel.x - 8.0, top + (n + 0.5) * row_px, text, size, across="right", bold=n in chosen)
    strips = [(n, phase) for n, cluster in enumerate(charts) for phase in cluster.timeline.phases]
    left = panel.to_x([phase.start_s for _, phase in strips])
    right = panel.to_x([phase.end_s for _, phase in strips])
    row = top + np.array([n for n, _ in strips]) * row_px
    colours = [phase_colour(phase.label) for _, phase in strips]
    panel.page.boxes(
        left, right, row + 0.08 * row_px, row + 0.92 * row_px, colours, edge="white", line_widths=0.4
    )
