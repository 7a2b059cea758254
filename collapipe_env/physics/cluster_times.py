"""Times of one cluster in a round: of each block on each device, each hop, the uplink and the server ([R]).

Schedulers that compare many plans need all of these times, not only those of one plan. They are the same for
every plan with the same powers, interference and share of the uplink. They refer to a whole mini-batch in
``M`` micro-batches; one micro-batch takes ``1 / M`` of each. Overheads count ``M`` times; with ``M = 0`` they
are left out, for callers that add them themselves.

Only compiled functions may call :func:`cluster_times`; they import :mod:`collapipe_env.kernels.formulas`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner
from collapipe_env.physics.delay import hop_time, message_time, stage_time
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import (
    d2d_rate,
    downlink_rate,
    expected_transmissions,
    failure_exponent,
    seconds_per_bit,
    uplink_failure_exponent,
    uplink_rate,
)
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD


class ClusterTimes(NamedTuple):
    """Times of one cluster for a whole mini-batch [s]; node 0 is the CU, node k + 1 device k.

    Hops and collections of devices that take no part are zero, as are hops from a node to itself.

    Attributes:
        block_forward: One block's forward pass on each device (K,).
        block_backward: Its backward pass, weight gradients included (K,).
        block_weight: Its weight gradients alone (K,).
        block_collect: One block's parameters from each device to the CU (K,).
        hop_forward: Activations on the hop from node i to node j, sent by i, repeats included (K+1, K+1).
        hop_backward: Gradients of the hop from node i to node j, sent by j (K+1, K+1).
        link_bit: One bit from node i to node j, without repeats (K+1, K+1).
        uplink: Activations from the CU to the base station, repeats included.
        downlink: Gradients back to the CU.
        server_forward: The server's forward pass.
        server_backward: Its backward pass, weight gradients included.
        server_weight: Its weight gradients alone.
        block_launch: Overhead of one block's forward pass, for each micro-batch (K,); twice that backward.
        block_update: One block's update, once in a local step (K,).
        hop_overhead_forward: Overhead of each message on the hop from node i to node j (K+1, K+1).
        hop_overhead_backward: The same for the gradients of that hop, sent by j (K+1, K+1).
    """

    block_forward: FloatArray
    block_backward: FloatArray
    block_weight: FloatArray
    block_collect: FloatArray
    hop_forward: FloatArray
    hop_backward: FloatArray
    link_bit: FloatArray
    uplink: float
    downlink: float
    server_forward: float
    server_backward: float
    server_weight: float
    block_launch: FloatArray
    block_update: FloatArray
    hop_overhead_forward: FloatArray
    hop_overhead_backward: FloatArray


@compiled_inner
def cluster_times(
    c: Numbers,
    speed: FloatArray,
    clock: FloatArray,
    cap: IntArray,
    gain: FloatArray,
    uplink_gain: float,
    power: FloatArray,
    noise_w: float,
    share: float,
    micro_batches: float,
    server_share: float,
) -> ClusterTimes:
    """Times of a cluster at given powers, interference and share of the uplink.

    Args:
        speed: ``v`` (K,) [FLOP/s].
        clock: ``f`` (K,) [Hz].
        cap: Blocks that each device can hold (K,), 0 for those that take no part.
        gain: ``G`` between nodes (K+1, K+1).
        uplink_gain: ``h``.
        power: Powers of the CU and the devices (K+1,) [W].
        noise_w: Noise plus interference of the device-to-device links [W].
        share: ``beta``, in (0, 1].
        micro_batches: ``M``, the number of times that overheads count; 0 leaves them out.
        server_share: Share of the server that other tenants leave, in (0, 1].
    """
    devices, M, extra = speed.shape[0], micro_batches, c.overheads
    nodes, B = devices + 1, c.batch_size
    forward, backward, weight = np.zeros(devices), np.zeros(devices), np.zeros(devices)
    collect, link_bit = np.zeros(devices), np.zeros((nodes, nodes))
    hop_forward, hop_backward = np.zeros((nodes, nodes)), np.zeros((nodes, nodes))
    over_forward, over_backward = np.zeros((nodes, nodes)), np.zeros((nodes, nodes))
    launch, update = np.zeros(devices), np.zeros(devices)
    for i in range(nodes):
        if i > 0 and cap[i - 1] == 0:
            continue
        for j in range(nodes):
            if i == j or (j > 0 and cap[j - 1] == 0):
                continue
            snr = power[i] * gain[i, j] / noise_w
            rate = d2d_rate(c, snr)
            bit = seconds_per_bit(rate, failure_exponent(snr, c.waterfall_threshold), c.transmissions)
            link_bit[i, j] = 1.0 / rate
            message = extra.message_s + extra.header_bits * bit
            over_forward[i, j] = over_backward[j, i] = message
            hop_forward[i, j] = hop_time(bit * B, c.activation_bits) + M * message
            hop_backward[j, i] = hop_time(bit * B, c.gradient_bits) + M * message
            if j == 0:
                collect[i - 1] = message_time(c.block_payload_bits, rate)
    for k in range(devices):
        launch[k] = cycles_time(1.0, extra.block_cycles, clock[k])
        update[k] = cycles_time(1.0, extra.update_cycles, clock[k])
        forward[k] = stage_time(B, 1.0, c.block_forward_flops, speed[k]) + M * launch[k]
        backward[k] = c.backward_over_forward * forward[k]
        weight[k] = stage_time(B, 1.0, c.block_weight_flops, speed[k]) + M * launch[k]
    rate = uplink_rate(share, power[0], uplink_gain, c.uplink_noise_w, c.uplink_bandwidth_hz)
    uplink = message_time(B * c.activation_bits, rate)
    if c.transmissions > 1.0:
        uplink *= expected_transmissions(
            uplink_failure_exponent(share, power[0], uplink_gain, c.uplink_noise_w, c.waterfall_threshold),
            c.transmissions,
        )
    uplink += M * extra.edge_message_s
    down = downlink_rate(share, c.bs_power_w, uplink_gain, c.downlink_noise_w, c.downlink_bandwidth_hz)
    server = B * c.server_seconds / server_share + M * extra.server_s
    return ClusterTimes(
        forward,
        backward,
        weight,
        collect,
        hop_forward,
        hop_backward,
        link_bit,
        uplink,
        message_time(B * c.gradient_bits, down) + M * extra.edge_message_s,
        server,
        BACKWARD_OVER_FORWARD * server,
        B * c.server_weight_seconds / server_share + M * extra.server_s,
        launch,
        update,
        over_forward,
        over_backward,
    )
