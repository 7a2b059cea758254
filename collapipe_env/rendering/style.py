"""Colours of bars and nodes, and hatching.

Forward passes are blue and backward passes orange, the pair that every common kind of colour blindness keeps
apart; weight gradients that run by themselves are grey. Within a hue, micro-batches run from light to dark.
Nodes use Paul Tol's "muted" set, made for the same readers.
"""

from __future__ import annotations

from functools import cache

import matplotlib
import numpy as np
from matplotlib.colors import to_hex, to_rgb

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.rendering.colours import CU_COLOUR, INK, MUTED

HATCH, HATCH_COLOUR = "//", "#c4c4c4"
HATCH_NAME = "local step, not drawn in detail"
"""Name of the hatching of local steps that are like a drawn one or whose events are unknown."""


def node_colours(devices: int) -> list[str]:
    """Return the colours of the CU and of each device slot, K+1 in all."""
    if devices <= len(MUTED):
        return [CU_COLOUR, *MUTED[:devices]]
    ramp = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.95, devices))
    return [CU_COLOUR, *(to_hex(colour) for colour in ramp)]


def ink_on(colour: str) -> str:
    """Return the colour of text on ``colour`` (``"#rrggbb"``): ink or white, whichever contrasts more.

    Contrast is that of the Web Content Accessibility Guidelines 2.2, from relative luminances.
    """
    ground, ink = _luminance(colour), _luminance(INK)
    return INK if (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) > 1.05 / (ground + 0.05) else "white"


def _luminance(colour: str) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@cache
def micro_batch_colours(count: int) -> FloatArray:
    """Return forward, backward and weight colours of ``count`` micro-batches, light to dark (3, count, 4).

    They are kept, since every frame needs them, and are read-only.
    """
    position = np.linspace(0.0, 1.0, count) if count > 1 else np.array([0.6])
    kinds = ("Blues", 0.35, 0.6), ("Oranges", 0.28, 0.6), ("Greys", 0.30, 0.5)
    ramps = np.stack([matplotlib.colormaps[name](low + span * position) for name, low, span in kinds])
    ramps.flags.writeable = False
    return ramps
