"""Shares of the uplink for clusters that take part in a round while others sit it out ([X])."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray

HALVINGS = 50
"""Halvings of the search for a common end of the uploads."""


def common_end(share: FloatArray, upload: FloatArray, rest: FloatArray, plays: BoolArray) -> FloatArray:
    """Shares with which the players' uploads would end together if rates were proportional to shares.

    Rates grow more slowly than shares, so the uploads end only roughly together; callers price the shares.

    Args:
        share: Present shares (E, N).
        upload: Seconds of the uploads with the present shares (E, N).
        rest: Seconds of the rest of each cluster's round (E, N).
        plays: Players: clusters that take part (E, N), bool.

    Returns:
        Shares (E, N): those of players sum to 1, those of clusters that sit out are unchanged.
    """
    work = np.where(plays, share * upload, 0.0)
    before = np.where(plays, rest, 0.0)
    low = before.max(axis=-1)
    high = low + work.sum(axis=-1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        short = (work / np.maximum(middle[..., None] - before, 1e-300)).sum(axis=-1) > 1.0
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    wanted = work / np.maximum(high[..., None] - before, 1e-300)
    total = wanted.sum(axis=-1, keepdims=True)
    scaled = wanted / np.where(total > 0.0, total, 1.0)
    return np.where(plays & (scaled > 0.0), scaled, share)
