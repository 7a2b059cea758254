"""The numbers of graph observations: each formula once, for arrays of any library and for compiled loops.

The columns of an array stand in the order of its table in :mod:`collapipe_env.envs.graph_features`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, BoolArray, FloatArray, IntArray, at_least, at_most, log, log1p
from collapipe_env.ground.compiled import compiled, compiled_inner, jitable
from collapipe_env.physics.delay import message_time, stage_time
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.rates import full_band_rate, link_rate, uplink_snr
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD

LOG_BOUND = 80.0
"""Bound of every logarithm, upwards and downwards: a factor of 5e34, which single precision can still
hold."""
LEAST_SECONDS = 1e-4
"""Added to times that may be zero before their logarithm [s]."""
PASSES = 1.0 + BACKWARD_OVER_FORWARD
"""Work of a forward and a backward pass, in forward passes."""

Single = npt.NDArray[np.float32]


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
    server_share: FloatArray
    previous_blocks: IntArray


@jitable
def held(logarithm: Array) -> Array:
    """Return logarithms within their bounds."""
    return at_least(at_most(logarithm, LOG_BOUND), -LOG_BOUND)


@jitable
def reference_w(p: Numbers) -> float:
    """Transmit power that radio features assume, the geometric mean of the limits [W]."""
    return math.sqrt(p.power_min_w * p.power_max_w)


@jitable
def hop_bits(p: Numbers) -> float:
    """Bits of a hop in a round [bit]."""
    return p.local_steps * p.batch_size * (p.activation_bits + p.gradient_bits)


@jitable
def over_noise(gain: Array, p: Numbers) -> Array:
    """Signal over the noise of a device-to-device channel, without interference, at the reference power."""
    return reference_w(p) / (p.noise_density * p.d2d_bandwidth_hz) * gain


@jitable
def device_columns(
    p: Numbers,
    speed: Array,
    clock: Array,
    compute_power: Array,
    memory_cap: Array,
    budget: Array,
    backlog: Array,
    previous_blocks: Array,
) -> tuple[Array, ...]:
    """Features of devices from the arrays of a state, real numbers (..., N, K) or numbers."""
    H, B, radio, extra = p.local_steps, p.batch_size, p.radio_power, p.overheads
    passes = 1.0 + p.backward_over_forward
    block_s = passes * H * stage_time(B, 1.0, p.block_forward_flops, speed)
    sender_w = radio_power(reference_w(p), radio.d2d_circuit_w, radio.efficiency)
    return (
        held(log(block_s)),
        held(log(passes * H * extra.block_cycles / clock + LEAST_SECONDS)),
        held(log(H * extra.update_cycles / clock + LEAST_SECONDS)),
        held(log(compute_power * block_s / budget)),
        held(log(sender_w / budget)),
        held(log1p(backlog)),
        at_most(memory_cap, p.blocks),
        previous_blocks,
    )


@jitable
def cu_columns(
    p: Numbers, gain: Array, heard: Array, budget: Array, backlog: Array, server_share: Array
) -> tuple[Array, ...]:
    """Features of control units from the arrays of a state (..., N), or from numbers.

    Args:
        gain: Of the uplink.
        heard: Sum of the gains from all other clusters.
        budget: Energy budget [J].
        backlog: Energy queue [budgets].
        server_share: Share of the server that other tenants leave, of a shape that fits the others.
    """
    H, B, radio = p.local_steps, p.batch_size, p.radio_power
    power, share = reference_w(p), 1.0 / p.clusters
    up_snr = uplink_snr(share, power, gain, p.uplink_noise_w)
    up = link_rate(p.link, share * p.uplink_bandwidth_hz, up_snr)
    down = share * full_band_rate(p.link, p.bs_power_w, gain, p.downlink_noise_w, p.downlink_bandwidth_hz)
    server_s = PASSES * H * B * p.server_seconds / server_share
    return (
        held(log(p.update_bits / up)),
        held(log(H * message_time(B * p.activation_bits, up))),
        held(log(H * message_time(B * p.gradient_bits, down))),
        held(log(up_snr)),
        held(log(radio_power(power, radio.edge_circuit_w, radio.efficiency) / budget)),
        held(log1p(backlog)),
        held(log1p(over_noise(heard, p))),
        held(log(server_s + LEAST_SECONDS)),
    )


@jitable
def hop_columns(p: Numbers, snr: Array) -> tuple[Array, ...]:
    """Features of hops from their signal to noise ratios, arrays or numbers."""
    rate = link_rate(p.link, p.d2d_bandwidth_hz, snr)
    return held(log(hop_bits(p) / (p.sharing.duty * rate))), held(log(snr))


@compiled_inner
def write_row(
    e: int,
    p: Numbers,
    system: GraphSystem,
    cu: Single,
    device: Single,
    hop: Single,
    between: Single,
    present: Single,
) -> None:
    """Write one environment's observation.

    Args:
        e: The environment.
        system: All environments.
        cu: Receives features of control units (N, 8).
        device: Receives features of devices (N, K, 8).
        hop: Receives features of hops (N, K+1, K+1, 2).
        between: Receives features of two clusters (N, N, 1).
        present: Receives 1 where a device is present (N, K).
    """
    N, K = present.shape
    for n in range(N):
        heard = 0.0
        for m in range(N):
            gain = system.cross_gain[e, m, n]
            heard += gain
            between[m, n, 0] = held(log1p(over_noise(gain, p)))
        columns = cu_columns(
            p,
            system.uplink_gain[e, n],
            heard,
            system.budget[e, n, 0],
            system.backlog[e, n, 0],
            system.server_share[e],
        )
        for i in range(len(columns)):
            cu[n, i] = columns[i]
        for k in range(K):
            here = system.present[e, n, k]
            present[n, k] = 1.0 if here else 0.0
            if not here:
                for i in range(device.shape[2]):
                    device[n, k, i] = 0.0
                continue
            features = device_columns(
                p,
                system.speed[e, n, k],
                system.clock[e, n, k],
                system.compute_power[e, n, k],
                float(system.memory_cap[e, n, k]),
                system.budget[e, n, k + 1],
                system.backlog[e, n, k + 1],
                float(system.previous_blocks[e, n, k]) if len(system.previous_blocks) else 0.0,
            )
            for i in range(len(features)):
                device[n, k, i] = features[i]
        for i in range(K + 1):
            for c in range(hop.shape[3]):
                hop[n, i, i, c] = 0.0
            for j in range(i):
                # The same both ways: gains are symmetric, and all nodes send with the reference power.
                there = system.present[e, n, i - 1] and (j == 0 or system.present[e, n, j - 1])
                found = hop_columns(p, over_noise(system.d2d_gain[e, n, i, j], p)) if there else (0.0, 0.0)
                for c in range(len(found)):
                    hop[n, i, j, c] = hop[n, j, i, c] = found[c]


@compiled
def graph_rows(
    p: Numbers,
    system: GraphSystem,
    cu: Single,
    device: Single,
    hop: Single,
    between: Single,
    present: Single,
) -> None:
    """Write the observations of all environments; arguments as for :func:`write_row`, with a leading E."""
    for e in range(len(cu)):
        write_row(e, p, system, cu[e], device[e], hop[e], between[e], present[e])
