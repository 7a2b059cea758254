"""Shares of the uplink from the net alone: a common deadline for what each cluster is said to need.

A cluster that is busy for ``a_n`` besides its uplink and needs ``u_n`` on it at a share of ``1 / N`` meets
the deadline ``D`` with the share ``u_n / (N (D - a_n))``. At the deadline the shares sum to 1.
"""

from __future__ import annotations

import numpy as np
import torch

from collapipe_env.arrays import FloatArray
from collapipe_env.compiled import compiled_inner

_STEPS = 16


def deadline_shares(busy: torch.Tensor, weight: torch.Tensor, floor: float) -> torch.Tensor:
    """Shares (..., N) with sum 1, differentiable in both arguments.

    Args:
        busy: Log of ``a`` (..., N).
        weight: Log of ``u`` (..., N), in the same unit.
        floor: Least share of a cluster; ``N`` times it is below 1.
    """
    N = busy.shape[-1]
    a, u = busy.exp(), weight.exp() / N
    # All in terms of what is left of the deadline for the busiest: however busy it is, this is exact.
    ahead = a.detach().amax(dim=-1, keepdim=True) - a
    with torch.no_grad():
        # The needed band falls and is convex in D: Newton's steps from the left never overshoot.
        left = (u - ahead).amax(dim=-1, keepdim=True)
        for _ in range(_STEPS):
            part = u / (left + ahead)
            slope = (part / (left + ahead)).sum(dim=-1, keepdim=True)
            left = left + (part.sum(dim=-1, keepdim=True) - 1.0) / slope
    # One more step carries the gradient (implicit function theorem).
    part = u / (left + ahead)
    slope = (part / (left + ahead)).sum(dim=-1, keepdim=True).detach()
    left = left + (part.sum(dim=-1, keepdim=True) - 1.0) / slope
    share = u / (left + ahead)
    share = share / share.sum(dim=-1, keepdim=True)
    return floor + (1.0 - N * floor) * share


def share_divergence(exact: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Divergence of exact shares from the net's own (..., N), summed over all clusters and times ``N``."""
    return (exact * (exact / own).log()).sum() * exact.shape[-1]


@compiled_inner
def write_deadline_shares(busy: FloatArray, weight: FloatArray, floor: float, share: FloatArray) -> None:
    """Write the shares (N,) of one system; arguments as for :func:`deadline_shares`."""
    N = busy.shape[0]
    a, u = np.exp(busy), np.exp(weight) / N
    ahead = a.max() - a
    left = (u - ahead).max()
    together = 1.0
    for _ in range(_STEPS + 1):
        together, slope = 0.0, 0.0
        for n in range(N):
            share[n] = u[n] / (left + ahead[n])
            together += share[n]
            slope += share[n] / (left + ahead[n])
        left += (together - 1.0) / slope
    for n in range(N):
        share[n] = floor + (1.0 - N * floor) * share[n] / together
