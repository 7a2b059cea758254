"""Recomputation of activations as a decision, and its effect on the price of a cluster's devices ([X])."""

from __future__ import annotations

from typing import NamedTuple

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.workload import WorkloadCosts


class RecomputationTerms(NamedTuple):
    """Terms of time and memory that depend on recomputation: numbers, or arrays (..., N, 1).

    Attributes:
        backward_over_forward: ``rho``, cost of a device's backward pass over that of its forward pass.
        activation_bytes: ``alpha`` per sample and block [byte].
        working_bytes: ``omega``, activations of a sample in one block that are recomputed [byte].
    """

    backward_over_forward: Array | float
    activation_bytes: Array | float
    working_bytes: Array | float


def recomputation_terms(parameters: Parameters, allocation: Allocation) -> RecomputationTerms:
    """Return the terms under a plan.

    Args:
        allocation: Any plan (...).

    Returns:
        Numbers where the plan leaves recomputation to the scenario's workload, otherwise arrays (..., N, 1).
    """
    if allocation.recompute is None:
        return _terms(parameters.costs)
    xp = namespace(allocation.device_power)
    nothing = xp.zeros_like(allocation.device_power[..., :1])
    recomputes = allocation.recompute > 0
    if parameters.costs.training_memory.recompute:
        recomputes = recomputes | (allocation.recompute < 0)
    pairs = zip(
        _terms(parameters.costs_when(recompute=True)),
        _terms(parameters.costs_when(recompute=False)),
        strict=True,
    )
    chosen = recomputes[..., None]
    return RecomputationTerms(*(xp.where(chosen, nothing + yes, nothing + no) for yes, no in pairs))


def _terms(costs: WorkloadCosts) -> RecomputationTerms:
    return RecomputationTerms(costs.backward_over_forward, costs.stored_activation_bytes, costs.working_bytes)
