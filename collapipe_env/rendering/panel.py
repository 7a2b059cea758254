"""A rectangle of the page with scales of its own.

A page is measured in pixels from its upper left corner (:mod:`collapipe_env.rendering.sheet`). A panel maps
its data to those pixels and draws its own frame, ticks and words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import MaxNLocator

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.rendering.colours import FAINT, GRID
from collapipe_env.rendering.sheet import Sheet

LEAST_FONT = 5.2
"""Points below which text is left out."""
TICK_PX = 3.0


def ticks_between(low: float, high: float, most: int, *, integer: bool = False) -> list[float]:
    """Return about ``most`` round numbers within [low, high]."""
    # If the range holds a single whole number, the locator prefers fractions to one tick.
    least = 1 if integer and math.floor(high) <= math.ceil(low) else 2
    locator = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=integer, min_n_ticks=least)
    values = locator.tick_values(low, high)
    slack = 1e-9 * (high - low)
    return [float(v) for v in values if low - slack <= v <= high + slack]


def tick_words(values: Sequence[float]) -> list[str]:
    """Return the values as text, with as many decimals as the one that needs most."""
    for decimals in range(7):
        if all(abs(round(v, decimals) - v) <= 1e-9 * max(1.0, abs(v)) for v in values):
            return [f"{v:.{decimals}f}" for v in values]
    return [f"{v:.3g}" for v in values]


def seconds(value: float) -> str:
    """Return a duration in three digits, without exponents for long ones."""
    return f"{value:.3g} s" if value < 999.5 else f"{value:.0f} s"


class Panel:
    """A rectangle of the page, from (x, y) in pixels, y downwards.

    Attributes:
        words: :meth:`Sheet.write`, centred.
    """

    def __init__(self, page: Sheet, x: float, y: float, width: float, height: float) -> None:
        self.page = page
        self.words = partial(page.write, across="center")
        self.x, self.y, self.width, self.height = x, y, width, height
        self.x_range = (0.0, 1.0)
        self.y_range = (0.0, 1.0)

    def scale(self, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
        """Set the data values at the left and right, and at the lower and upper edges."""
        self.x_range, self.y_range = x_range, y_range

    def to_x(self, value: npt.ArrayLike) -> FloatArray:
        """Return the pixel column(s) of data."""
        low, high = self.x_range
        return self.x + (np.asarray(value, dtype=np.float64) - low) / (high - low) * self.width

    def to_y(self, value: npt.ArrayLike) -> FloatArray:
        """Return the pixel row(s) of data."""
        low, high = self.y_range
        return self.y + self.height - (np.asarray(value, dtype=np.float64) - low) / (high - low) * self.height

    def bars(
        self,
        left: npt.ArrayLike,
        right: npt.ArrayLike,
        low: npt.ArrayLike,
        high: npt.ArrayLike,
        colours: object,
        **style: Any,
    ) -> None:
        """Draw rectangles in data coordinates; ``style`` is that of :meth:`Sheet.boxes`."""
        x, y = (self.to_x(left), self.to_x(right)), (self.to_y(high), self.to_y(low))
        self.page.boxes(*x, *y, colours, **style)

    def title(self, text: str, *, lift: float = 10.0) -> None:
        """Write a heading above the panel's left edge."""
        self.words(self.x, self.y - lift, text, 8.0, across="left")

    def frame(self, *, left: bool = True) -> None:
        """Draw the lower edge, and the left one if wanted."""
        x, y, right, foot = self.x, self.y, self.x + self.width, self.y + self.height
        segments = [((x, y), (x, foot))] * left + [((x, foot), (right, foot))]
        self.page.rules(segments, FAINT, 0.7, 3.0)

    def ticks(
        self,
        axis: Literal["x", "y"],
        values: Sequence[float],
        words: Sequence[str] | None = None,
        *,
        grid: bool = False,
        size: float = 7.0,
    ) -> None:
        """Mark and label places along the lower edge (``"x"``) or the left one (``"y"``)."""
        x, foot = self.x, self.y + self.height
        if axis == "x":
            ends = [((at, self.y), (at, foot), (at, foot + TICK_PX)) for at in self.to_x(values).tolist()]
            shift, across = (0.0, 0.8 * size + 1.0), "center"
        else:
            right = x + self.width
            ends = [((right, at), (x, at), (x - TICK_PX, at)) for at in self.to_y(values).tolist()]
            shift, across = (-2.0, 0.0), "right"
        self.page.rules([(edge, end) for _, edge, end in ends], FAINT, 0.6, 3.0)
        if grid:
            self.page.rules([(far, edge) for far, edge, _ in ends], GRID, 0.6, 0.5)
        for (*_, end), text in zip(ends, tick_words(values) if words is None else words, strict=True):
            self.words(end[0] + shift[0], end[1] + shift[1], text, size, across=across)
