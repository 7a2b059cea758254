"""The sheet on which a page is drawn: a Matplotlib figure without axes, in pixels from the upper left corner.

Matplotlib builds five objects a tick of an axis. Drawn words are kept for the next page, since nearly all of
them come back there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import matplotlib
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

DPI = 100
HATCHING: dict[Any, Any] = {"hatch.linewidth": 0.6}
"""Setting of Matplotlib under which rectangles are made and drawn."""
STAMPS = 1024
"""Number of drawn words that are kept. A frame has about 300, all but a few dozen from the frame before."""
ACROSS = {"left": 0.0, "center": 0.5, "right": 1.0}
"""Share of a word that lies to the left of its place."""


class Sheet:
    """A page to draw on, which belongs to no window and no ``pyplot`` state.

    Attributes:
        width: In pixels.
        height: In pixels.
        figure: The page as a figure with an Agg canvas, to be saved in a format of pixels.
        transform: Transform from pixels of the page, y downwards, to those of Matplotlib.
        words: All words of the page.
    """

    def __init__(self, width_px: float, height_px: float) -> None:
        self.width, self.height = width_px, height_px
        self.figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, facecolor="white")
        self._canvas = FigureCanvasAgg(self.figure)
        flip = Affine2D().scale(1.0 / width_px, -1.0 / height_px).translate(0.0, 1.0)
        self.transform = flip + self.figure.transFigure
        self.words: list[Word] = []
        self.add(_Words(self.words, transform=self.transform, zorder=9.0))

    def add(self, artist: Artist) -> None:
        """Add a collection or a line; artists of a lower ``zorder`` lie below.

        Effects that users set for all their pictures are taken off.
        """
        artist.set(path_effects=[], sketch_params=None)
        self.figure.add_artist(artist)

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
        self.words.append(Word(x_px, y_px, text, _font(float(size), bold), ACROSS[across], colour))

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the page as (height, width, 3) uint8."""
        self._canvas.draw()  # type: ignore[no-untyped-call]
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
        with matplotlib.rc_context(HATCHING):
            super().__init__(**style)
        self.set_paths([Path.unit_rectangle()] * x0.size)
        matrices = np.zeros((x0.size, 3, 3))
        matrices[:, 0, 0], matrices[:, 0, 2] = x1 - x0, x0
        matrices[:, 1, 1], matrices[:, 1, 2] = y1 - y0, y0
        matrices[:, 2, 2] = 1.0
        self._transforms = matrices

    def draw(self, renderer: Any) -> None:
        """Draw the rectangles; older versions of Matplotlib read the width of hatches only here."""
        with matplotlib.rc_context(HATCHING if self.get_hatch() else {}):
            super().draw(renderer)


class Word(NamedTuple):
    """A word at a pixel of the page, vertically centred, with a share of its length to the left of it."""

    x_px: float
    y_px: float
    text: str
    font: FontProperties
    across: float
    colour: str


class _Words(Artist):
    """The words of a page of pixels; far faster than a ``Text`` each, as drawn words are kept."""

    def __init__(self, words: Sequence[Word], **style: Any) -> None:
        super().__init__()
        self.set(**style)
        self._words = words

    def draw(self, renderer: Any) -> None:
        """Draw kept pictures of the words."""
        if not self.get_visible():
            return
        to_page, dpi, ink = self.get_transform(), renderer.dpi, renderer.new_gc()
        for word in self._words:
            _, height, descent = _extent(dpi, "lp", word.font)
            x, y = to_page.transform((word.x_px, word.y_px))
            left = x - word.across * _extent(dpi, word.text, word.font)[0]
            foot = y - 0.5 * (height - descent)
            stamp, margin = _stamp(word.text, word.font, word.colour, dpi)
            renderer.draw_image(ink, round(left) - margin, round(foot) - len(stamp) // 2, stamp)


@cache
def _font(size: float, bold: bool) -> FontProperties:
    return FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")


@lru_cache(maxsize=STAMPS)
def _extent(dpi: float, text: str, font: FontProperties) -> tuple[float, float, float]:
    """Return width, height and descent of a text in pixels; measuring takes longer than drawing it again."""
    renderer: Any = RendererAgg(1, 1, dpi)  # type: ignore[no-untyped-call]
    found: tuple[float, float, float] = renderer.get_text_width_height_descent(text, font, False)
    return found


@lru_cache(maxsize=STAMPS)
def _stamp(text: str, font: FontProperties, colour: str, dpi: float) -> tuple[npt.NDArray[np.uint8], int]:
    """Draw a text by itself.

    Returns:
        Its picture (h, w, 4) from the foot upwards, as renderers take it, with the baseline half-way; and the
        pixels before its start.
    """
    size = font.get_size_in_points() * dpi / DPI
    margin, half = math.ceil(0.5 * size), math.ceil(2.0 * size)
    width = math.ceil(_extent(dpi, text, font)[0]) + 2 * margin
    renderer = RendererAgg(width, 2 * half, dpi)  # type: ignore[no-untyped-call]
    ink = renderer.new_gc()
    ink.set_foreground(colour)
    renderer.draw_text(ink, margin, half, text, font, 0.0)  # type: ignore[no-untyped-call]
    return np.asarray(renderer.buffer_rgba(), dtype=np.uint8)[::-1].copy(), margin  # type: ignore[no-untyped-call]
