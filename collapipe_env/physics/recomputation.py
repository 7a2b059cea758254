"""Recomputation of activations as a decision, and its effect on the price of a cluster's devices ([X])."""

from __future__ import annotations

from collapipe_env.ground.arrays import namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.workload import RecomputationTerms, WorkloadCosts


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
