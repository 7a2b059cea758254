"""Contiguous partitions of the blocks over devices in index order, by dynamic programming."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled


@compiled
def optimal_blocks(
    total: int, cap: IntArray, block_s: FloatArray, hop_s: FloatArray, slowest: bool, limit_s: float
) -> tuple[float, IntArray]:
    """Partition with the least sum, or the least maximum, of its stage and hop times, exact, ``O(K^2 L^2)``.

    On ties the partition with the fewest blocks on its last devices wins.

    Args:
        total: ``L``.
        cap: Blocks that each device can hold (K,).
        block_s: Time of a block on each device (K,) [s].
        hop_s: Time of a hop (K+1, K+1) [s]; node 0 is the CU, device ``k`` is node ``k + 1``.
        slowest: Whether to minimise the maximum rather than the sum.
        limit_s: Longest time that a stage or hop may take [s].

    Returns:
        The sum or the maximum, infinite if there is no such partition [s]; and blocks of each device (K,),
        then zeros.
    """
    devices = cap.shape[0]
    # least[l, v]: the least of all partitions of the first l blocks whose last node is v.
    least = np.full((total + 1, devices + 1), np.inf)
    chosen = np.zeros((total + 1, devices + 1), dtype=np.int64)
    previous = np.zeros((total + 1, devices + 1), dtype=np.int64)
    least[0, 0] = 0.0
    best, last = np.inf, 0
    for node in range(1, devices + 1):
        for after in range(1, total + 1):
            for blocks in range(1, min(cap[node - 1], after) + 1):
                stage = blocks * block_s[node - 1]
                if stage > limit_s:
                    break
                for before in range(node):
                    hop, so_far = hop_s[before, node], least[after - blocks, before]
                    if hop > limit_s:
                        continue
                    value = max(max(so_far, hop), stage) if slowest else so_far + hop + stage
                    if value < least[after, node]:
                        least[after, node] = value
                        chosen[after, node], previous[after, node] = blocks, before
        hop = hop_s[node, 0]
        value = max(least[total, node], hop) if slowest else least[total, node] + hop
        if hop <= limit_s and value < best:
            best, last = value, node
    segments = np.zeros(devices, dtype=np.int64)
    placed = total
    while last > 0:
        segments[last - 1] = chosen[placed, last]
        placed, last = placed - chosen[placed, last], previous[placed, last]
    return best, segments


def quickest_of_fastest(total: int, cap: IntArray, block_s: FloatArray, hop_s: FloatArray) -> IntArray:
    """Partition whose slowest stage or hop is fastest, and among those the one with the least sum (K,)."""
    limit_s, _ = optimal_blocks(total, cap, block_s, hop_s, True, np.inf)
    return optimal_blocks(total, cap, block_s, hop_s, False, limit_s)[1]
