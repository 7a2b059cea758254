"""The cheapest segments of chains of devices, by dynamic programming."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled


@compiled
def cheapest_segments(hop: FloatArray, block: FloatArray, cap: IntArray, blocks: int) -> IntArray:
    """Segments of least price: the sum of the chain's hops and of each block on its device.

    The chain visits the devices that hold blocks in the order of their index, from the CU (node 0) back to
    the CU. Exact.

    Args:
        hop: Price of a hop to the next device and back (B, K+1, K+1), indexed first by the node nearer to the
            chain's start; a chain's last hop leads to node 0.
        block: Price of a block on each device (B, K).
        cap: Blocks that each device can hold (B, K), summing to at least ``blocks``.
        blocks: ``L`` >= 1.

    Returns:
        Blocks of each device (B, K).
    """
    B, K = block.shape
    # Least price of a chain that ends at a node with a number of blocks placed; its blocks on that node, and
    # the node before.
    ends = np.empty((K + 1, blocks + 1))
    held = np.empty((K + 1, blocks + 1), dtype=np.int64)
    before = np.empty((K + 1, blocks + 1), dtype=np.int64)
    segments = np.zeros((B, K), dtype=np.int64)
    arrives, source = np.empty(blocks + 1), np.empty(blocks + 1, dtype=np.int64)
    for b in range(B):
        ends[:] = np.inf
        ends[0, 0] = 0.0
        for k in range(1, K + 1):
            for placed in range(blocks):
                arrives[placed] = np.inf
                for node in range(k):
                    price = ends[node, placed] + hop[b, node, k]
                    if price < arrives[placed]:
                        arrives[placed], source[placed] = price, node
            for count in range(1, min(cap[b, k - 1], blocks) + 1):
                for placed in range(blocks - count + 1):
                    price = arrives[placed] + count * block[b, k - 1]
                    after = placed + count
                    if price < ends[k, after]:
                        ends[k, after], held[k, after], before[k, after] = price, count, source[placed]
        node, placed, least = 0, blocks, np.inf
        for k in range(1, K + 1):
            price = ends[k, blocks] + hop[b, k, 0]
            if price < least:
                node, least = k, price
        while node > 0:
            count = held[node, placed]
            segments[b, node - 1] = count
            node, placed = before[node, placed], placed - count
    return segments
