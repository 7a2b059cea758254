"""Blocks that change hands between two plans, row by row; the meaning is that of ``physics.migration``."""

from __future__ import annotations

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.moves import LOST, STAY, TRAVEL


@compiled
def holder_rows(blocks: IntArray, holders: BoolArray) -> None:
    """Write the holder of each block under plans of one device a stage, in the order of the devices.

    Args:
        blocks: Consecutive blocks of each device (E, N, K).
        holders: (E, N, L, K+1), written; the first node is the server, which holds the remaining blocks.
    """
    E, N, L, nodes = holders.shape
    for e in range(E):
        for n in range(N):
            k, left = 0, blocks[e, n, 0]
            for block in range(L):
                while left == 0 and k < nodes - 1:
                    k += 1
                    left = blocks[e, n, k] if k < nodes - 1 else 0
                for node in range(nodes):
                    holders[e, n, block, node] = False
                if k < nodes - 1:
                    holders[e, n, block, k + 1] = True
                    left -= 1
                else:
                    holders[e, n, block, 0] = True


@compiled
def handover_rows(
    before: BoolArray,
    present: BoolArray,
    after: BoolArray,
    moves: bool,
    moved: FloatArray,
    leaving: FloatArray,
    moments: IntArray,
    involved: BoolArray,
) -> None:
    """Find the blocks that change hands; see :func:`collapipe_env.physics.moves.handover`.

    Args:
        before: Holders in the round before (E, N, L, K+1).
        present: Present devices (E, N, K).
        after: Holders now (E, N, L, K+1).
        moves: Whether moments travel at all.
        moved: (E, N, K, K), written.
        leaving: (E, N, K), written.
        moments: (E, N, L), written.
        involved: (E, N, K), written.
    """
    E, N, L, nodes = before.shape
    K = nodes - 1
    for e in range(E):
        for n in range(N):
            for i in range(K):
                leaving[e, n, i] = 0.0
                involved[e, n, i] = False
                for j in range(K):
                    moved[e, n, i, j] = 0.0
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
                moments[e, n, block] = STAY
                if moves and lead >= 0 and arrives:
                    moments[e, n, block] = TRAVEL
                    leaving[e, n, lead] += 1.0
                    for k in range(K):
                        kept = before[e, n, block, k + 1] and present[e, n, k]
                        if after[e, n, block, k + 1] and not kept:
                            moved[e, n, lead, k] += 1.0
                elif started and (arrives or to_server):
                    moments[e, n, block] = LOST
