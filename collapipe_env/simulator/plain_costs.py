"""The compiled way to the costs of a round, for batches of plain plans in NumPy arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import Array, FloatArray, IntArray
from collapipe_env.kernels.plain_round import (
    CLUSTER,
    DEVICE,
    NODE,
    ROUND,
    PlainPlan,
    System,
    plain_round,
)
from collapipe_env.physics.participation import players, whole_steps
from collapipe_env.physics.radio import weakest_listener
from collapipe_env.simulator.state import SystemParameters, SystemState

_NOWHERE: IntArray = np.empty((0, 0), dtype=np.int64)
_LEFT: FloatArray = np.empty((0, 0))


class PlainCosts(NamedTuple):
    """Rows that the compiled loop writes; :mod:`collapipe_env.kernels.plain_round` has their names."""

    rounds: FloatArray
    clusters: FloatArray
    nodes: FloatArray
    devices: FloatArray


def plain_round_costs(
    parameters: SystemParameters,
    state: SystemState,
    allocation: Allocation,
    counted: Array | None = None,
) -> PlainCosts | None:
    """Cost plain plans, or return ``None`` where the general form has to.

    Args:
        parameters: Scalars of the scenario.
        state: The system.
        allocation: A plan without extensions. With one batch axis, the state's, the loop can take it.
        counted: ``T_n`` of clusters that sit out (E, N) [s]; ``None`` where all take part.
    """
    blocks = allocation.blocks
    if type(blocks) is not np.ndarray or blocks.ndim != 3:
        return None
    if blocks.dtype.kind != "i" or allocation.micro_batches.dtype.kind != "i":
        return None
    E, N, K = blocks.shape
    plan = PlainPlan(
        _whole(blocks),
        _whole(allocation.micro_batches),
        _real(allocation.bandwidth),
        _real(allocation.device_power),
        _real(allocation.cu_power),
        _other_setting(parameters, allocation),
        _own_steps(parameters, allocation),
        _counted(allocation, counted),
    )
    system = System(
        _real(state.uplink_gain),
        _real(weakest_listener(state.uplink_gain, state.device_edge_ratio, state.present)),
        _real(state.d2d_gain),
        _real(state.cross_gain),
        _real(state.speed),
        _real(state.clock),
        _real(state.compute_power),
        _real(state.budget),
    )
    clusters, nodes = (E, N), (E, N, K + 1)
    if plan.micro_batches.shape != clusters or plan.bandwidth.shape != clusters:
        return None
    if plan.device_power.shape != blocks.shape or plan.cu_power.shape != clusters:
        return None
    for optional in (plan.other_setting, plan.local_steps, plan.counted):
        if optional.size and optional.shape != clusters:
            return None
    # One plan for many states, or many for one, is for the general form.
    expected = (clusters, clusters, (*nodes, K + 1), (E, N, N), *(blocks.shape,) * 3, nodes)
    for array, shape in zip(system, expected, strict=True):
        if array.shape != shape:
            return None
    costs = PlainCosts(
        rounds=np.empty((len(ROUND), E)),
        clusters=np.empty((len(CLUSTER), E, N)),
        nodes=np.empty((len(NODE), E, N, K + 1)),
        devices=np.empty((len(DEVICE), E, N, K)),
    )
    plain_round(parameters.numbers, system, plan, *costs)
    return costs


def _other_setting(parameters: SystemParameters, allocation: Allocation) -> IntArray:
    """1 where clusters take the other setting of recomputation (E, N), or an array of nothing if none can."""
    if allocation.recompute is None:
        return _NOWHERE
    chosen = np.asarray(allocation.recompute)
    own = parameters.costs.training_memory.recompute
    return _whole((chosen >= 0) & ((chosen > 0) != own))


def _counted(allocation: Allocation, counted: Array | None) -> FloatArray:
    """-1 where clusters take part, else the ``T_n`` that they count (E, N), or nothing if all take part."""
    plays = players(allocation)
    if plays is None or counted is None:
        return _LEFT
    return _real(np.where(plays, -1.0, counted))


def _own_steps(parameters: SystemParameters, allocation: Allocation) -> FloatArray:
    """Local steps of the clusters (E, N), or an array of nothing if the plan leaves them to the workload."""
    steps = whole_steps(allocation, parameters.costs.local_steps)
    return _LEFT if steps is None else _real(steps)


def _real(array: Array) -> FloatArray:
    return np.ascontiguousarray(array, dtype=np.float64)


def _whole(array: Array) -> IntArray:
    return np.ascontiguousarray(array, dtype=np.int64)
