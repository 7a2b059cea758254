"""The segment problem of one cluster in a round: what blocks and hops cost at given powers and share.

Times are those of the whole mini-batch: with ``M`` micro-batches every element's ``1 / M`` adds to the
delay, and ``1 - 1 / M`` of the slowest one.
"""

from __future__ import annotations

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.arrays import FloatArray
from collapipe_env.compiled import compiled_inner
from collapipe_env.physics.cluster_times import cluster_times
from collapipe_env.physics.parameters import Parameters

from .round_input import ClusterTerms, RoundInput
from .segment_dp import SegmentProblem


@compiled_inner
def segment_problem(
    n: int, power: FloatArray, terms: ClusterTerms, inputs: RoundInput, parameters: Parameters
) -> SegmentProblem:
    """Price a cluster's plans at given powers, share and interference.

    Args:
        n: The cluster.
        power: Powers of the CU and the devices (K+1,) [W].
        terms: What the rest of the plan leaves it; its interference has no price here.
        inputs: The environment.
        parameters: The scenario.

    Returns:
        A problem whose objective is ``w_n T_n + C_n`` without the terms that no plan changes.
    """
    delay_weight, noise_w = terms.delay_weight, terms.noise_w
    times = cluster_times(
        parameters,
        inputs.speed[n],
        inputs.cap[n],
        inputs.gain[n],
        inputs.uplink_gain[n],
        power,
        noise_w,
        terms.share,
    )
    devices = inputs.cap.shape[1]
    nodes = devices + 1
    fill = delay_weight * parameters.local_steps / inputs.micro_batches[n]
    hop_cost = np.zeros((nodes, nodes))
    for i in range(nodes):
        for j in range(nodes):
            forward, backward = times.hop_forward[i, j], times.hop_backward[i, j]
            if forward == 0.0:
                continue
            snr = inputs.gain[n, i, j] / noise_w
            hop_cost[i, j] = (
                fill * (forward + backward)
                + parameters.local_steps
                * (inputs.price[n, i] * power[i] * forward + inputs.price[n, j] * power[j] * backward)
                + inputs.loss_price[n]
                * parameters.waterfall_threshold
                / snr
                * (1.0 / power[i] + 1.0 / power[j])
            )
    block_cost = np.zeros(devices)
    for k in range(devices):
        if inputs.cap[n, k] > 0:
            block_cost[k] = (
                fill * (times.block_forward[k] + times.block_backward[k])
                + inputs.block_price[n, k]
                + inputs.price[n, k + 1] * power[k + 1] * times.block_collect[k]
            )
    return SegmentProblem(
        parameters.blocks,
        inputs.cap[n],
        times,
        block_cost,
        hop_cost,
        delay_weight * parameters.local_steps - fill,
        delay_weight,
    )
