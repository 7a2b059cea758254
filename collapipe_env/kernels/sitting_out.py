"""Clusters that sit out for want of memory: who they are, their caps, and the band that the others share."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled


@compiled
def room_rows(caps: IntArray, memory_bytes: FloatArray, blocks: int) -> tuple[IntArray, BoolArray]:
    """Return caps (R, N, K), and the clusters that can hold the encoder (R, N).

    In the other clusters each device that is present has room for all blocks; each device at all if none is.

    Args:
        caps: Blocks that each device can hold (R, N, K).
        memory_bytes: Memory that each device offers (R, N, K) [byte].
        blocks: Encoder depth ``L``.
    """
    R, N, K = caps.shape
    found, holds = caps.copy(), np.ones((R, N), dtype=np.bool_)
    for r in range(R):
        for n in range(N):
            room, some = 0, False
            for k in range(K):
                room += caps[r, n, k]
                some = some or memory_bytes[r, n, k] > 0.0
            if room < blocks:
                holds[r, n] = False
                for k in range(K):
                    found[r, n, k] = blocks if memory_bytes[r, n, k] > 0.0 or not some else 0
    return found, holds


@compiled
def band_rows(scores: FloatArray, floor: float, plays: BoolArray) -> FloatArray:
    """Share the uplink (R, N); see :func:`collapipe_env.simulator.memory_choices.shared_band`."""
    R, N = scores.shape
    share = np.zeros((R, N))
    for r in range(R):
        total, count = 0.0, 0
        for n in range(N):
            if plays[r, n]:
                total += scores[r, n]
                count += 1
        for n in range(N):
            if plays[r, n]:
                part = scores[r, n] / total if total > 0.0 else 1.0 / count
                share[r, n] = floor + (1.0 - count * floor) * part
    return share
