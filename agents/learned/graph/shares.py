"""Shares of the uplink from the net alone: a common deadline for what each cluster is said to need.

A cluster that is busy for ``a_n`` besides its uplink and needs ``u_n`` on it at a share of ``1 / N`` meets
the deadline ``D`` with the share ``u_n / (N (D - a_n))``, or with the least that it may have. At the deadline
the shares sum to 1.
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
    with torch.no_grad():
        # The needed band falls and is convex in D: Newton's steps from the left never overshoot.
        deadline = (a + u).amax(dim=-1, keepdim=True)
        for _ in range(_STEPS):
            deadline = _later(deadline, a, u, floor)
    # One more step carries the gradient (implicit function theorem).
    deadline = _later(deadline, a, u, floor)
    above = torch.clamp(u / (deadline - a) - floor, min=0.0)
    return floor + (1.0 - N * floor) * above / above.sum(dim=-1, keepdim=True)


def _later(deadline: torch.Tensor, a: torch.Tensor, u: torch.Tensor, floor: float) -> torch.Tensor:
    """A deadline (..., 1) after one of Newton's steps."""
    part = u / (deadline - a)
    needed = torch.clamp(part, min=floor).sum(dim=-1, keepdim=True)
    slope = torch.where(part > floor, part / (deadline - a), 0.0).sum(dim=-1, keepdim=True).detach()
    later: torch.Tensor = deadline + (needed - 1.0) / slope
    return later


def share_divergence(exact: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Divergence of exact shares from the net's own (..., N), summed over all clusters and times ``N``."""
    return (exact * (exact / own).log()).sum() * exact.shape[-1]


@compiled_inner
def write_deadline_shares(busy: FloatArray, weight: FloatArray, floor: float, share: FloatArray) -> None:
    """Write the shares (N,) of one system; arguments as for :func:`deadline_shares`."""
    N = busy.shape[0]
    a, u = np.exp(busy), np.exp(weight) / N
    deadline = (a + u).max()
    for _ in range(_STEPS + 1):
        together, slope = 0.0, 0.0
        for n in range(N):
            part = u[n] / (deadline - a[n])
            together += max(part, floor)
            if part > floor:
                slope += part / (deadline - a[n])
        deadline += (together - 1.0) / slope
    above = 0.0
    for n in range(N):
        share[n] = max(u[n] / (deadline - a[n]) - floor, 0.0)
        above += share[n]
    for n in range(N):
        share[n] = floor + (1.0 - N * floor) * share[n] / above
