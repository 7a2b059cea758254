"""Lists of operations for every stage of a cluster's chain, as arrays for the compiled simulation.

A chain has the cluster's ``S`` device stages and then the server as the last stage. The paper's order of
operations is not public beyond GPipe: these are the standard forms ([R], [X], ``algorithms.md`` section 5.1),
extended by the server's turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner
from collapipe_env.physics.allocation import GPIPE, INTERLEAVED, ZERO_BUBBLE

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
"""Kinds of operations; with a split backward pass ``BACKWARD`` is the input gradient alone."""
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
NO_LAG: Any = np.int64(-1)
YES: Any = np.bool_(True)
NO: Any = np.bool_(False)
"""Arguments of compiled functions: for each plain number Numba would compile a callee, and all that it calls,
once more."""


@compiled
def effective_caps(caps: IntArray, micro_batches: int) -> IntArray:
    """Caps that a strict order can use, ``min(K_0, ..., K_s, M)``: later stages never have more in flight.

    Args:
        caps: (S,) caps >= 1.
        micro_batches: ``M`` (times ``v``, where chunks are counted).

    Returns:
        (S,) caps, not increasing.
    """
    effective = np.empty_like(caps)
    least = micro_batches
    for s in range(len(caps)):
        least = min(least, caps[s])
        effective[s] = least
    return effective


@compiled
def warm_ups_and_lags(limits: IntArray, micro_batches: int, longer: bool) -> tuple[IntArray, IntArray]:
    """Division of a stage's room for stored micro-batches under ZB-H1.

    Args:
        limits: (S,) limits on micro-batches whose weight gradient is not done.
        micro_batches: ``M``.
        longer: Warm up with up to ``2 (S + 1 - s) - 1`` forwards where the limits leave room, which suits
            slow links, rather than with ``S + 1 - s``.

    Returns:
        Forwards before the first backward (S,), not increasing, and weight gradients kept waiting (S,).
    """
    S = len(limits)
    wanted = np.empty_like(limits)
    for s in range(S):
        room = min(limits[s], micro_batches)
        depth = S + 1 - s
        wanted[s] = min(max(depth, min(2 * depth - 1, room - s)) if longer else depth, room)
    warm_ups = effective_caps(wanted, micro_batches)
    lags = np.empty_like(limits)
    for s in range(S):
        lags[s] = max(min(s, min(limits[s], micro_batches) - warm_ups[s]), 0)
    return warm_ups, lags


@compiled_inner
def _fill_one_f_one_b(order: IntArray, cap: int, micro_batches: int, lag: int) -> int:
    """``cap`` forwards, then B and F in turn; ``W_{j - lag}`` after ``B_j`` unless ``lag`` is negative."""
    count = 0
    for m in range(cap):
        order[count, 0], order[count, 1], order[count, 2] = FORWARD, m, 0
        count += 1
    for m in range(micro_batches):
        order[count, 0], order[count, 1], order[count, 2] = BACKWARD, m, 0
        count += 1
        if 0 <= lag <= m:
            order[count, 0], order[count, 1], order[count, 2] = WEIGHT, m - lag, 0
            count += 1
        if cap + m < micro_batches:
            order[count, 0], order[count, 1], order[count, 2] = FORWARD, cap + m, 0
            count += 1
    if lag >= 0:
        for m in range(max(micro_batches - lag, 0), micro_batches):
            order[count, 0], order[count, 1], order[count, 2] = WEIGHT, m, 0
            count += 1
    return count


@compiled_inner
def _fill_interleaved(order: IntArray, stages: int, cap: int, micro_batches: int, chunks: int) -> int:
    """Megatron's order with ``cap`` chunk-forwards before the first backward."""
    total = micro_batches * chunks
    group = stages * chunks
    count = 0
    for k in range(2 * total):
        # ``cap`` forwards, then backwards and forwards in turn.
        if k < cap or (k < 2 * total - cap and (k - cap) % 2 == 1):
            kind = FORWARD
            j = k if k < cap else cap + (k - cap) // 2
        else:
            kind = BACKWARD
            j = (k - cap) // 2 if k < 2 * total - cap else k - total
        i = j % group
        chunk = i // stages
        order[count, 0] = kind
        order[count, 1] = (j // group) * stages + i % stages
        order[count, 2] = chunk if kind == FORWARD else chunks - 1 - chunk
        count += 1
    return count


@compiled
def fill_orders(
    kind: int,
    caps: IntArray,
    micro_batches: int,
    chunks: int,
    variant: int,
    orders: IntArray,
    counts: IntArray,
) -> None:
    """Write the operations of every stage and of the server.

    Args:
        kind: Place in ``SCHEDULES``.
        caps: (S,) caps of the device stages; not read under GPipe.
        micro_batches: ``M``; for ``async`` those of all mini-batches of the round.
        chunks: ``v``.
        variant: Only for ``zb-h1``: bit 0 leaves the weight gradients out (they run where a stage would
            wait), bit 1 warms up longer.
        orders: Written, (S + 1, at least 3 M v, 3): kind, micro-batch and chunk.
        counts: Written, (S + 1,) operations of each stage.
    """
    S = len(caps)
    server = orders[S]
    if kind == GPIPE:
        for s in range(S + 1):
            counts[s] = _fill_one_f_one_b(orders[s], micro_batches, micro_batches, NO_LAG)
    elif kind == INTERLEAVED:
        effective = effective_caps(caps, micro_batches * chunks)
        for s in range(S):
            counts[s] = _fill_interleaved(orders[s], S, effective[s], micro_batches, chunks)
        counts[S] = _fill_one_f_one_b(server, ONE, micro_batches, NO_LAG)
    elif kind == ZERO_BUBBLE:
        warm_ups, lags = warm_ups_and_lags(caps, micro_batches, (variant & 2) != 0)
        dynamic = (variant & 1) != 0
        for s in range(S):
            lag = NO_LAG if dynamic else lags[s]
            counts[s] = _fill_one_f_one_b(orders[s], warm_ups[s], micro_batches, lag)
        counts[S] = _fill_one_f_one_b(server, ONE, micro_batches, NO_LAG if dynamic else S)
    else:
        effective = effective_caps(caps, micro_batches)
        for s in range(S):
            counts[s] = _fill_one_f_one_b(orders[s], effective[s], micro_batches, NO_LAG)
        counts[S] = _fill_one_f_one_b(server, ONE, micro_batches, NO_LAG)
