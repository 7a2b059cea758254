"""Devices that stay because the encoder would not fit on the remaining ones, cluster by cluster."""

from __future__ import annotations

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled


@compiled
def staying_rows(
    present: BoolArray, left: BoolArray, order: FloatArray, caps: IntArray, blocks: int, stays: BoolArray
) -> None:
    """Find the devices that stay: those that do not go, and as many of the others as the encoder needs.

    Args:
        present: Devices that are present before any goes (R, N, K).
        left: Devices that do not go (R, N, K).
        order: Order in which devices that would go are kept: smallest numbers first (R, N, K).
        caps: Blocks that fit the memory of each device (R, N, K).
        blocks: Encoder depth ``L``.
        stays: (R, N, K), written.
    """
    R, N, K = present.shape
    for r in range(R):
        for n in range(N):
            room = 0
            for k in range(K):
                stays[r, n, k] = left[r, n, k]
                if left[r, n, k] and present[r, n, k]:
                    room += caps[r, n, k]
            for k in range(K):
                if left[r, n, k] or not present[r, n, k] or room >= blocks:
                    continue
                # Room on the devices that do not go, and on those that are kept before this one.
                before = room
                for j in range(K):
                    goes = present[r, n, j] and not left[r, n, j]
                    nearer = order[r, n, j] < order[r, n, k] or (order[r, n, j] == order[r, n, k] and j < k)
                    if goes and nearer:
                        before += caps[r, n, j]
                stays[r, n, k] = before < blocks
