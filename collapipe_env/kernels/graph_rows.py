"""Graph observations, row by row: :class:`~collapipe_env.envs.graph_observation.GraphObserver` in loops."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner, inlined
from collapipe_env.physics.delay import message_time, stage_time
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import downlink_rate, shannon_rate, uplink_rate, usable_snr

LOG_BOUND = 80.0
"""Bound of every logarithm, upwards and downwards: a factor of 5e34, which single precision can still
hold."""


class GraphScales(NamedTuple):
    """Numbers of the observer that the scenario's parameters do not contain.

    Attributes:
        reference_w: Transmit power that radio features assume [W].
        passes: Cost of a forward and a backward pass together, in forward passes.
        hop_bits: Bits of a hop in a round [bit].
        least_s: Time added to times that may be zero [s].
    """

    reference_w: float
    passes: float
    hop_bits: float
    least_s: float


class GraphSystem(NamedTuple):
    """Arrays (E, ...) that are observed, as :class:`~collapipe_env.simulator.state.SystemState` names them.

    ``previous_blocks`` are the blocks that devices held in the round before; of shape (0, 0, 0) where a
    change of holders costs nothing.
    """

    uplink_gain: FloatArray
    d2d_gain: FloatArray
    cross_gain: FloatArray
    speed: FloatArray
    clock: FloatArray
    compute_power: FloatArray
    memory_cap: IntArray
    present: BoolArray
    budget: FloatArray
    backlog: FloatArray
    previous_blocks: IntArray
    server_share: FloatArray


@inlined
def held(logarithm: float) -> float:
    """Return a logarithm within its bounds."""
    return min(max(logarithm, -LOG_BOUND), LOG_BOUND)


@compiled_inner
def write_row(
    e: int,
    scales: GraphScales,
    parameters: Numbers,
    system: GraphSystem,
    cu: npt.NDArray[np.float32],
    device: npt.NDArray[np.float32],
    hop: npt.NDArray[np.float32],
    between: npt.NDArray[np.float32],
    present: npt.NDArray[np.float32],
) -> None:
    """Write one environment's observation.

    Args:
        e: The environment.
        scales: Numbers of the observer.
        system: All environments.
        cu: Receives features of control units (N, 8).
        device: Receives features of devices (N, K, 8).
        hop: Receives features of hops (N, K+1, K+1, 2).
        between: Receives features of two clusters (N, N, 1).
        present: Receives 1 where a device is present (N, K).
    """
    N, K = present.shape
    H, B, p = parameters.local_steps, parameters.batch_size, scales.reference_w
    noise = parameters.noise_density * parameters.d2d_bandwidth_hz
    radio, extra = parameters.radio_power, parameters.overheads
    sender = radio_power(p, radio.d2d_circuit_w, radio.efficiency)
    uplink_sender = radio_power(p, radio.edge_circuit_w, radio.efficiency)
    share = 1.0 / parameters.clusters
    server_s = scales.passes * H * B * parameters.server_seconds / system.server_share[e]
    server = held(math.log(server_s + scales.least_s))
    log_bits = math.log(scales.hop_bits)
    passes = 1.0 + parameters.backward_over_forward
    for n in range(N):
        gain = system.uplink_gain[e, n]
        rate = uplink_rate(share, p, gain, parameters.uplink_noise_w, parameters.uplink_bandwidth_hz)
        down = downlink_rate(
            share, parameters.bs_power_w, gain, parameters.downlink_noise_w, parameters.downlink_bandwidth_hz
        )
        heard = 0.0
        for m in range(N):
            gain_between = system.cross_gain[e, m, n]
            heard += gain_between
            between[m, n, 0] = held(math.log1p(gain_between * p / noise))
        cu[n, 0] = held(math.log(parameters.update_bits / rate))
        cu[n, 1] = held(math.log(H * message_time(B * parameters.activation_bits, rate)))
        cu[n, 2] = held(math.log(H * message_time(B * parameters.gradient_bits, down)))
        cu[n, 3] = held(math.log(p * parameters.clusters / parameters.uplink_noise_w * gain))
        cu[n, 4] = held(math.log(uplink_sender / system.budget[e, n, 0]))
        cu[n, 5] = held(math.log1p(system.backlog[e, n, 0]))
        cu[n, 6] = held(math.log1p(heard * p / noise))
        cu[n, 7] = server
        for k in range(K):
            here = system.present[e, n, k]
            present[n, k] = 1.0 if here else 0.0
            if not here:
                for i in range(device.shape[2]):
                    device[n, k, i] = 0.0
                continue
            speed, clock = system.speed[e, n, k], system.clock[e, n, k]
            block = passes * H * stage_time(B, 1.0, parameters.block_forward_flops, speed)
            budget = system.budget[e, n, k + 1]
            device[n, k, 0] = held(math.log(block))
            device[n, k, 1] = held(math.log(passes * H * extra.block_cycles / clock + scales.least_s))
            device[n, k, 2] = held(math.log(H * extra.update_cycles / clock + scales.least_s))
            device[n, k, 3] = held(math.log(system.compute_power[e, n, k] * block / budget))
            device[n, k, 4] = held(math.log(sender / budget))
            device[n, k, 5] = held(math.log1p(system.backlog[e, n, k + 1]))
            device[n, k, 6] = min(system.memory_cap[e, n, k], parameters.blocks)
            device[n, k, 7] = system.previous_blocks[e, n, k] if len(system.previous_blocks) else 0
        for i in range(K + 1):
            hop[n, i, i, 0] = hop[n, i, i, 1] = 0.0
            for j in range(i):
                # The same both ways: gains are symmetric, and all nodes send with the reference power.
                if not system.present[e, n, i - 1] or (j > 0 and not system.present[e, n, j - 1]):
                    seconds, level = 0.0, 0.0
                else:
                    snr = p / noise * system.d2d_gain[e, n, i, j]
                    usable = usable_snr(snr, parameters.d2d_snr_cap)
                    seconds = held(log_bits - math.log(shannon_rate(usable, parameters.d2d_bandwidth_hz)))
                    level = held(math.log(snr))
                hop[n, i, j, 0] = hop[n, j, i, 0] = seconds
                hop[n, i, j, 1] = hop[n, j, i, 1] = level


@compiled
def graph_rows(
    scales: GraphScales,
    parameters: Numbers,
    system: GraphSystem,
    cu: npt.NDArray[np.float32],
    device: npt.NDArray[np.float32],
    hop: npt.NDArray[np.float32],
    between: npt.NDArray[np.float32],
    present: npt.NDArray[np.float32],
) -> None:
    """Write the observations of all environments; arguments as for :func:`write_row`, with a leading E."""
    for e in range(len(cu)):
        write_row(e, scales, parameters, system, cu[e], device[e], hop[e], between[e], present[e])
