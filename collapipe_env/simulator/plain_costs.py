"""The compiled way to the costs of a round, for batches of plain plans in NumPy arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import Array
from collapipe_env.kernels.plain_round import (
    CLUSTER,
    DEVICE,
    NODE,
    ROUND,
    ClusterRows,
    DeviceRows,
    NodeRows,
    PlainPlan,
    RoundRows,
    System,
    plain_round,
)
from collapipe_env.simulator.state import SystemParameters, SystemState

FloatArray = npt.NDArray[np.float64]


class PlainCosts(NamedTuple):
    """Rows that the compiled loop writes, by name."""

    rounds: RoundRows[FloatArray]
    clusters: ClusterRows[FloatArray]
    nodes: NodeRows[FloatArray]
    devices: DeviceRows[FloatArray]


def plain_round_costs(
    parameters: SystemParameters, state: SystemState, allocation: Allocation
) -> PlainCosts | None:
    """Cost plain plans, or return ``None`` where the general form has to.

    Args:
        parameters: Scalars of the scenario.
        state: The system.
        allocation: A plan without extensions. With one batch axis, the state's, the loop can take it.
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
    )
    system = System(
        _real(state.uplink_gain),
        _real(state.d2d_gain),
        _real(state.cross_gain),
        _real(state.speed),
        _real(state.compute_power),
        _real(state.budget),
    )
    clusters, nodes = (E, N), (E, N, K + 1)
    if plan.micro_batches.shape != clusters or plan.bandwidth.shape != clusters:
        return None
    if plan.device_power.shape != blocks.shape or plan.cu_power.shape != clusters:
        return None
    # One plan for many states, or many for one, is for the general form.
    expected = (clusters, (*nodes, K + 1), (E, N, N), blocks.shape, blocks.shape, nodes)
    for array, shape in zip(system, expected, strict=True):
        if array.shape != shape:
            return None
    by_round, by_cluster = np.empty((len(ROUND), E)), np.empty((len(CLUSTER), *clusters))
    by_node, by_device = np.empty((len(NODE), *nodes)), np.empty((len(DEVICE), *blocks.shape))
    plain_round(parameters.numbers, system, plan, by_round, by_cluster, by_node, by_device)
    return PlainCosts(
        RoundRows._make(by_round),
        ClusterRows._make(by_cluster),
        NodeRows._make(by_node),
        DeviceRows._make(by_device),
    )


def _real(array: Array) -> npt.NDArray[np.float64]:
    return np.ascontiguousarray(array, dtype=np.float64)


def _whole(array: Array) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(array, dtype=np.int64)
