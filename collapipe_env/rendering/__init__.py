"""Pictures of one round: pipelines, queues, allocation and history, on one page.

No display is needed, and Matplotlib is imported only when a picture is drawn
(``pip install 'collapipe-env[plots]'``).

Example:
    >>> view = RoundView(env.last_round, "small")  # collapipe_env.rendering.round_view
    >>> frame = draw_round(view)                   # (800, 1200, 3) uint8
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from collapipe_env.ground.errors import MissingPackageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from collapipe_env.rendering.round_view import RoundView


def draw_round(view: RoundView) -> npt.NDArray[np.uint8]:
    """Draw a round into an array, as Gymnasium's ``render_mode="rgb_array"`` expects.

    Returns:
        (800, 1200, 3) uint8, red green blue.

    Raises:
        MissingPackageError: If Matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError.of("pictures", "Matplotlib", "plots")
    from collapipe_env.rendering.page import filled

    return filled(view).pixels()
