"""Blocks that change hands between two plans, row by row; the meaning is that of ``physics.migration``."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.moves import LOST, TRAVEL


@compiled
def holder_rows(blocks: IntArray, depth: int) -> BoolArray:
    """Return the holder of each block under plans of one device a stage, in the order of the devices.

    Args:
        blocks: Consecutive blocks of each device (E, N, K).
        depth: Blocks of the encoder ``L``.

    Returns:
        (E, N, L, K+1); the first node is the server, which holds the remaining blocks.
    """
    E, N, K = blocks.shape
    holders = np.zeros((E, N, depth, K + 1), dtype=np.bool_)
    for e in range(E):
        for n in range(N):
            block = 0
            for k in range(K):
                for _ in range(blocks[e, n, k]):
                    holders[e, n, block, k + 1] = True
                    block += 1
            holders[e, n, block:, 0] = True
    return holders


@compiled
def handover_rows(
    before: BoolArray, present: BoolArray, after: BoolArray, moves: bool
) -> tuple[FloatArray, FloatArray, IntArray, BoolArray]:
    """Find the blocks that change hands; see :func:`collapipe_env.physics.moves.handover`.

    Args:
        before: Holders in the round before (E, N, L, K+1).
        present: Present devices (E, N, K).
        after: Holders now (E, N, L, K+1).
        moves: Whether moments travel at all.

    Returns:
        The four arrays of a ``Handover``.
    """
    E, N, L, nodes = before.shape
    K = nodes - 1
    moved, leaving = np.zeros((E, N, K, K)), np.zeros((E, N, K))
    moments = np.zeros((E, N, L), dtype=np.int64)
    involved = np.zeros((E, N, K), dtype=np.bool_)
    for e in range(E):
        for n in range(N):
            for block in range(L):
                started, lead, arrives = before[e, n, block, 0], -1, False
                for k in range(K):
                    had, has = before[e, n, block, k + 1], after[e, n, block, k + 1]
                    started = started or had
                    had = had and present[e, n, k]
                    if had and lead < 0:
                        lead = k
                    arrives = arrives or (has and not had)
                    if had or has:
                        involved[e, n, k] = True
                to_server = after[e, n, block, 0] and not before[e, n, block, 0]
                if moves and lead >= 0 and arrives:
                    moments[e, n, block] = TRAVEL
                    leaving[e, n, lead] += 1.0
                    for k in range(K):
                        kept = before[e, n, block, k + 1] and present[e, n, k]
                        if after[e, n, block, k + 1] and not kept:
                            moved[e, n, lead, k] += 1.0
                elif started and (arrives or to_server):
                    moments[e, n, block] = LOST
    return moved, leaving, moments, involved
