"""Largest-remainder apportionment of whole blocks under caps, vectorised over leading axes."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, namespace


def apportion(total: int | Array, weights: Array, caps: Array) -> Array:
    """Split ``total`` indivisible blocks in proportion to weights, never above the caps.

    Quotas are water-filled (``min(t w_k, c_k)`` with ``t`` such that they sum to ``total``), rounded
    down, and the blocks left over go to the largest remainders, ties to the lower index. A device of
    weight zero gets nothing unless the others together cannot hold ``total``; then the rest is spread
    evenly over the devices that still have room, so the result is feasible whenever the caps are.

    Args:
        total: Blocks to hand out, ``L`` >= 1, or whole numbers >= 0 (..., 1), one for each row.
        weights: Non-negative weights (..., K).
        caps: Whole numbers >= 0 (..., K), summing to at least ``total`` along the last axis.

    Returns:
        Whole numbers (..., K) of type int64, summing to ``total``.
    """
    xp = namespace(weights, caps)
    caps = xp.astype(caps, xp.float64)
    weights = xp.where(caps > 0, weights, 0.0)
    # Weights that are all zero mean an even split.
    silent = xp.sum(weights, axis=-1, keepdims=True) <= 0.0
    if _needed(silent):
        weights = xp.where(silent & (caps > 0), 1.0, weights)
    total = xp.astype(total, xp.float64) if getattr(total, "ndim", 0) else float(total)
    wanted = xp.sum(xp.where(weights > 0, caps, 0.0), axis=-1, keepdims=True)
    first = xp.where(wanted < total, wanted, total)
    blocks = _apportion_within(first, weights, caps)
    rest = total - first
    if _needed(rest > 0):
        room = caps - blocks
        spill = _apportion_within(rest, xp.astype(room > 0, xp.float64), room)
        blocks = blocks + xp.where(rest > 0, spill, 0.0)
    return xp.astype(blocks, xp.int64)


def _needed(rows: Array) -> bool:
    """Whether any row needs a correction; the correction leaves the other rows as they are.

    Outside NumPy, reading the answer may mean waiting for a GPU, so the correction is always done.
    """
    return bool(rows.any()) if namespace(rows) is np else True


def _apportion_within(total: Array, weights: Array, caps: Array) -> Array:
    """Apportion ``total`` (..., 1), which the weighted devices can hold; return whole floats (..., K)."""
    xp = namespace(weights, caps)
    positive = weights > 0
    caps = xp.where(positive, caps, 0.0)
    safe = xp.where(positive, weights, 1.0)
    # Water-filling: devices fill up in the order of caps / weights; the level is the first at which the
    # devices not yet full share what the full ones leave.
    fill = xp.where(positive, caps / safe, xp.inf)
    order = xp.argsort(fill, axis=-1, stable=True)
    sorted_caps = xp.take_along_axis(caps, order, axis=-1)
    sorted_weights = xp.take_along_axis(xp.where(positive, weights, 0.0), order, axis=-1)
    sorted_fill = xp.take_along_axis(fill, order, axis=-1)
    cumulative = getattr(xp, "cumulative_sum", None) or xp.cumsum
    full_before = cumulative(sorted_caps, axis=-1) - sorted_caps
    open_weight = xp.flip(cumulative(xp.flip(sorted_weights, axis=-1), axis=-1), axis=-1)
    level = (total - full_before) / xp.where(open_weight > 0, open_weight, 1.0)
    # Rounding must not lose the last level, at which every weighted device is just full.
    reached = (level <= sorted_fill * (1.0 + 1e-12)) & (open_weight > 0)
    first = xp.argmax(xp.astype(reached, xp.int8), axis=-1, keepdims=True)
    level = xp.take_along_axis(level, first, axis=-1)
    quota = xp.minimum(level * xp.where(positive, weights, 0.0), caps)
    # A quota that is whole up to rounding counts as whole, so encoded allocations decode to themselves.
    nearest = xp.round(quota)
    quota = xp.where(xp.abs(quota - nearest) < 1e-4, nearest, quota)
    blocks = xp.floor(quota)
    left = total - xp.sum(blocks, axis=-1, keepdims=True)
    remainder = xp.where(positive & (blocks < caps), quota - blocks, -1.0)
    # Remainders that differ by rounding only are ties, so that the lower index wins on every machine.
    by_remainder = xp.argsort(-xp.round(remainder * 1e6), axis=-1, stable=True)
    rank = xp.argsort(by_remainder, axis=-1, stable=True)
    return blocks + xp.astype(xp.astype(rank, total.dtype) < left, blocks.dtype)
