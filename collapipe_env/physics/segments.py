"""Segments of a plan in the order of the micro-batches, and the staleness of their weights ([R], [X])."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, IntArray, on_host
from collapipe_env.physics.allocation import ASYNC, Allocation


def pipeline_blocks(allocation: Allocation) -> Array:
    """Blocks of each segment in the order in which micro-batches pass them (..., N, slots), 0 to be skipped.

    With chunks a stage holds several segments: chunk by chunk, one of each stage.
    """
    if not allocation.is_scheduled:  # without a look at arrays, which may be on a GPU
        return allocation.blocks
    chunks = on_host(allocation.schedules.chunks)
    if not np.any(chunks > 1):
        return allocation.blocks
    blocks, v = np.asarray(allocation.blocks), chunks[..., None]
    parts = [
        np.where(chunk < v, blocks // v + (chunk < blocks % v), 0) for chunk in range(int(np.max(chunks)))
    ]
    return np.concatenate(parts, axis=-1)


def version_gaps(allocation: Allocation) -> IntArray | None:
    """Optimiser steps by which the weights of each slot are too old, ``ceil((K_s - 1) / M)`` ([R]).

    Args:
        allocation: Any plan (..., N).

    Returns:
        Gaps in the slots of :func:`pipeline_blocks`, 0 where the schedule is synchronous; ``None`` where no
        cluster's plan is asynchronous.
    """
    kinds, caps, _ = (on_host(each) for each in allocation.schedules)
    if not np.any(kinds == ASYNC):
        return None
    M = np.asarray(allocation.micro_batches)[..., None]
    occupied = np.asarray(allocation.blocks) > 0
    running = np.minimum.accumulate(np.where(occupied, caps, np.iinfo(np.int64).max), axis=-1)
    stale = occupied & (kinds == ASYNC)[..., None]
    gaps = np.where(stale, -((1 - np.where(occupied, running, 1)) // M), 0)
    slots = pipeline_blocks(allocation).shape[-1]
    padded: IntArray = np.zeros((*gaps.shape[:-1], slots), dtype=np.int64)
    padded[..., : gaps.shape[-1]] = gaps
    return padded
