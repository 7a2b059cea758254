"""The look that the pictures of evaluations and comparisons share, and how they are saved.

Figures carry an Agg canvas and touch no ``pyplot`` state and no display.
"""

from __future__ import annotations

import importlib.util
import io
import math
import textwrap
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from collapipe_env.ground.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with every common kind of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666", "#882255")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SPARE_MARKERS = ("p", "h", "<", ">", "d")
"""Markers of schedulers outside the package; its own never have these."""
LineStyle = Literal["-", "--", ":", "-."]
LINES: tuple[LineStyle, ...] = ("-", "--", ":")
"""Line styles; the next one is used once all colours have been used."""
SPARE_LINE: LineStyle = "-."
"""Line style that goes with the spare markers."""
PLACES = {
    "agent": 0, "dssra": 1, "pipeline": 2, "random": 3, "vanilla_fl": 4, "titanic": 5, "pipeedge": 6,
    "asteroid": 7, "splitfed_v1": 8, "splitfed_v2": 9, "pipar": 10, "adaptis": 11, "optpipe": 12,
    "flexpipe": 13, "xpipe": 14, "greedy_dpp": 15, "flop_proportional": 16, "memory_proportional": 17,
    "best_single_device": 18, "dssra-bound": 19, "dssra-target": 20,
}  # fmt: skip
"""The look of each of the package's schedulers, as a place in the sequence of looks. Never give one to
another scheduler: readers compare pictures of different runs."""
INK, MUTED, FAINT, WARNING = "#222222", "#444444", "#8a8a8a", "#b3261e"
DASHES = (0, (4, 3))
"""Dashes of lines that mark a value."""
LONGEST_NAME = 34
"""Most letters of a scheduler's name in a figure."""
RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.usetex": False,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.7,
    "axes.edgecolor": FAINT,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of a scheduler.

    Attributes:
        colour: Colour of its lines, bars and markers.
        marker: Matplotlib's marker.
        line: Matplotlib's line style.
    """

    colour: str
    marker: str
    line: LineStyle


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
        if name in PLACES:
            found[name] = look_at(PLACES[name])
            continue
        # Not hash(), which differs from process to process.
        first = zlib.crc32(name.encode())
        places = [(first + step) % spare for step in range(spare)]
        place = next((place for place in places if place not in taken), places[0])
        taken.add(place)
        turn, colour = divmod(place, len(COLOURS))
        found[name] = Look(COLOURS[colour], SPARE_MARKERS[(turn + colour) % len(SPARE_MARKERS)], SPARE_LINE)
    return found


def look_at(index: int) -> Look:
    """The look at a place in the sequence of looks; the first 24 differ."""
    turn = index // len(COLOURS)
    return Look(
        COLOURS[index % len(COLOURS)], MARKERS[(index + turn) % len(MARKERS)], LINES[turn % len(LINES)]
    )


def short_name(text: str) -> str:
    """A name that fits beside a figure: a very long one loses its middle."""
    if len(text) <= LONGEST_NAME:
        return text
    tail = LONGEST_NAME // 2
    return f"{text[: LONGEST_NAME - tail - 1]}…{text[-tail:]}"


def name_width(names: Iterable[str]) -> float:
    """Inches that the longest of some names needs in a figure's font."""
    return 0.078 * max((len(short_name(name)) for name in names), default=0)


def legend_beside(figure: Figure, handles: Sequence[Artist], handle_length: float = 2.6) -> None:
    """Put a legend on the right of a figure, and enlarge the figure to make room for it.

    Args:
        figure: The figure, as large as its axes need.
        handles: Entries of the legend, with labels.
        handle_length: Length of the drawn sample of each entry, in letters.
    """
    width, height = figure.get_size_inches()
    wider = 0.9 + name_width(str(handle.get_label()) for handle in handles)
    figure.set_size_inches(width + wider, max(height, 0.21 * len(handles) + 0.2))
    figure.legend(handles=handles, loc="outside right upper", handlelength=handle_length, fontsize=9)


def whole_numbers(axes: Axes) -> None:
    """Put whole numbers on the x axis: rounds and steps have no fractions."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def spread_keys(episodes: int) -> list[Artist]:
    """Legend entries for lines of means with bands over episodes; none for a single episode."""
    from matplotlib.patches import Patch

    if episodes == 1:
        return []
    band = Patch(facecolor=FAINT, alpha=0.3, linewidth=0, label=f"lowest to highest of {episodes} episodes")
    return [line_key("mean over episodes"), band]


def line_key(text: str, **style: Any) -> Artist:
    """Legend entry for lines that belong to no scheduler, or to all of them."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=text, **{"color": FAINT, **style})


def footer(figure: Figure, lines: Sequence[str]) -> None:
    """Write lines of explanation below a figure, under existing ones; its width must be final."""
    if lines:
        letters = int(14.5 * figure.get_size_inches()[0])
        wrapped = [textwrap.fill(line, letters, break_on_hyphens=False) for line in lines]
        before = figure.get_supxlabel()
        text = "\n".join([*([before] if before else []), *wrapped])
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8.5, color=MUTED)


def drawing_possible() -> bool:
    """Whether Matplotlib, an extra of the package, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def new_figure(width: float, height: float) -> Figure:
    """An empty figure with Agg canvas; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=130, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, whole or not at all.

    Raises:
        DataError: If the file cannot be written.
    """
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=figure.dpi)
    write_bytes(path, content.getvalue())
    return path


def spread(values: Sequence[float]) -> float:
    """Largest over smallest value; infinite unless all are positive."""
    return max(values) / min(values) if min(values) > 0.0 else math.inf


def log_axis(axes: Axes, which: str) -> None:
    """Make the ``"x"`` or ``"y"`` axis logarithmic, with plain numbers beside it."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    getattr(axes, f"set_{which}scale")("log")
    low, high = getattr(axes, f"get_{which}lim")()
    steps = [1.0, 2.0, 5.0]
    if high / low < 10.0:
        steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    places = [step * 10.0**decade for decade in decades for step in steps]
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator([place for place in places if low <= place <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
