"""Shares of the uplink from a common deadline and each cluster's need, and departures from given shares.

A cluster's delay is ``a_n`` plus a part that is ``u_n`` at a share of ``1 / N``. It meets the deadline ``D``
with the share ``u_n / (N (D - a_n))``, or with the least share allowed. ``D`` is where the shares sum to 1.
"""

from __future__ import annotations

import math

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_inner

_STEPS = 16
LEAST_ABOVE = 1e-7
"""Least part of a share above the floor, from which a cluster can still depart."""


@compiled_inner
def write_deadline_shares(stays: FloatArray, inverse: FloatArray, floor: float, share: FloatArray) -> None:
    """Write the shares of one system.

    Args:
        stays: ``a`` (N,) [s].
        inverse: ``u`` (N,), > 0 [s].
        floor: Least share of a cluster; ``N`` times it is below 1.
        share: Receives the shares (N,), with sum 1.
    """
    N = stays.shape[0]
    longest = stays.max()
    # The unknown is the time left to the cluster with least of it: differences of long times lose digits.
    left = 0.0
    for n in range(N):
        left = max(left, inverse[n] / N - (longest - stays[n]))
    # The needed band falls and is convex in D: Newton's steps from the left never overshoot.
    for _ in range(_STEPS):
        together, slope = 0.0, 0.0
        for n in range(N):
            own = left + (longest - stays[n])
            part = inverse[n] / (N * own)
            together += max(part, floor)
            if part > floor:
                slope += part / own
        left += (together - 1.0) / slope
    above = 0.0
    for n in range(N):
        share[n] = max(inverse[n] / (N * (left + (longest - stays[n]))) - floor, 0.0)
        above += share[n]
    for n in range(N):
        share[n] = floor + (1.0 - N * floor) * share[n] / above


@compiled_inner
def depart(share: FloatArray, residual: FloatArray, floor: float) -> None:
    """Scale the parts of one system's shares above the floor by ``exp(residual)``, and to their sum.

    Args:
        share: Shares (N,) with sum 1, >= ``floor``; receives the new ones, with sum 1.
        residual: Logs of the factors (N,).
        floor: Least share of a cluster; ``N`` times it is below 1.
    """
    N, highest = len(share), residual.max()
    above = 0.0
    for n in range(N):
        share[n] = max(share[n] - floor, LEAST_ABOVE) * math.exp(residual[n] - highest)
        above += share[n]
    for n in range(N):
        share[n] = floor + (1.0 - N * floor) * share[n] / above
