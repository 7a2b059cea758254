"""Walks and the shadowing of their links in NumPy arrays, by compiled loops.

Each function equals one on arrays of any library, in :mod:`collapipe_env.dynamics.walks` or
:class:`~collapipe_env.dynamics.mobility.Mobility`, apart from rounding.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.dynamics.walks import PauseGo, Walk
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.kernels.walking import (
    distance_rows,
    hop_rows,
    leg_leaving_rows,
    pause_and_go_rows,
    shadow_rows,
    way_rows,
)

_PAUSE_GO = ("x", "y", "target_x", "target_y", "speed", "pause")


def walked_rows(
    law: PauseGo, walk: Walk, there: FloatArray, u: FloatArray, seconds: FloatArray
) -> dict[str, FloatArray]:
    """Walks after some seconds.

    Args:
        law: Law of the walks.
        walk: The walks (R, N, K); not written to.
        there: 1 for slots of devices, 0 for others (N, K), which do not move.
        u: Uniform numbers, those of devices first (R, ...).
        seconds: Time to move by (R,) [s].
    """
    x = walk["x"]
    moved = np.empty((len(_PAUSE_GO), *x.shape))
    goes = walk["target_x"], walk["target_y"], walk["speed"], walk["pause"]
    pause_and_go_rows(*law, x, walk["y"], *goes, there, seconds, u, moved)
    return dict(zip(_PAUSE_GO, moved, strict=True))


def leaving_rows(law: PauseGo, walk: Walk, radius: float, most_s: float) -> FloatArray:
    """Time until each device leaves the circle around its CU (R, N, K), at most ``most_s`` [s].

    Args:
        law: Law of the walks.
        walk: The walks (R, N, K).
        radius: Radius of the circle [m].
        most_s: Largest time to return [s].
    """
    x, y = walk["x"], walk["y"]
    leaves_s: FloatArray = np.empty_like(x)
    ends = walk["target_x"], walk["target_y"]
    leg_leaving_rows(radius, 0.5 * law.side, most_s, x, y, *ends, walk["speed"], leaves_s)
    return leaves_s


def distances_to(centre: float, x: FloatArray, y: FloatArray) -> FloatArray:
    """Distance of each device from its CU (R, N, K) [m].

    Args:
        centre: Both coordinates of every CU [m].
        x: Places (R, N, K) [m].
        y: The other coordinates.
    """
    distance = np.empty_like(x)
    distance_rows(centre, x, y, distance)
    return distance


def ways_of_pairs(before: Walk, after: Walk, pairs: int) -> FloatArray:
    """Sums of the displacements of the two nodes of each pair (R, pairs) [m].

    Args:
        pairs: Pairs of nodes in all clusters.
    """
    x = after["x"]
    ways = np.empty((len(x), pairs))
    way_rows(before["x"], before["y"], x, after["y"], ways)
    return ways


def moved_shadowing(
    before: FloatArray, lag: FloatArray, deviation_db: float, u: FloatArray, first: int
) -> FloatArray:
    """Shadowing after a displacement or a time (R, links) [dB].

    Args:
        before: Shadowing before it (R, links) [dB].
        lag: Displacements or times in decorrelation lengths (R, links), or one for all links (R, 1).
        deviation_db: Standard deviation of shadowing [dB].
        u: Uniform numbers (R, ...); those of the links begin at column ``first``.
        first: That column.
    """
    shadow = np.empty_like(before)
    forgotten = np.expm1(-lag)
    np.negative(forgotten, out=forgotten)
    shadow_rows(forgotten, deviation_db, u, first, before, shadow)
    return shadow


def hops_of_pairs(x: FloatArray, y: FloatArray, side: float, hop_min_m: float, pairs: int) -> FloatArray:
    """Distances between the nodes of each cluster (R, pairs) [m], at least the shortest hop.

    Args:
        x: Places of devices (R, N, K) [m].
        y: The other coordinates.
        side: Side of the square, in whose centre the CU stands [m].
        hop_min_m: Shortest hop, to which shorter distances are raised [m].
        pairs: Pairs of nodes in all clusters.
    """
    hop = np.empty((len(x), pairs))
    hop_rows(x, y, 0.5 * side, hop_min_m, hop)
    return hop
