"""Devices that walk, and shadowing that walks with them, device by device and link by link.

The counterparts on arrays are in :mod:`collapipe_env.dynamics.walks` and
:mod:`collapipe_env.dynamics.mobility`.
"""

from __future__ import annotations

import math

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray, hypot
from collapipe_env.ground.compiled import compiled
from collapipe_env.ground.numbers import normal_rows
from collapipe_env.physics.motion import (
    MOST_LEGS,
    NUMBERS_PER_LEG,
    leaves_on_leg,
    paused,
    walked,
    weights_of,
)


@compiled
def pause_and_go_rows(
    side: float,
    pause_s: float,
    slowest: float,
    fastest: float,
    x: FloatArray,
    y: FloatArray,
    target_x: FloatArray,
    target_y: FloatArray,
    speed: FloatArray,
    pause: FloatArray,
    there: FloatArray,
    seconds: FloatArray,
    u: FloatArray,
    moved: FloatArray,
) -> None:
    """Move devices that pause and go; see :func:`collapipe_env.dynamics.walks.pause_and_go`.

    Args:
        side: Side of the square [m].
        pause_s: Mean of the pauses [s].
        slowest: Least speed of a leg [m/s].
        fastest: Greatest speed of a leg [m/s].
        x: Places (R, N, K) [m].
        y: The other coordinates.
        target_x: Ends of legs (R, N, K) [m].
        target_y: The other coordinates.
        speed: Speeds (R, N, K), 0 in a pause [m/s].
        pause: Time left of pauses (R, N, K) [s].
        there: 1 for slots of devices, 0 for others (N, K), which do not move.
        seconds: Time to move by (R,), >= 0 [s].
        u: Uniform numbers (R, at least N K MOST_LEGS NUMBERS_PER_LEG): device by device, leg by leg.
        moved: New values of the six arrays ``x`` to ``pause`` (6, R, N, K), in this order, written.
    """
    R, N, K = x.shape
    for r in range(R):
        at = 0
        for n in range(N):
            for k in range(K):
                px, py, to_x, to_y = x[r, n, k], y[r, n, k], target_x[r, n, k], target_y[r, n, k]
                pace, rest = speed[r, n, k], pause[r, n, k]
                left = seconds[r] * there[n, k]
                for leg in range(MOST_LEGS + 1):
                    if pace > 0.0:
                        px, py, left, arrives = walked(px, py, to_x, to_y, pace, left)
                        if leg == MOST_LEGS or not arrives:
                            break
                        pace, rest = 0.0, -pause_s * math.log(u[r, at + leg * NUMBERS_PER_LEG])
                    rest, left, departs = paused(pace, rest, left)
                    if not departs:
                        break
                    of_leg = at + leg * NUMBERS_PER_LEG
                    to_x, to_y = side * u[r, of_leg + 1], side * u[r, of_leg + 2]
                    pace = slowest + (fastest - slowest) * u[r, of_leg + 3]
                at += MOST_LEGS * NUMBERS_PER_LEG
                # Rounding may carry a place past its target.
                moved[0, r, n, k] = min(max(px, 0.0), side)
                moved[1, r, n, k] = min(max(py, 0.0), side)
                moved[2, r, n, k], moved[3, r, n, k] = to_x, to_y
                moved[4, r, n, k], moved[5, r, n, k] = pace, rest


@compiled
def leg_leaving_rows(
    radius: float,
    centre: float,
    most_s: float,
    x: FloatArray,
    y: FloatArray,
    target_x: FloatArray,
    target_y: FloatArray,
    speed: FloatArray,
    leaves_s: FloatArray,
) -> None:
    """Write when devices that pause leave a circle; see :func:`collapipe_env.physics.motion.leaves_on_leg`.

    Args:
        radius: Radius of the circle [m].
        centre: Both coordinates of its centre [m].
        most_s: Longest time to report [s].
        x: Places (R, N, K) [m].
        y: The other coordinates.
        target_x: Ends of legs (R, N, K) [m].
        target_y: The other coordinates.
        speed: Speeds (R, N, K), 0 in a pause [m/s].
        leaves_s: (R, N, K) [s], written.
    """
    R, N, K = x.shape
    for r in range(R):
        for n in range(N):
            for k in range(K):
                px, py = x[r, n, k], y[r, n, k]
                if speed[r, n, k] == 0.0:
                    # Most devices stand still, so they do not leave.
                    inside = hypot(px - centre, py - centre) <= radius
                    leaves_s[r, n, k] = most_s if inside else 0.0
                    continue
                leaves_s[r, n, k] = leaves_on_leg(
                    radius,
                    most_s,
                    px - centre,
                    py - centre,
                    target_x[r, n, k] - px,
                    target_y[r, n, k] - py,
                    speed[r, n, k],
                )


@compiled
def distance_rows(centre: float, x: FloatArray, y: FloatArray, distance: FloatArray) -> None:
    """Measure how far devices are from their CUs.

    Args:
        centre: Both coordinates of every CU [m].
        x: Places (R, N, K) [m].
        y: The other coordinates.
        distance: (R, N, K) [m], written.
    """
    R, N, K = x.shape
    for r in range(R):
        for n in range(N):
            for k in range(K):
                distance[r, n, k] = hypot(x[r, n, k] - centre, y[r, n, k] - centre)


@compiled
def way_rows(
    before_x: FloatArray, before_y: FloatArray, x: FloatArray, y: FloatArray, ways: FloatArray
) -> None:
    """Measure the total distance that the two nodes of each pair walked; CUs stand still.

    Args:
        before_x: Places before the walk (R, N, K) [m].
        before_y: The other coordinates.
        x: Places after it (R, N, K) [m].
        y: The other coordinates.
        ways: (R, pairs) [m], in the order of a system's ``link_gain``, written.
    """
    R, N, K = x.shape
    for r in range(R):
        at = 0
        for n in range(N):
            # A pair with the CU has the device's own distance.
            for k in range(K):
                ways[r, at + k] = hypot(x[r, n, k] - before_x[r, n, k], y[r, n, k] - before_y[r, n, k])
            pair = at + K
            for i in range(K):
                for j in range(i + 1, K):
                    ways[r, pair] = ways[r, at + i] + ways[r, at + j]
                    pair += 1
            at = pair


@compiled
def shadow_rows(
    forgotten: FloatArray,
    deviation: float,
    u: FloatArray,
    first: int,
    before: FloatArray,
    shadow: FloatArray,
) -> None:
    """Move shadowing by normal numbers; see :func:`collapipe_env.physics.motion.correlated`.

    Args:
        forgotten: ``1 - rho`` of each link (R, links), or of all links of a row (R, 1).
        deviation: Standard deviation of shadowing [dB].
        u: Uniform numbers (R, ...), two for every two links, from column ``first`` on.
        first: Column of the first number.
        before: Shadowing before (R, links) [dB].
        shadow: Shadowing after (R, links) [dB], written.
    """
    R, links = before.shape
    normal_rows(u, first, np.empty((2, (links + 1) // 2)), shadow)
    if forgotten.shape[1] == 1:
        for r in range(R):
            kept, fresh = weights_of(forgotten[r, 0])
            for i in range(links):
                shadow[r, i] = kept * before[r, i] + fresh * (deviation * shadow[r, i])
    else:
        for r in range(R):
            for i in range(links):
                kept, fresh = weights_of(forgotten[r, i])
                shadow[r, i] = kept * before[r, i] + fresh * (deviation * shadow[r, i])


@compiled
def hop_rows(x: FloatArray, y: FloatArray, centre: float, hop_min_m: float, hop: FloatArray) -> None:
    """Measure the hops between the nodes of each cluster.

    Args:
        x: Places of devices (R, N, K) [m].
        y: The other coordinates.
        centre: Both coordinates of every CU [m].
        hop_min_m: Least distance, as which shorter ones count [m].
        hop: (R, pairs) [m], in the order of a system's ``link_gain``, written.
    """
    R, N, K = x.shape
    for r in range(R):
        pair = 0
        for n in range(N):
            for j in range(K):
                hop[r, pair] = max(hypot(centre - x[r, n, j], centre - y[r, n, j]), hop_min_m)
                pair += 1
            for i in range(K):
                for j in range(i + 1, K):
                    far = hypot(x[r, n, i] - x[r, n, j], y[r, n, i] - y[r, n, j])
                    hop[r, pair] = max(far, hop_min_m)
                    pair += 1
