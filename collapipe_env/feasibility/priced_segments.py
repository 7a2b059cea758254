"""The cheapest segments of a chain of devices, by dynamic programming over many clusters at once."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray


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
    L, most = blocks, min(int(cap.max()), blocks)
    rows = np.arange(B)
    # Least price of a chain that ends at a node with a number of blocks placed, and of a chain that has just
    # reached a node and has placed no block on it yet.
    ends = np.full((K + 1, B, L + 1), np.inf)
    ends[0, :, 0] = 0.0
    arrives = np.full((K + 1, B, L + 1), np.inf)
    for k in range(1, K + 1):
        arrives[k] = (ends[:k] + hop[:, :k, k].T[:, :, None]).min(axis=0)
        for count in range(1, most + 1):
            price = arrives[k][:, : L + 1 - count] + count * block[:, k - 1, None]
            price = np.where(count <= cap[:, k - 1, None], price, np.inf)
            np.minimum(ends[k][:, count:], price, out=ends[k][:, count:])
    segments = np.zeros((B, K), dtype=np.int64)
    placed = np.full(B, L)
    node = (ends[1:, :, L] + hop[:, 1:, 0].T).argmin(axis=0) + 1
    counts = np.arange(1, most + 1)
    while (node > 0).any():
        before = placed[:, None] - counts
        allowed = (before >= 0) & (counts <= cap[rows, node - 1][:, None])
        price = arrives[node[:, None], rows[:, None], np.maximum(before, 0)]
        price = price + counts * block[rows, node - 1][:, None]
        count = counts[np.where(allowed, price, np.inf).argmin(axis=-1)]
        moving = node > 0
        segments[rows[moving], node[moving] - 1] = count[moving]
        placed = np.where(moving, placed - count, placed)
        earlier = ends[:, rows, placed].T + hop[rows, :, node]
        earlier = np.where(np.arange(K + 1) < node[:, None], earlier, np.inf)
        node = np.where(moving, earlier.argmin(axis=-1), 0)
    return segments
