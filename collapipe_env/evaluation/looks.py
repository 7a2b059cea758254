"""Colour, marker and line of each scheduler, the same in every picture and page of every run."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

# Okabe and Ito's colours, told apart with every common kind of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666", "#882255")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES, HATCHES = ("-", "--", ":"), ("", "////", "....")
"""Styles of lines and hatching of bars; the next one is used once all colours have been used."""
SPARE_MARKERS, SPARE_LINE, SPARE_HATCH = ("p", "h", "<", ">", "d"), "-.", "xxxx"
"""Markers, line and hatching of schedulers outside the package; its own never have these."""
OWN = (
    "agent", "dssra", "pipeline", "random", "vanilla_fl", "titanic", "pipeedge", "asteroid", "splitfed_v1",
    "splitfed_v2", "pipar", "adaptis", "optpipe", "flexpipe", "xpipe", "greedy_dpp", "flop_proportional",
    "memory_proportional", "best_single_device", "dssra-bound", "dssra-target", "dssra-plus", "dssra-truth",
)  # fmt: skip
"""The package's schedulers; each has the look of its place here. Never change a place: readers compare
pictures of different runs."""


Style = dict[str, Any]
"""Matplotlib's settings of lines, markers or texts by name."""


class Look(NamedTuple):
    """Colour, marker, line style and hatching of a scheduler, as Matplotlib takes them."""

    colour: str
    marker: str
    line: str
    hatch: str = ""

    def style(self, **more: Any) -> Style:
        """Matplotlib's settings for a line or a legend entry, with further ones."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.line, **more}

    def along(self, points: int, markers: int) -> Style:
        """Settings for a line of some points with about this many markers on it."""
        return self.style(markersize=4.5, markevery=max(points // markers, 1))


def looks_of(schedulers: Iterable[str]) -> dict[str, Look]:
    """The looks of the schedulers of one picture.

    The package's own schedulers have fixed looks. Others get a spare look that their name alone decides. If
    two schedulers of the picture would get the same one, the name that sorts last takes the next free look.

    Args:
        schedulers: Requested names; their order does not matter.
    """
    spare = len(COLOURS) * len(SPARE_MARKERS)
    found: dict[str, Look] = {}
    taken: set[int] = set()
    for name in sorted(set(schedulers)):
        if name in OWN:
            turn, colour = divmod(OWN.index(name), len(COLOURS))
            marker, line, hatch = MARKERS[(colour + turn) % len(MARKERS)], LINES[turn], HATCHES[turn]
        else:
            place = zlib.crc32(name.encode()) % spare  # not hash(), which differs from process to process
            while place in taken and len(taken) < spare:
                place = (place + 1) % spare
            taken.add(place)
            turn, colour = divmod(place, len(COLOURS))
            marker, line = SPARE_MARKERS[(turn + colour) % len(SPARE_MARKERS)], SPARE_LINE
            hatch = SPARE_HATCH
        found[name] = Look(COLOURS[colour], marker, line, hatch)
    return found
