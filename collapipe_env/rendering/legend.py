"""The legend of the pipeline charts: their colours and their hatching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collapipe_env.physics.schedules.timeline import RoundTimeline
from collapipe_env.rendering.colours import FAINT, PHASES, known_phase
from collapipe_env.rendering.gantt import undrawn_steps
from collapipe_env.rendering.sheet import Sheet
from collapipe_env.rendering.style import HATCH, HATCH_COLOUR, HATCH_NAME, micro_batch_colours

SWATCH_PX, TEXT_GAP_PX, ENTRY_GAP_PX, LINE_PX = 10.0, 5.0, 12.0, 14.0
"""Width of a swatch, gaps after swatches and entries, and distance between two lines."""
LETTER_PX = 5.9
"""Room for a letter of 7.5 points."""


@dataclass(frozen=True)
class Entry:
    """An entry of the legend: its text, and its swatches side by side, the last one hatched or not."""

    name: str
    colours: list[Any]
    hatched: bool = False

    @property
    def swatch_px(self) -> float:
        """Width of a swatch; shades of one colour are narrower."""
        return SWATCH_PX if len(self.colours) == 1 else 0.7 * SWATCH_PX

    @property
    def width_px(self) -> float:
        """Pixels up to the next entry."""
        swatches = self.swatch_px * len(self.colours)
        return swatches + TEXT_GAP_PX + LETTER_PX * len(self.name) + ENTRY_GAP_PX


def legend_entries(timelines: Sequence[RoundTimeline]) -> list[Entry]:
    """Return entries for the directions that occur, the phases, and hatching if there is any."""
    directions = {event.direction for timeline in timelines for event in timeline.events}
    phases = {known_phase(phase.label) for timeline in timelines for phase in timeline.phases}
    names = ["forward, micro-batch 1…M", "backward", *(["weight gradient"] if "weight" in directions else [])]
    entries = [
        Entry(name, [tuple(shade) for shade in ramp])
        for name, ramp in zip(names, micro_batch_colours(5), strict=False)
    ]
    entries += [Entry(name, [colour]) for label, (name, colour) in PHASES.items() if label in phases]
    if any(undrawn_steps(timeline) for timeline in timelines):
        entries.append(Entry(HATCH_NAME, ["white"], hatched=True))
    return entries


def draw_legend(page: Sheet, entries: Sequence[Entry], left: float, right: float, middle: float) -> None:
    """Draw entries in one line, or in two where they need more room, around the height ``middle``."""
    lines: list[list[Entry]] = [[]]
    for entry in entries:
        used = sum(one.width_px for one in lines[-1]) - ENTRY_GAP_PX
        if lines[-1] and len(lines) == 1 and left + used + entry.width_px > right:
            lines.append([])
        lines[-1].append(entry)
    for number, line in enumerate(lines):
        x, y = left, middle + LINE_PX * (number - 0.5 * (len(lines) - 1))
        for entry in line:
            for colour in entry.colours:
                place = x, x + entry.swatch_px, y - 5.0, y + 5.0
                page.boxes(*place, [colour], edge=FAINT, line_widths=0.4)
                x += entry.swatch_px
            if entry.hatched:
                page.boxes(*place, "none", edge=HATCH_COLOUR, hatch=2 * HATCH, z=2.1)
            page.write(x + TEXT_GAP_PX, y, entry.name, 7.5)
            x += entry.width_px - entry.swatch_px * len(entry.colours)
