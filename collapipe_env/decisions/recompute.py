"""Recomputation: whether a cluster's devices store only the inputs of blocks and repeat the forward pass."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, at_most, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.decision import Decision, Feature, Part, plan_fields
from collapipe_env.simulator.refusal import refuse
from collapipe_env.simulator.state import Parameters, SystemState, other_memory_caps


def _encode(parameters: Parameters, plan: Allocation) -> FloatArray:
    given = plan.said("recompute")
    chosen = np.where(given < 0, parameters.costs.training_memory.recompute, given)
    return np.asarray(2.0 * chosen - 1.0, dtype=np.float64)


def _allowed(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:  # noqa: ARG001
    for name, chosen in row.values(plan):
        refuse(~np.isin(chosen, (-1, 0, 1)), chosen, name, "0 or 1, or -1 for the workload's setting")


def _other_capacity(parameters: Parameters, state: SystemState) -> Array:
    caps = namespace(state.clock).astype(other_memory_caps(parameters, state), state.clock.dtype)
    return at_most(caps, parameters.costs.blocks)


RECOMPUTE = Decision(
    name="recompute",
    fields=plan_fields("recompute"),
    parts=(
        Part(
            "recompute",
            "N",
            lambda _: (
                "recomputation: at 0 and above devices store only the inputs of blocks and recompute the "
                "rest, below 0 they store all activations if the encoder then fits"
            ),
            lambda _: 2,
            _encode,
        ),
    ),
    otherwise=", so workload.recompute settles it",
    allowed=_allowed,
    features=(
        Feature(
            "other_capacity",
            "N K",
            "blocks",
            lambda scenario: scenario.blocks,
            "blocks that the memory holds under the other setting of recomputation",
            _other_capacity,
        ),
    ),
)
