"""Pictures of one round: pipelines, queues, allocation and history, on one page.

A picture is drawn from a :class:`RoundView`, which :mod:`collapipe_env.rendering.round_view` alone reads from
the simulator's records. No display is needed, and Matplotlib is imported only when a picture is drawn
(``pip install 'collapipe-env[plots]'``).

Example:
    >>> view = RoundView(title="small", clusters=clusters, ...)
    >>> frame = draw_round(view)          # (800, 1200, 3) uint8
    >>> round_figure(view).savefig("round.pdf")
"""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

from collapipe_env.ground.errors import MissingPackageError
from collapipe_env.rendering.round_numbers import ClusterView, RoundView

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.figure import Figure

__all__ = ["ClusterView", "RoundView", "draw_round", "round_figure"]

WIDTH_PX = 1200
HEIGHT_PX = 800


def round_figure(view: RoundView, *, width_px: int = WIDTH_PX, height_px: int = HEIGHT_PX) -> Figure:
    """Draw a round as a Matplotlib figure, to be saved in any format.

    Args:
        width_px: Width at 100 dots per inch, at least 1100.
        height_px: Height at 100 dots per inch, at least 600.

    Returns:
        The figure. It carries an Agg canvas and belongs to no window and no ``pyplot`` state.

    Raises:
        MissingPackageError: If Matplotlib is not installed.
        CollaPipeError: If the picture is too small for its text.
    """
    page = _page()
    figure: Figure = page.drawn(view, width_px, height_px, page.Sheet.figure)
    return figure


def draw_round(
    view: RoundView, *, width_px: int = WIDTH_PX, height_px: int = HEIGHT_PX
) -> npt.NDArray[np.uint8]:
    """Draw a round into an array, as Gymnasium's ``render_mode="rgb_array"`` expects.

    Returns:
        (height_px, width_px, 3) uint8, red green blue.

    Raises:
        CollaPipeError: As :func:`round_figure`, whose arguments it takes.
    """
    page = _page()
    pixels: npt.NDArray[np.uint8] = page.drawn(view, width_px, height_px, page.Sheet.pixels)
    return pixels


def _page() -> ModuleType:
    """Return the module that draws, with Matplotlib, which is optional."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError.of("pictures", "Matplotlib", "plots")
    from collapipe_env.rendering import page

    return page
