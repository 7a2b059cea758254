"""Times of one cluster in a round: of blocks on devices, hops, uplink and server ([R]).

Schedulers that compare many plans need all of these times, not only those of one plan. They are the same for
every plan with the same powers, interference and share of the uplink. They refer to a whole mini-batch in
``M`` micro-batches; one micro-batch takes ``1 / M`` of each. Overheads count ``M`` times; with ``M = 0`` they
are left out, for callers that add them themselves.

Each number is that of :mod:`.cluster_chain`, which walks the chain of one plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner
from collapipe_env.kernels.cluster_chain import (
    SUMMARY,
    System,
    backward_ratio,
    block_pass,
    edge_times,
    link_of,
    message_overhead,
    message_seconds,
    price_edge,
    server_pass,
    usual_repeats,
)
from collapipe_env.physics.delay import message_time, stage_time
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.rates import link_rate
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
        upload: The cluster's update, without repeats.
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
    upload: float
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
    system: System,
    n: int,
    cap: IntArray,
    power: FloatArray,
    noise_w: float,
    share: float,
    M: float,
    setting: int,
    kept: float,
) -> ClusterTimes:
    """Times of a cluster at given powers, interference and share of the uplink.

    Args:
        system: One environment.
        n: The cluster.
        cap: Blocks that each device can hold (K,), 0 for those that take no part.
        power: Powers of the CU and the devices (K+1,) [W].
        noise_w: Noise plus interference of the device-to-device links [W].
        share: ``beta``, in (0, 1].
        M: Micro-batches, the number of times that overheads count; 0 leaves them out.
        setting: Setting of recomputation (:func:`~.cluster_chain.backward_ratio`).
        kept: Encoder blocks that the server runs for the cluster.
    """
    devices, extra, B, duty = cap.shape[0], c.overheads, c.batch_size, c.sharing.duty
    nodes, usual = devices + 1, usual_repeats(c)
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
            snr = power[i] * system.d2d_gain[n, i, j] / noise_w
            rate = link_rate(c.link, c.d2d_bandwidth_hz, snr)
            bit, _ = link_of(c, snr, rate, usual)
            link_bit[i, j] = 1.0 / rate
            over_forward[i, j] = over_backward[j, i] = message_overhead(c, bit) / duty
            hop_forward[i, j] = message_seconds(c, bit, c.activation_bits, M) / duty
            hop_backward[j, i] = message_seconds(c, bit, c.gradient_bits, M) / duty
            if j == 0:
                collect[i - 1] = message_time(c.block_payload_bits, rate)
    for k in range(devices):
        speed, clock = system.speed[n, k], system.clock[n, k]
        launch[k] = cycles_time(1.0, extra.block_cycles, clock)
        update[k] = cycles_time(1.0, extra.update_cycles, clock)
        forward[k] = block_pass(c, 1.0, speed, clock, M)
        backward[k] = backward_ratio(setting, c) * forward[k]
        weight[k] = stage_time(B, 1.0, c.block_weight_flops, speed) + M * launch[k]
    edge = np.empty(SUMMARY)
    price_edge(c, system.uplink_gain[n], power[0], M, kept, edge)
    uplink, upload, downlink, _ = edge_times(c, share, edge)
    server = server_pass(c, kept, system.server_share, M)
    return ClusterTimes(
        forward,
        backward,
        weight,
        collect,
        hop_forward,
        hop_backward,
        link_bit,
        uplink,
        upload,
        downlink,
        server,
        BACKWARD_OVER_FORWARD * server,
        B * c.server_weight_seconds / system.server_share + M * extra.server_s,
        launch,
        update,
        over_forward,
        over_backward,
    )
