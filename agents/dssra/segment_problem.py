"""The segment problem of one cluster in a round: what blocks and hops cost at given powers and share.

Times are those of the whole mini-batch (see ``cluster_costs``): with ``M`` micro-batches every element's
``1 / M`` adds to the delay, and ``1 - 1 / M`` of the slowest one.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from collapipe_env.compiled import compiled_inner

from .cluster_costs import LN2, packet_seconds_per_bit, uplink_seconds
from .round_input import RoundConstants, RoundInput
from .segment_dp import SegmentProblem

FloatArray = npt.NDArray[np.float64]


@compiled_inner
def segment_problem(
    n: int,
    power: FloatArray,
    noise_w: float,
    share: float,
    delay_weight: float,
    inputs: RoundInput,
    constants: RoundConstants,
) -> SegmentProblem:
    """Price a cluster's plans at given powers, share and interference.

    Args:
        n: The cluster.
        power: Powers of the CU and the devices (K+1,) [W].
        noise_w: Noise plus interference of the device-to-device links [W].
        share: ``beta_n``.
        delay_weight: ``w_n`` [1/s].
        inputs: The environment.
        constants: The scenario.

    Returns:
        A problem whose objective is ``w_n T_n + C_n`` without the terms that no plan changes.
    """
    devices = inputs.cap.shape[1]
    nodes = devices + 1
    ratio = constants.backward_over_forward
    fill = delay_weight * constants.steps / inputs.micro_batches[n]
    hop_cost = np.zeros((nodes, nodes))
    hop_forward = np.zeros((nodes, nodes))
    hop_backward = np.zeros((nodes, nodes))
    for i in range(nodes):
        if i > 0 and inputs.cap[n, i - 1] == 0:
            continue
        for j in range(nodes):
            if i == j or (j > 0 and (inputs.cap[n, j - 1] == 0 or j < i)):
                continue
            snr = inputs.gain[n, i, j] / noise_w
            forward = constants.activation_bits * packet_seconds_per_bit(power[i] * snr, constants)
            backward = constants.gradient_bits * packet_seconds_per_bit(power[j] * snr, constants)
            hop_forward[i, j], hop_backward[i, j] = forward, backward
            hop_cost[i, j] = (
                fill * (forward + backward)
                + constants.steps
                * (inputs.price[n, i] * power[i] * forward + inputs.price[n, j] * power[j] * backward)
                + inputs.loss_price[n] * constants.waterfall / snr * (1.0 / power[i] + 1.0 / power[j])
            )
    block_collect = np.zeros(devices)
    block_cost = np.zeros(devices)
    for k in range(devices):
        if inputs.cap[n, k] == 0:
            continue
        snr = power[k + 1] * inputs.gain[n, k + 1, 0] / noise_w
        block_collect[k] = constants.collect_bits * LN2 / (constants.d2d_hz * math.log1p(snr))
        block_cost[k] = (
            fill * (1.0 + ratio) * inputs.block_s[n, k]
            + inputs.block_price[n, k]
            + inputs.price[n, k + 1] * power[k + 1] * block_collect[k]
        )
    uplink = uplink_seconds(share, power[0] * inputs.uplink_gain[n] / constants.uplink_noise_w, constants)[0]
    downlink = constants.gradient_bits / (share * inputs.downlink_rate[n])
    return SegmentProblem(
        constants.blocks,
        inputs.cap[n],
        block_cost,
        inputs.block_s[n],
        ratio * inputs.block_s[n],
        block_collect,
        hop_cost,
        hop_forward,
        hop_backward,
        max(uplink, constants.server_s),
        max(downlink, ratio * constants.server_s),
        delay_weight * constants.steps - fill,
        delay_weight,
    )
