"""Plans in which clusters sit out: shares for those that take part, and room for those that cannot ([X])."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import BoolArray, FloatArray
from collapipe_env.simulator.state import SystemState

PLENTY = 1e15
"""Memory of devices that have none, while a plan is searched [byte]."""
WHOLE = 1e-9
"""Distance of the sum of shares from 1 up to which they count as the whole uplink."""
HALVINGS = 50
"""Halvings of the search for a common end of the uploads."""


def with_room_everywhere(state: SystemState, able: BoolArray, blocks: int) -> SystemState:
    """Return a state in which clusters that cannot hold the encoder can, so that plans exist to be searched.

    Args:
        state: The system (E, ...).
        able: Clusters that can hold the encoder (E, N), bool.
        blocks: ``L``.
    """
    if able.all():
        return state
    each = able[..., None]
    return replace(
        state,
        memory_cap=np.where(each, state.memory_cap, blocks),
        memory_bytes=np.where(each, state.memory_bytes, PLENTY),
    )


def sitting_out(plan: Allocation, plays: BoolArray) -> Allocation:
    """Return a plan that some clusters may sit out; the others share the whole uplink in proportion.

    Args:
        plan: The plan (E, ...).
        plays: Clusters that take part (E, N), bool.
    """
    share = plan.bandwidth
    used = np.where(plays, share, 0.0).sum(axis=-1, keepdims=True)
    # Shares that are whole stay as they are, to the last bit.
    off = plays & (used > 0.0) & (np.abs(used - 1.0) > WHOLE)
    share = np.where(off, share / np.where(off, used, 1.0), share)
    return replace(plan, bandwidth=share, participates=plays.astype(np.int64))


def common_end(share: FloatArray, upload: FloatArray, rest: FloatArray, plays: BoolArray) -> FloatArray:
    """Return shares with which uploads of those that take part end together, as if rates were proportional.

    Rates grow more slowly than shares, so they end together roughly; whoever uses the shares prices them.

    Args:
        share: Shares that they have (E, N).
        upload: Seconds of the uploads with these (E, N).
        rest: Seconds of all else in the clusters' rounds (E, N).
        plays: Clusters that take part (E, N), bool.

    Returns:
        Shares (E, N), those of players with sum 1; of clusters that sit out as they were.
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
