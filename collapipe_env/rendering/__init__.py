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
from typing import TYPE_CHECKING

from collapipe_env.ground.errors import MissingPackageError
from collapipe_env.rendering.round_numbers import ClusterView, RoundView

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.figure import Figure

    from collapipe_env.rendering.sheet import Sheet

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
    return _filled(view, width_px, height_px).figure


def draw_round(
    view: RoundView, *, width_px: int = WIDTH_PX, height_px: int = HEIGHT_PX
) -> npt.NDArray[np.uint8]:
    """Draw a round into an array, as Gymnasium's ``render_mode="rgb_array"`` expects.

    Returns:
        (height_px, width_px, 3) uint8, red green blue.

    Raises:
        CollaPipeError: As :func:`round_figure`, whose arguments it takes.
    """
    return _filled(view, width_px, height_px).pixels()


def _filled(view: RoundView, width_px: int, height_px: int) -> Sheet:
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError.of("pictures", "Matplotlib", "plots")
    from collapipe_env.rendering.page import filled

    return filled(view, width_px, height_px)
