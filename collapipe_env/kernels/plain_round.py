"""Costs of plain plans, row by row: one device a stage, GPipe, the decoder alone on the server.

The chain of a plan is walked hop by hop, where :func:`collapipe_env.simulator.costs.round_costs` in its
general form looks at all pairs of nodes. Both use the same formulas (:mod:`collapipe_env.kernels.formulas`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.compiled import compiled, inlined
from collapipe_env.physics.energy import cu_energy, device_energy
from collapipe_env.physics.memory import device_memory
from collapipe_env.physics.radio import (
    d2d_noise,
    downlink_rate,
    expected_transmissions,
    shannon_rate,
    uplink_failure_exponent,
    uplink_rate,
)
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class PlainRoundScalars(NamedTuple):
    """The scalars of :class:`~collapipe_env.simulator.state.SystemParameters` that the loop needs."""

    noise_density: float
    d2d_bandwidth_hz: float
    uplink_noise_w: float
    uplink_bandwidth_hz: float
    downlink_noise_w: float
    downlink_bandwidth_hz: float
    bs_power_w: float
    drop: bool
    repeat: bool
    waterfall_threshold: float
    batch_size: float
    local_steps: float
    block_forward_flops: float
    server_seconds: float
    activation_bits: float
    gradient_bits: float
    block_payload_bits: float
    update_bits: float
    broadcast_bits: float
    block_state_bytes: float
    activation_bytes: float


class PlainPlan(NamedTuple):
    """A plan's arrays, as :class:`~collapipe_env.allocation.Allocation` names them."""

    blocks: IntArray
    micro_batches: IntArray
    bandwidth: FloatArray
    device_power: FloatArray
    cu_power: FloatArray


class System(NamedTuple):
    """The state's arrays, as :class:`~collapipe_env.simulator.state.SystemState` names them."""

    uplink_gain: FloatArray
    d2d_gain: FloatArray
    cross_gain: FloatArray
    speed: FloatArray
    compute_power: FloatArray
    budget: FloatArray


ROUND_ROWS = 2
"""Delay, broadcast (E,)."""
CLUSTER_ROWS = 11
"""Delay, local step, all-reduce (none), collection, upload, survival, interference, uplink, downlink, server
forward and backward (E, N)."""
NODE_ROWS = 4
"""Energy, energy over budget, hop forward, hop backward (E, N, K+1)."""
DEVICE_ROWS = 3
"""Memory, compute forward, compute backward (E, N, K)."""


@compiled
def plain_round(
    c: PlainRoundScalars,
    system: System,
    plan: PlainPlan,
    rounds: FloatArray,
    clusters: FloatArray,
    nodes: FloatArray,
    devices: FloatArray,
) -> None:
    """Cost plain plans.

    Args:
        c: Scalars of the scenario.
        system: The state (E, ...).
        plan: The plans (E, ...).
        rounds: (ROUND_ROWS, E), written.
        clusters: (CLUSTER_ROWS, E, N), written.
        nodes: (NODE_ROWS, E, N, K+1), written.
        devices: (DEVICE_ROWS, E, N, K), written.
    """
    E, N, K = plan.blocks.shape
    mean_power, forward, backward, work = np.empty(N), np.empty(K + 1), np.empty(K + 1), np.empty(K)
    for e in range(E):
        weakest = math.inf
        for n in range(N):
            weakest = min(weakest, system.uplink_gain[e, n])
            power, active = plan.cu_power[e, n], 1.0
            for k in range(K):
                if plan.blocks[e, n, k] > 0:
                    power += plan.device_power[e, n, k]
                    active += 1.0
            mean_power[n] = power / active
        slowest = 0.0
        for n in range(N):
            interference = 0.0
            for m in range(N):
                interference += system.cross_gain[e, m, n] * mean_power[m]
            clusters[6, e, n] = interference
            _cluster(c, system, plan, e, n, clusters, nodes, devices, forward, backward, work)
            slowest = max(slowest, clusters[0, e, n])
        broadcast = c.broadcast_bits / shannon_rate(
            (c.bs_power_w / c.downlink_noise_w) * weakest, c.downlink_bandwidth_hz
        )
        rounds[0, e] = slowest + broadcast
        rounds[1, e] = broadcast


@inlined
def _cluster(
    c: PlainRoundScalars,
    system: System,
    plan: PlainPlan,
    e: int,
    n: int,
    clusters: FloatArray,
    nodes: FloatArray,
    devices: FloatArray,
    forward: FloatArray,
    backward: FloatArray,
    work: FloatArray,
) -> None:
    """Cost one cluster's plan, whose interference is known; the last three arrays are to work in."""
    K = plan.blocks.shape[2]
    M = float(plan.micro_batches[e, n])
    samples = c.batch_size / M
    passes = c.local_steps * M
    noise = d2d_noise(c.noise_density, c.d2d_bandwidth_hz, clusters[6, e, n])
    uplink_gain, beta, cu_power = system.uplink_gain[e, n], plan.bandwidth[e, n], plan.cu_power[e, n]
    gain = system.d2d_gain
    cu_over_noise = cu_power / noise
    hop_power = cu_over_noise
    to_cu = 0.0
    forward[0] = backward[0] = 0.0

    # The chain, hop by hop: from the CU (node 0) over the devices that hold blocks back to the CU.
    previous, exponent, collect = 0, 0.0, 0.0
    longest_forward = longest_backward = sum_forward = sum_backward = 0.0
    for k in range(K):
        node = k + 1
        blocks = plan.blocks[e, n, k]
        devices[0, e, n, k] = device_memory(blocks, c.batch_size, c.block_state_bytes, c.activation_bytes)
        forward[node] = backward[node] = 0.0
        if blocks == 0:
            work[k] = nodes[0, e, n, node] = nodes[1, e, n, node] = 0.0
            continue
        own = plan.device_power[e, n, k] / noise
        snr = hop_power * gain[e, n, previous, node]
        ahead, failed_ahead = _hop(c, snr, shannon_rate(snr, c.d2d_bandwidth_hz))
        to_cu = shannon_rate(own * gain[e, n, node, 0], c.d2d_bandwidth_hz)
        snr = own * gain[e, n, node, previous]
        # The first device's gradients go to the CU, as its segment does after the round.
        back, failed_back = _hop(c, snr, to_cu if previous == 0 else shannon_rate(snr, c.d2d_bandwidth_hz))
        forward[previous] += ahead * samples * c.activation_bits
        backward[node] += back * samples * c.gradient_bits
        exponent += failed_ahead + failed_back
        work[k] = samples * blocks * c.block_forward_flops / system.speed[e, n, k]
        sum_forward += work[k]
        longest_forward = max(longest_forward, work[k])
        collection = blocks * c.block_payload_bits / to_cu
        collect = max(collect, collection)
        # Airtime that belongs to the collection; the hops' is added when the chain is complete.
        nodes[0, e, n, node] = collection
        previous, hop_power = node, own
    ahead, failed_ahead = _hop(c, hop_power * gain[e, n, previous, 0], to_cu)
    snr = cu_over_noise * gain[e, n, 0, previous]
    back, failed_back = _hop(c, snr, shannon_rate(snr, c.d2d_bandwidth_hz))
    forward[previous] += ahead * samples * c.activation_bits
    backward[0] += back * samples * c.gradient_bits
    exponent += failed_ahead + failed_back

    rate = uplink_rate(beta, cu_power, uplink_gain, c.uplink_noise_w, c.uplink_bandwidth_hz)
    failed = uplink_failure_exponent(beta, cu_power, uplink_gain, c.uplink_noise_w, c.waterfall_threshold)
    uplink = samples * c.activation_bits / rate
    if c.repeat:
        uplink = uplink * expected_transmissions(failed)
    downlink = (
        samples
        * c.gradient_bits
        / downlink_rate(beta, c.bs_power_w, uplink_gain, c.downlink_noise_w, c.downlink_bandwidth_hz)
    )
    server_forward = samples * c.server_seconds
    server_backward = BACKWARD_OVER_FORWARD * server_forward
    sum_backward = BACKWARD_OVER_FORWARD * sum_forward + downlink + server_backward
    longest_backward = max(BACKWARD_OVER_FORWARD * longest_forward, downlink, server_backward)
    sum_forward += uplink + server_forward
    longest_forward = max(longest_forward, uplink, server_forward)
    for node in range(K + 1):
        sum_forward += forward[node]
        sum_backward += backward[node]
        longest_forward = max(longest_forward, forward[node])
        longest_backward = max(longest_backward, backward[node])
    # Exact for GPipe: all forwards, a flush, all backwards (`system_model.md` section 4).
    step = sum_forward + sum_backward + (M - 1.0) * (longest_forward + longest_backward)
    upload = c.update_bits / rate

    for node in range(K + 1):
        nodes[2, e, n, node] = forward[node]
        nodes[3, e, n, node] = backward[node]
    for k in range(K):
        devices[1, e, n, k] = work[k]
        devices[2, e, n, k] = BACKWARD_OVER_FORWARD * work[k]
        if plan.blocks[e, n, k] > 0:
            compute_time = (1.0 + BACKWARD_OVER_FORWARD) * passes * work[k]
            airtime = passes * (forward[k + 1] + backward[k + 1]) + nodes[0, e, n, k + 1]
            joules = device_energy(
                system.compute_power[e, n, k], compute_time, plan.device_power[e, n, k], airtime
            )
            nodes[0, e, n, k + 1] = joules
            nodes[1, e, n, k + 1] = joules / system.budget[e, n, k + 1]
    joules = cu_energy(cu_power, passes * (forward[0] + backward[0]) + passes * uplink + upload)
    nodes[0, e, n, 0] = joules
    nodes[1, e, n, 0] = joules / system.budget[e, n, 0]
    clusters[0, e, n] = c.local_steps * step + collect + upload
    clusters[1, e, n] = step
    clusters[2, e, n] = 0.0
    clusters[3, e, n] = collect
    clusters[4, e, n] = upload
    clusters[5, e, n] = math.exp(-(exponent + failed)) if c.drop else 1.0
    clusters[7, e, n] = uplink
    clusters[8, e, n] = downlink
    clusters[9, e, n] = server_forward
    clusters[10, e, n] = server_backward


@inlined
def _hop(c: PlainRoundScalars, snr: float, rate: float) -> tuple[float, float]:
    """Seconds per bit of a device-to-device link, repeats included, and its failure exponent."""
    exponent = c.waterfall_threshold / snr
    seconds = 1.0 / rate
    if c.repeat:
        seconds = seconds * expected_transmissions(exponent)
    return seconds, exponent
