"""The compiled way to the costs of a round, for batches of plain plans in NumPy arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import Array
from collapipe_env.kernels.plain_round import (
    CLUSTER_ROWS,
    DEVICE_ROWS,
    NODE_ROWS,
    ROUND_ROWS,
    PlainPlan,
    PlainRoundScalars,
    System,
    plain_round,
)
from collapipe_env.simulator.state import SystemParameters, SystemState


class PlainCosts(NamedTuple):
    """What the compiled loop writes, in the rows that :mod:`collapipe_env.kernels.plain_round` names."""

    rounds: npt.NDArray[np.float64]
    clusters: npt.NDArray[np.float64]
    nodes: npt.NDArray[np.float64]
    devices: npt.NDArray[np.float64]


def plain_round_scalars(parameters: SystemParameters) -> PlainRoundScalars:
    """What the compiled loop needs of a scenario's parameters."""
    costs = parameters.costs
    N = parameters.clusters
    return PlainRoundScalars(
        noise_density=parameters.noise_density,
        d2d_bandwidth_hz=parameters.d2d_bandwidth_hz,
        uplink_noise_w=parameters.uplink_noise_w,
        uplink_bandwidth_hz=parameters.uplink_bandwidth_hz,
        downlink_noise_w=parameters.downlink_noise_w,
        downlink_bandwidth_hz=parameters.downlink_bandwidth_hz,
        bs_power_w=parameters.bs_power_w,
        drop=parameters.link_errors == "drop",
        repeat=parameters.link_errors == "arq",
        waterfall_threshold=parameters.waterfall_threshold,
        batch_size=float(costs.batch_size),
        local_steps=float(costs.local_steps),
        block_forward_flops=costs.block_forward_flops,
        server_seconds=costs.decoder_forward_flops / (parameters.server_flops / N),
        activation_bits=costs.activation_bits,
        gradient_bits=costs.gradient_bits,
        block_payload_bits=costs.block_payload_bits,
        update_bits=costs.update_payload_bits,
        broadcast_bits=costs.embedding_broadcast_bits(N) + costs.blocks * costs.block_broadcast_bits(N),
        block_state_bytes=costs.block_state_bytes,
        activation_bytes=costs.stored_activation_bytes,
    )


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
    costs = PlainCosts(
        rounds=np.empty((ROUND_ROWS, E)),
        clusters=np.empty((CLUSTER_ROWS, E, N)),
        nodes=np.empty((NODE_ROWS, E, N, K + 1)),
        devices=np.empty((DEVICE_ROWS, E, N, K)),
    )
    plain_round(parameters.plain_round_scalars, system, plan, *costs)
    return costs


def _real(array: Array) -> npt.NDArray[np.float64]:
    return np.ascontiguousarray(array, dtype=np.float64)


def _whole(array: Array) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(array, dtype=np.int64)
