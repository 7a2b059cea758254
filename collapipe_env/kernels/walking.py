"""Devices that walk, and shadowing with them, by the formulas of :mod:`collapipe_env.physics.motion`.

Places are coordinates (R, N, K) [m]; a CU stands at the centre of its cluster's square.
"""

from __future__ import annotations

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.ground.numbers import normal_rows
from collapipe_env.physics.motion import (
    MOST_LEGS,
    NUMBERS_PER_LEG,
    correlated,
    leaves_on_leg,
    length,
    paused_and_gone,
)


@compiled
def walk_rows(
    side: float,
    pause_s: float,
    slowest: float,
    fastest: float,
    x: FloatArray,
    y: FloatArray,
    to_x: FloatArray,
    to_y: FloatArray,
    speed: FloatArray,
    pause: FloatArray,
    there: FloatArray,
    seconds: FloatArray,
    u: FloatArray,
) -> FloatArray:
    """Move devices; see :func:`collapipe_env.dynamics.walks.pause_and_go`.

    Returns:
        ``x`` to ``pause`` after that time (6, R, N, K).
    """
    R, N, K = x.shape
    moved = np.empty((6, R, N, K))
    for r in range(R):
        at = 0
        for n in range(N):
            for k in range(K):
                found = paused_and_gone(
                    side,
                    pause_s,
                    slowest,
                    fastest,
                    x[r, n, k],
                    y[r, n, k],
                    to_x[r, n, k],
                    to_y[r, n, k],
                    speed[r, n, k],
                    pause[r, n, k],
                    seconds[r] * there[n, k],
                    u[r],
                    at,
                )
                for i in range(6):
                    moved[i, r, n, k] = found[i]
                at += MOST_LEGS * NUMBERS_PER_LEG
    return moved


@compiled
def leaving_rows(
    radius: float,
    centre: float,
    most_s: float,
    x: FloatArray,
    y: FloatArray,
    to_x: FloatArray,
    to_y: FloatArray,
    speed: FloatArray,
) -> FloatArray:
    """Return when devices leave a circle around their CU, at most ``most_s`` (R, N, K) [s]."""
    leaves_s = np.empty(x.shape)
    R, N, K = x.shape
    for r in range(R):
        for n in range(N):
            for k in range(K):
                px, py = x[r, n, k], y[r, n, k]
                way_x, way_y = to_x[r, n, k] - px, to_y[r, n, k] - py
                leaves_s[r, n, k] = leaves_on_leg(
                    radius, most_s, px - centre, py - centre, way_x, way_y, speed[r, n, k]
                )
    return leaves_s


@compiled
def distance_rows(centre: float, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the distance of devices from their CU (R, N, K) [m]."""
    distance = np.empty(x.shape)
    R, N, K = x.shape
    for r in range(R):
        for n in range(N):
            for k in range(K):
                distance[r, n, k] = length(x[r, n, k] - centre, y[r, n, k] - centre)
    return distance


@compiled
def way_rows(before_x: FloatArray, before_y: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the total distance that the two nodes of each pair walked (R, pairs) [m]; CUs stand still."""
    R, N, K = x.shape
    ways = np.empty((R, N * (K * (K + 1) // 2)))
    for r in range(R):
        pair = 0
        for n in range(N):
            first = pair
            # A pair with the CU has the device's own distance.
            for k in range(K):
                ways[r, pair] = length(x[r, n, k] - before_x[r, n, k], y[r, n, k] - before_y[r, n, k])
                pair += 1
            for i in range(K):
                for j in range(i + 1, K):
                    ways[r, pair] = ways[r, first + i] + ways[r, first + j]
                    pair += 1
    return ways


@compiled
def hop_rows(x: FloatArray, y: FloatArray, centre: float, hop_min_m: float) -> FloatArray:
    """Return the distances between the nodes of each cluster (R, pairs) [m], at least the shortest hop."""
    R, N, K = x.shape
    hop = np.empty((R, N * (K * (K + 1) // 2)))
    for r in range(R):
        pair = 0
        for n in range(N):
            for i in range(-1, K):
                from_x, from_y = (centre, centre) if i < 0 else (x[r, n, i], y[r, n, i])
                for j in range(i + 1, K):
                    hop[r, pair] = max(length(from_x - x[r, n, j], from_y - y[r, n, j]), hop_min_m)
                    pair += 1
    return hop


@compiled
def shadow_rows(
    before: FloatArray, gone: FloatArray, deviation: float, u: FloatArray, first: int
) -> FloatArray:
    """Return shadowing after a walk or a time (R, links) [dB].

    Args:
        before: Shadowing before it (R, links) [dB].
        gone: ``1 - rho`` of each link (R, links), or of all links of a row (R, 1).
        deviation: Standard deviation of shadowing [dB].
        u: Uniform numbers (R, ...), two for every two links, from column ``first`` on.
        first: Column of the first number.
    """
    R, links = before.shape
    shadow = np.empty((R, links))
    normal_rows(u, first, np.empty((2, (links + 1) // 2)), shadow)
    step = int(gone.shape[1] > 1)
    for r in range(R):
        for i in range(links):
            shadow[r, i] = correlated(before[r, i], gone[r, i * step], deviation * shadow[r, i])
    return shadow
