"""Gains of links as matrices, row by row."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, FloatArray, IntArray, namespace
from collapipe_env.ground.backends.numpy_backend import large_empty
from collapipe_env.ground.compiled import compiled


def split_links(link_gain: Array, small_scale: Array | None, devices: tuple[int, int]) -> tuple[Array, Array]:
    """Gains of uplinks (R, N) and of pairs of nodes (R, N, K+1, K+1), symmetric, with a diagonal of zeros.

    Args:
        link_gain: Large-scale gains of all links (R, links).
        small_scale: Small-scale gains, by which they are multiplied; ``None`` for 1.
        devices: ``(N, K)``.
    """
    N, K = devices
    rows, nodes = len(link_gain), K + 1
    if type(link_gain) is np.ndarray:
        uplink, d2d = np.empty((rows, N)), large_empty((rows, N, nodes, nodes))
        small = np.ones_like(link_gain) if small_scale is None else small_scale
        link_matrices(link_gain, small, _pair_places(nodes).values, uplink, d2d)
        return uplink, d2d
    xp = namespace(link_gain)
    if small_scale is not None:
        link_gain = link_gain * small_scale
    pairs = xp.reshape(link_gain[:, N:], (rows, N, -1))
    # One more gain, of zero, for the diagonals.
    padded = xp.concat((pairs, xp.zeros_like(pairs[..., :1])), axis=-1)
    places = _pair_places(nodes).like(link_gain, xp.int64)
    matrices = xp.reshape(xp.take(padded, places, axis=-1), (rows, N, nodes, nodes))
    return xp.asarray(link_gain[:, :N], copy=True), matrices


@compiled
def link_matrices(
    link_gain: FloatArray,
    small_scale: FloatArray,
    places: IntArray,
    uplink_gain: FloatArray,
    d2d_gain: FloatArray,
) -> None:
    """Multiply large-scale gains of links by small-scale ones, and arrange them as in the state.

    Args:
        link_gain: (E, N (1 + K (K+1) / 2)): uplinks, then each cluster's pairs of nodes in the order (0, 1),
            (0, 2), ..., (K-1, K).
        small_scale: Small-scale gains in the same order.
        places: Place of each pair of nodes among a cluster's ((K+1)^2,), the diagonal's past the end.
        uplink_gain: (E, N), written.
        d2d_gain: (E, N, K+1, K+1), written: symmetric, with a diagonal of zeros.
    """
    E, N, nodes, _ = d2d_gain.shape
    matrices, pairs = d2d_gain.reshape(E, N, nodes * nodes), nodes * (nodes - 1) // 2
    gain = np.zeros(pairs + 1)
    for e in range(E):
        for n in range(N):
            uplink_gain[e, n] = link_gain[e, n] * small_scale[e, n]
        for n in range(N):
            first = N + n * pairs
            for i in range(pairs):
                gain[i] = link_gain[e, first + i] * small_scale[e, first + i]
            # In the order of the matrix, so that memory is written from one end to the other.
            for place in range(nodes * nodes):
                matrices[e, n, place] = gain[places[place]]


@lru_cache(maxsize=16)
def _pair_places(nodes: int) -> Constant:
    """Place of each pair of nodes in a row of pairs, flattened ((K+1)^2,); the diagonal's is past the end."""
    first, second = np.triu_indices(nodes, 1)
    index = np.full((nodes, nodes), len(first))
    index[first, second] = index[second, first] = np.arange(len(first))
    return Constant(index.ravel())


@compiled
def rows_of_matrices(uplink_gain: FloatArray, d2d_gain: FloatArray) -> FloatArray:
    """Return the gains of all links in a row (R, links); undoes :func:`link_matrices`."""
    R, N, nodes, _ = d2d_gain.shape
    gain = np.empty((R, N + N * (nodes * (nodes - 1) // 2)))
    for r in range(R):
        link = N
        for n in range(N):
            gain[r, n] = uplink_gain[r, n]
            for i in range(nodes):
                for j in range(i + 1, nodes):
                    gain[r, link] = d2d_gain[r, n, i, j]
                    link += 1
    return gain
