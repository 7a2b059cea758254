"""The look that the pictures of evaluations and comparisons share, and how they are saved.

Figures carry an Agg canvas and touch no ``pyplot`` state and no display.
"""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from collapipe_env.evaluation.registry import LEARNED, scheduler_names
from collapipe_env.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with every common kind of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666", "#882255")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LineStyle = Literal["-", "--", ":"]
LINES: tuple[LineStyle, ...] = ("-", "--", ":")
"""Line styles: the next one where the colours have all been used."""
INK, FAINT, WARNING = "#222222", "#8a8a8a", "#b3261e"
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
    """How a scheduler is drawn.

    Attributes:
        colour: Of its lines, bars and markers.
        marker: Matplotlib's sign.
        line: Matplotlib's line style.
    """

    colour: str
    marker: str
    line: LineStyle


def look_of(scheduler: str) -> Look:
    """The look of a scheduler, the same in every picture and in every comparison.

    Args:
        scheduler: Name it is asked for by.
    """
    known = (LEARNED, *scheduler_names())
    return look_at(known.index(scheduler) if scheduler in known else len(known))


def look_at(index: int) -> Look:
    """The look at a place in the sequence of looks; the first 24 differ."""
    turn = index // len(COLOURS)
    return Look(
        COLOURS[index % len(COLOURS)],
        MARKERS[(index + turn) % len(MARKERS)],
        LINES[turn % len(LINES)],
    )


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
