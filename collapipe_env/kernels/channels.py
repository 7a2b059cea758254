"""Gains of links as matrices, row by row."""

from __future__ import annotations

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled


@compiled
def link_matrices(
    link_gain: FloatArray, small_scale: FloatArray, uplink_gain: FloatArray, d2d_gain: FloatArray
) -> None:
    """Multiply large-scale gains of links by small-scale ones, and arrange them as in the state.

    Args:
        link_gain: (E, N (1 + K (K+1) / 2)): uplinks, then each cluster's pairs of nodes in the order (0, 1),
            (0, 2), ..., (K-1, K).
        small_scale: Small-scale gains in the same order.
        uplink_gain: (E, N), written.
        d2d_gain: (E, N, K+1, K+1), written: symmetric, with a diagonal of zeros.
    """
    E, N, nodes, _ = d2d_gain.shape
    for e in range(E):
        for n in range(N):
            uplink_gain[e, n] = link_gain[e, n] * small_scale[e, n]
        link = N
        for n in range(N):
            gain = d2d_gain[e, n]
            for i in range(nodes):
                gain[i, i] = 0.0
                for j in range(i + 1, nodes):
                    gain[i, j] = gain[j, i] = link_gain[e, link] * small_scale[e, link]
                    link += 1
