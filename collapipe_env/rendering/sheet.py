"""Sheets on which a page is drawn: a Matplotlib figure for any file format, or the pixels of a frame.

Both hold the same page in pixels, counted from the upper left corner, and are filled by the same calls.
A frame skips the slowest parts of a figure: it has no figure and no axes of its own, and it keeps the words
that it has drawn, since nearly all of them come back in the next frame.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import Collection, LineCollection, PathCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Affine2D, IdentityTransform, Transform

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.rendering.style import INK, RC

DPI = 100
STAMPS = 4096
"""Number of drawn words that are kept. A frame has about 300, all but a few dozen from the frame before."""


class Sheet(ABC):
    """A page to draw on.

    Attributes:
        width: In pixels.
        height: In pixels.
        transform: Transform from pixels of the page, y downwards, to those of Matplotlib.
    """

    def __init__(self, width: float, height: float, transform: Transform) -> None:
        self.width, self.height, self.transform = width, height, transform

    @abstractmethod
    def add(self, artist: Artist) -> None:
        """Add a collection or a line; artists of a lower ``zorder`` lie below."""

    @abstractmethod
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


class FigureSheet(Sheet):
    """A page in a figure of its own, which belongs to no window and no ``pyplot`` state.

    Attributes:
        figure: The figure, with an Agg canvas.
    """

    def __init__(self, width_px: float, height_px: float) -> None:
        self.figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, facecolor="white")
        FigureCanvasAgg(self.figure)
        # One axes for all: a dozen would take most of the time, as Matplotlib builds five objects a tick.
        self._axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self._axes.set_axis_off()
        self._axes.set_xlim(0.0, width_px)
        self._axes.set_ylim(height_px, 0.0)
        self._axes.autoscale(False)
        super().__init__(width_px, height_px, self._axes.transData)

    def add(self, artist: Artist) -> None:
        """Add a collection or a line; artists of a lower ``zorder`` lie below."""
        self._axes.add_artist(artist)

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
        # The figure's text, not the axes': the axes compute a clipping path for every word.
        self.figure.text(
            x_px, y_px, text, transform=self.transform, fontsize=size, color=colour, ha=across,
            fontweight="bold" if bold else "normal", va="center_baseline",
        )  # fmt: skip


class PixelSheet(Sheet):
    """A page that gives only pixels; :meth:`pixels` draws what was added."""

    def __init__(self, width_px: int, height_px: int) -> None:
        flip = Affine2D().scale(1.0, -1.0).translate(0.0, height_px)
        super().__init__(float(width_px), float(height_px), flip)
        self._artists: list[Artist] = []
        self._words: list[tuple[int, int, npt.NDArray[np.float32], str]] = []

    def add(self, artist: Artist) -> None:
        """Add a collection or a line; artists of a lower ``zorder`` lie below."""
        artist.set_figure(_measure())
        self._artists.append(artist)

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
        stamp = _stamp(text, float(size), bold)
        before = {"left": 0.0, "center": 0.5, "right": 1.0}[across] * stamp.advance
        x = round(x_px - before) + stamp.left
        y = round(y_px + _half_ascent(float(size), bold)) - stamp.rise
        self._words.append((x, y, stamp.ink, colour))

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the page as (height, width, 3) uint8."""
        renderer = RendererAgg(self.width, self.height, DPI)  # type: ignore[no-untyped-call]
        drawn = np.asarray(renderer.buffer_rgba(), dtype=np.uint8)  # type: ignore[no-untyped-call]
        drawn[...] = 255
        for artist in sorted(self._artists, key=lambda a: a.get_zorder()):
            artist.draw(renderer)
        image = drawn[..., :3].copy()
        for x, y, ink, colour in self._words:
            _press(image, x, y, ink, colour)
        return image


@dataclass(frozen=True, eq=False)
class _Stamp:
    """A text as it is pressed on a page.

    Attributes:
        ink: (h, w) coverage from 0 to 1.
        left: Pixels from the start of the text to the first column of its ink.
        rise: Pixels from the baseline up to the upper edge of its ink.
        advance: Length of the text in pixels.
    """

    ink: npt.NDArray[np.float32]
    left: int
    rise: int
    advance: float


@cache
def _measure() -> Figure:
    """Return a figure that is never drawn, from which artists read the dots per inch."""
    return Figure(dpi=DPI)


@cache
def _font(size: float, bold: bool) -> FontProperties:
    return FontProperties(family=RC["font.family"], size=size, weight="bold" if bold else "normal")


@cache
def _half_ascent(size: float, bold: bool) -> float:
    """Return the pixels from the baseline up to the line of ``va="center_baseline"``."""
    feet = []
    for alignment in ("baseline", "center_baseline"):
        word = Text(0.0, 0.0, "lp", fontproperties=_font(size, bold), va=alignment)
        word.set_figure(_measure())
        word.set_transform(IdentityTransform())
        feet.append(word.get_window_extent(RendererAgg(1, 1, DPI)).y0)  # type: ignore[no-untyped-call]
    return float(feet[0] - feet[1])


@lru_cache(maxsize=STAMPS)
def _stamp(text: str, size: float, bold: bool) -> _Stamp:
    """Draw a text by itself with Matplotlib."""
    margin = math.ceil(0.5 * size)
    baseline = math.ceil(2.0 * size)
    # An em is size * DPI / 72 pixels, and no letter of the fonts used is wider than 1.5 of them.
    width = math.ceil(1.5 * size * DPI / 72.0 * len(text)) + 2 * margin
    renderer = RendererAgg(width, 2 * baseline, DPI)  # type: ignore[no-untyped-call]
    font = _font(size, bold)
    advance = renderer.get_text_width_height_descent(text, font, False)[0]  # type: ignore[no-untyped-call]
    renderer.draw_text(renderer.new_gc(), margin, baseline, text, font, 0.0)  # type: ignore[no-untyped-call]
    alpha = np.asarray(renderer.buffer_rgba(), dtype=np.uint8)[..., 3]  # type: ignore[no-untyped-call]
    rows, columns = np.flatnonzero(alpha.any(axis=1)), np.flatnonzero(alpha.any(axis=0))
    if rows.size == 0:
        return _Stamp(np.zeros((0, 0), np.float32), 0, 0, advance)
    top, left = int(rows[0]), int(columns[0])
    inked = alpha[top : rows[-1] + 1, left : columns[-1] + 1]
    return _Stamp(inked.astype(np.float32) / np.float32(255.0), left - margin, baseline - top, advance)


def _press(image: npt.NDArray[np.uint8], x: int, y: int, ink: npt.NDArray[np.float32], colour: str) -> None:
    """Blend a stamp into the image with its upper left corner at (x, y), cut at the image's edges."""
    top, left = max(y, 0), max(x, 0)
    under = image[top : max(y + ink.shape[0], 0), left : max(x + ink.shape[1], 0)]
    cover = ink[top - y : top - y + under.shape[0], left - x : left - x + under.shape[1], None]
    wanted = np.array(to_rgb(colour), dtype=np.float32) * np.float32(255.0)
    under[...] = under + cover * (wanted - under) + np.float32(0.5)
