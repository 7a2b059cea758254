"""The sheet on which a page is drawn: a Matplotlib figure for any file format, or the pixels of a frame.

The page is counted in pixels from the upper left corner. The figure has no axes, since Matplotlib builds five
objects a tick. A frame keeps the words that it has drawn, since nearly all of them come back in the next one.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import Collection, LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, IdentityTransform

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.rendering.colours import INK
from collapipe_env.rendering.style import RC

DPI = 100
STAMPS = 1024
"""Number of drawn words that are kept. A frame has about 300, all but a few dozen from the frame before."""
ACROSS = {"left": 0.0, "center": 0.5, "right": 1.0}
"""Share of a word that lies to the left of its place."""


class _Word(NamedTuple):
    """A word at a pixel of the page, vertically centred; ``size`` is in points."""

    x_px: float
    y_px: float
    text: str
    size: float
    across: str
    colour: str
    bold: bool


class Sheet:
    """A page to draw on, which belongs to no window and no ``pyplot`` state.

    Attributes:
        width: In pixels.
        height: In pixels.
        transform: Transform from pixels of the page, y downwards, to those of Matplotlib.
    """

    def __init__(self, width_px: float, height_px: float) -> None:
        self.width, self.height = width_px, height_px
        self._figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, facecolor="white")
        self._canvas = FigureCanvasAgg(self._figure)
        flip = Affine2D().scale(1.0 / width_px, -1.0 / height_px).translate(0.0, 1.0)
        self.transform = flip + self._figure.transFigure
        self._words: list[_Word] = []

    def add(self, artist: Artist) -> None:
        """Add a collection or a line; artists of a lower ``zorder`` lie below."""
        self._figure.add_artist(artist)

    def write(
        self,
        x_px: float,
        y_px: float,
        text: str,
        size: float,
        *,
        across: str = "left",
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        """Write on top of all artists at a pixel of the page, vertically centred; ``size`` is in points."""
        self._words.append(_Word(x_px, y_px, text, float(size), across, colour, bold))

    def figure(self) -> Figure:
        """Return the page as a figure, with an Agg canvas; call once, when everything is on it."""
        for word in self._words:
            self._figure.text(
                word.x_px, word.y_px, word.text, transform=self.transform, fontsize=word.size,
                color=word.colour, ha=word.across, fontweight="bold" if word.bold else "normal",
                va="center_baseline",
            )  # fmt: skip
        return self._figure

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the page as (height, width, 3) uint8."""
        self._canvas.draw()  # type: ignore[no-untyped-call]
        renderer = self._canvas.get_renderer()  # type: ignore[no-untyped-call]
        for word in self._words:
            stamp, margin, advance = _stamp(word.text, word.size, word.bold, word.colour)
            left = round(word.x_px - ACROSS[word.across] * advance) - margin
            baseline = round(word.y_px + _half_ascent(word.size, word.bold))
            foot = round(self.height) - baseline - len(stamp) // 2
            renderer.draw_image(renderer.new_gc(), left, foot, stamp)
        drawn = np.asarray(self._canvas.buffer_rgba(), dtype=np.uint8)  # type: ignore[no-untyped-call]
        return drawn[..., :3].copy()

    def boxes(
        self,
        left: npt.ArrayLike,
        right: npt.ArrayLike,
        top: npt.ArrayLike,
        foot: npt.ArrayLike,
        colours: object,
        *,
        edge: str = "none",
        line_widths: npt.ArrayLike = 0.0,
        hatch: str | None = None,
        z: float = 2.0,
    ) -> None:
        """Add many rectangles as one collection: far faster than a patch each."""
        x0, x1, y0, y1 = np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (left, right, top, foot))
        )
        if x0.size:
            self.add(
                _Boxes(
                    x0, x1, y0, y1, facecolors=colours, edgecolors=edge, linewidths=line_widths, hatch=hatch,
                    zorder=z, transform=self.transform,
                )
            )  # fmt: skip

    def rules(
        self,
        segments: list[tuple[tuple[float, float], tuple[float, float]]],
        colour: str,
        width: float,
        z: float,
    ) -> None:
        """Add straight lines, ``width`` in points."""
        self.add(
            LineCollection(
                segments, colors=colour, linewidths=width, zorder=z, transform=self.transform
            )
        )  # fmt: skip

    def curve(self, x: npt.ArrayLike, y: npt.ArrayLike, **style: Any) -> None:
        """Add a curve, or only its markers, with the style of ``matplotlib.lines.Line2D``."""
        self.add(Line2D(np.asarray(x), np.asarray(y), zorder=3, transform=self.transform, **style))

    def dots(self, x: FloatArray, y: FloatArray, shape: str, area: float, colours: object) -> None:
        """Add markers with a thin white edge; ``area`` is in points squared."""
        marker = MarkerStyle(shape)
        path = marker.get_path().transformed(marker.get_transform())
        self.add(
            PathCollection(
                [path], [area], offsets=np.stack([x, y], axis=-1), offset_transform=self.transform,
                facecolors=colours, edgecolors="white", linewidths=0.4, zorder=3,
                transform=IdentityTransform(),
            )
        )  # fmt: skip


class _Boxes(Collection):
    """Rectangles that share one path: their matrices are made all at once, unlike separate paths."""

    def __init__(self, x0: FloatArray, x1: FloatArray, y0: FloatArray, y1: FloatArray, **style: Any) -> None:
        super().__init__(**style)
        self.set_paths([Path.unit_rectangle()] * x0.size)
        matrices = np.zeros((x0.size, 3, 3))
        matrices[:, 0, 0], matrices[:, 0, 2] = x1 - x0, x0
        matrices[:, 1, 1], matrices[:, 1, 2] = y1 - y0, y0
        matrices[:, 2, 2] = 1.0
        self._transforms = matrices


@cache
def _font(size: float, bold: bool) -> FontProperties:
    return FontProperties(family=RC["font.family"], size=size, weight="bold" if bold else "normal")


@cache
def _half_ascent(size: float, bold: bool) -> float:
    """Return the pixels from the baseline up to the line of ``va="center_baseline"``."""
    _, height, descent = _extent("lp", size, bold)
    return 0.5 * (height - descent)


def _extent(text: str, size: float, bold: bool) -> tuple[float, float, float]:
    """Return width, height and descent of a text in pixels."""
    renderer = RendererAgg(1, 1, DPI)  # type: ignore[no-untyped-call]
    found: tuple[float, float, float] = renderer.get_text_width_height_descent(  # type: ignore[no-untyped-call]
        text, _font(size, bold), False
    )
    return found


@lru_cache(maxsize=STAMPS)
def _stamp(text: str, size: float, bold: bool, colour: str) -> tuple[npt.NDArray[np.uint8], int, float]:
    """Draw a text by itself.

    Returns:
        Its picture (h, w, 4) from the foot upwards, as renderers take it, with the baseline half-way; the
        pixels before its start; and its length in pixels.
    """
    margin, half = math.ceil(0.5 * size), math.ceil(2.0 * size)
    advance = _extent(text, size, bold)[0]
    width = math.ceil(advance) + 2 * margin
    renderer = RendererAgg(width, 2 * half, DPI)  # type: ignore[no-untyped-call]
    ink = renderer.new_gc()
    ink.set_foreground(colour)
    renderer.draw_text(ink, margin, half, text, _font(size, bold), 0.0)  # type: ignore[no-untyped-call]
    drawn = np.asarray(renderer.buffer_rgba(), dtype=np.uint8)  # type: ignore[no-untyped-call]
    return drawn[::-1].copy(), margin, advance
