"""Recomputation: whether a cluster's devices store only the inputs of blocks and repeat the forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.decision import Decision, Jump, Part, plan_fields
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.memory_choices import SCHEDULE_CHOICES
from collapipe_env.simulator.refusal import refuse
from collapipe_env.simulator.state import Parameters, SystemState, other_memory_caps


def _chosen(parameters: Parameters, plan: Allocation) -> Array:
    """Settings of clusters (..., N), the workload's where a plan names none, 0 or 1."""
    given = plan.said("recompute")
    return np.where(given < 0, int(parameters.costs.training_memory.recompute), given)


def _encode(parameters: Parameters, plan: Allocation) -> FloatArray:
    return np.asarray(2.0 * _chosen(parameters, plan) - 1.0, dtype=np.float64)


def _jumps(
    row: Decision,  # noqa: ARG001 - part of the interface
    parameters: Parameters,
    state: SystemState,  # noqa: ARG001
    plan: Allocation,
) -> Iterator[Jump]:
    """The other setting, under every schedule where that is open: both decide the need for memory."""
    other = {"recompute": 1 - _chosen(parameters, plan)}
    yield Jump("recompute", other)
    if "schedule" in parameters.opened:
        for schedule in SCHEDULE_CHOICES:
            yield Jump("recompute", {**other, "schedule": np.full_like(plan.schedule, schedule)})


def _allowed(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:  # noqa: ARG001
    for name, chosen in row.values(plan):
        refuse(~np.isin(chosen, (-1, 0, 1)), chosen, name, "0 or 1, or -1 for the workload's setting")


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
    jumps=_jumps,
    features=lambda scenario, parameters: (
        Feature(
            "device_other_capacity",
            "N K",
            "blocks",
            0.0,
            scenario.blocks,
            "blocks that the memory holds under the other setting of recomputation",
            partial(other_memory_caps, parameters),
            least=-1.0,
            array="opened",
        ),
    ),
)
