"""The styles that pictures share, their legends and notes, and how they are saved.

Figures carry an Agg canvas and touch no ``pyplot`` state and no display.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from collapipe_env.evaluation.looks import COLOURS as COLOURS
from collapipe_env.evaluation.looks import MARKERS as MARKERS
from collapipe_env.ground.files import write_bytes

INK, MUTED, FAINT, WARNING = "#222222", "#444444", "#8a8a8a", "#b3261e"
DASHES = (0, (4, 3))
"""Dashes of lines that mark a value."""
MARK: dict[str, Any] = {"color": MUTED, "linewidth": 1.0, "linestyle": DASHES}
"""Lines that mark a value."""
LONGEST_NAME = 34
"""Most letters of a scheduler's name in a figure."""
RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9.5, "text.usetex": False, "text.parse_math": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#e3e3e3", "grid.linewidth": 0.7, "axes.edgecolor": FAINT, "xtick.color": MUTED,
    "ytick.color": MUTED, "legend.frameon": False, "hatch.linewidth": 0.6, "hatch.color": "white",
    "svg.hashsalt": "collapipe", "pdf.fonttype": 42,
}  # fmt: skip
COLUMN = 3.5
"""Width of a column of the IEEE's journals [inch]."""


class PictureStyle(NamedTuple):
    """Where pictures are to stand.

    Attributes:
        rc: Settings of Matplotlib.
        size: Factor of the sizes of figures.
        keys_below: Whether legends stand below, where a column leaves no room beside a panel.
        explains: Whether lines of explanation stand below; captions take their place in a paper.
        column: Whether a figure is a whole number of columns wide.
    """

    rc: dict[Any, Any]
    size: float = 1.0
    keys_below: bool = False
    explains: bool = True
    column: bool = False


STYLES = {
    "default": PictureStyle(RC),
    "ieee": PictureStyle(
        {**RC, "font.family": "STIXGeneral", "font.size": 8.0, "lines.linewidth": 1.0},
        size=COLUMN / 5.0,
        keys_below=True,
        explains=False,
        column=True,
    ),
}
_style: ContextVar[PictureStyle] = ContextVar("_style", default=STYLES["default"])


@contextmanager
def in_style(name: str) -> Iterator[None]:
    """Draw in a style of :data:`STYLES`."""
    token = _style.set(STYLES[name])
    try:
        with matplotlib.rc_context(STYLES[name].rc):
            yield
    finally:
        _style.reset(token)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure with Agg canvas; sizes in inches, those of the default style."""
    style = _style.get()
    wide = style.size * width
    if style.column:
        wide = COLUMN * max(round(wide / COLUMN), 1)
    figure = Figure(figsize=(wide, style.size * height), dpi=130, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format that the path's ending names, whole or not at all, and without a date.

    Raises:
        DataError: If the file cannot be written.
    """
    content, kind = io.BytesIO(), path.suffix.removeprefix(".")
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    figure.savefig(content, format=kind, dpi=figure.dpi, metadata=undated)
    write_bytes(path, content.getvalue())
    return path


def short_name(text: str) -> str:
    """A name that fits beside a figure: a very long one loses its middle."""
    tail = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - tail - 1]}…{text[-tail:]}"


def name_width(names: Iterable[str]) -> float:
    """Inches that the longest of some names needs in a figure's font."""
    return 0.078 * max((len(short_name(name)) for name in names), default=0)


def line_key(text: str, **style: Any) -> Artist:
    """Legend entry for lines, by default of no scheduler or of all."""
    return Line2D([], [], label=text, **{"color": FAINT, **style})


def mark_key(text: str) -> Artist:
    """Legend entry for lines that mark a value."""
    return line_key(text, color=MUTED, linestyle=DASHES)


def legend_beside(figure: Figure, handles: Sequence[Artist], handle_length: float = 2.6) -> None:
    """Put a legend on the right of a figure, and enlarge the figure to make room for it.

    Args:
        figure: The figure, as large as its axes need.
        handles: Entries of the legend, with labels.
        handle_length: Length of the drawn sample of each entry, in letters.
    """
    width, height = figure.get_size_inches()
    if _style.get().keys_below:
        columns = max(1, int(width / (0.55 + 0.8 * name_width(str(h.get_label()) for h in handles))))
        figure.set_size_inches(width, height + 0.14 * math.ceil(len(handles) / columns) + 0.1)
        figure.legend(
            handles=handles, loc="outside lower center", ncols=columns, handlelength=2.0, fontsize=7
        )
        return
    wider = 0.9 + name_width(str(handle.get_label()) for handle in handles)
    figure.set_size_inches(width + wider, max(height, 0.21 * len(handles) + 0.2))
    figure.legend(handles=handles, loc="outside right upper", handlelength=handle_length, fontsize=9)


def row_label(axes: Axes, quantity: str, *explained: str) -> None:
    """Label the x axis below rows: the quantity, and what marks mean where the style explains."""
    text = f"{quantity}{''.join(explained)}" if _style.get().explains else quantity
    axes.set_xlabel(text, fontsize="medium" if text == quantity else 8.5)


def footer(figure: Figure, lines: Sequence[str]) -> None:
    """Write lines of explanation below a figure, under existing ones; its width must be final."""
    if lines and _style.get().explains:
        letters = int(14.5 * figure.get_size_inches()[0])
        wrapped = [textwrap.fill(line, letters, break_on_hyphens=False) for line in lines]
        text = "\n".join(filter(None, [figure.get_supxlabel(), *wrapped]))
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8.5, color=MUTED)


def whole_numbers(axes: Axes) -> None:
    """Put whole numbers on the x axis: rounds and steps have no fractions."""
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def spread(values: Sequence[float]) -> float:
    """Largest over smallest value; infinite unless all are positive."""
    return max(values) / min(values) if min(values) > 0.0 else math.inf


def log_axis(axes: Axes, which: str) -> None:
    """Make the ``"x"`` or ``"y"`` axis logarithmic, with plain numbers beside it."""
    getattr(axes, f"set_{which}scale")("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high / low >= 10.0 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    axis.set_major_locator(LogLocator(subs=steps, numticks=100))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")
