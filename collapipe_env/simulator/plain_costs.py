"""Compiled costs of a round, for batches of plain plans in NumPy arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, IntArray, loop_array
from collapipe_env.kernels.plain_round import (
    CLUSTER,
    DEVICE,
    NODE,
    ROUND,
    PlainPlan,
    System,
    plain_round,
)
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.participation import players, whole_steps
from collapipe_env.simulator.state import Parameters, SystemState

_CLOSED: FloatArray = np.empty((0, 0, 0))


class PlainCosts(NamedTuple):
    """Rows that the compiled loop writes; :mod:`collapipe_env.kernels.plain_round` names them."""

    rounds: FloatArray
    clusters: FloatArray
    nodes: FloatArray
    devices: FloatArray


def plain_round_costs(
    parameters: Parameters,
    state: SystemState,
    allocation: Allocation,
    counted: Array | None = None,
) -> PlainCosts | None:
    """Price plain plans; ``None`` where the general form is needed.

    Args:
        allocation: A plan without extensions. The loop takes plans with one batch axis, the state's.
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
        _opened(parameters, allocation, counted),
    )
    system = System(
        _real(state.uplink_gain),
        _real(state.d2d_gain),
        _real(state.cross_gain),
        _real(state.speed),
        _real(state.clock),
        _real(state.compute_power),
        _real(state.budget),
        _real(state.server_share),
    )
    clusters, nodes = (E, N), (E, N, K + 1)
    if plan.micro_batches.shape != clusters or plan.bandwidth.shape != clusters:
        return None
    if plan.device_power.shape != blocks.shape or plan.cu_power.shape != clusters:
        return None
    if plan.opened.size and plan.opened.shape[1:] != clusters:
        return None
    # The general form handles one plan for many states, or many plans for one state.
    gains = (clusters, (*nodes, K + 1), (E, N, N))
    expected = (*gains, *(blocks.shape,) * 3, nodes, (E,))
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


def _opened(parameters: Parameters, allocation: Allocation, counted: Array | None) -> FloatArray:
    """Rows of :data:`~collapipe_env.kernels.plain_round.OPENED` of a plan (rows, E, N)."""
    own = parameters.costs.local_steps
    if allocation.recompute is allocation.local_steps is allocation.participates is None:
        return _CLOSED
    other: Array = np.zeros(allocation.micro_batches.shape)
    if allocation.recompute is not None:
        chosen = np.asarray(allocation.recompute)
        other = (chosen >= 0) & ((chosen > 0) != parameters.costs.training_memory.recompute)
    if allocation.local_steps is allocation.participates is None:
        return _real(other[None])
    steps = whole_steps(allocation, own)
    absent = np.full(other.shape, -1.0)
    if counted is not None:
        absent = np.where(players(allocation), -1.0, counted)
    return _real(np.stack((other, steps, absent)))


def _real(array: Array) -> FloatArray:
    return loop_array(array, np.float64)


def _whole(array: Array) -> IntArray:
    return loop_array(array, np.int64)
