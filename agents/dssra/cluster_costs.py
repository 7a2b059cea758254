"""One cluster's round in scalars: the physics of ``round_costs`` for compiled search loops.

Times are those of the whole mini-batch: with ``M`` micro-batches an element lasts ``1 / M`` of them, so
that a local step is :func:`~collapipe_env.physics.delay.gpipe_step` of them over ``M``, and energies do not
depend on ``M``. Only plans with one device in a stage are covered. The tests hold all this against
``round_costs``.
"""

from __future__ import annotations

import math

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled_leaf, inlined
from collapipe_env.physics.delay import (
    cluster_delay,
    collection_time,
    edge_time,
    gpipe_step,
    hop_time,
    stage_time,
    upload_time,
)
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.radio import (
    expected_transmissions,
    failure_exponent,
    seconds_per_bit,
    shannon_rate,
)
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD

from .round_input import RoundInput

LN2 = math.log(2.0)

# Columns of a cluster's summary, from which its delay and cost follow for any share of the uplink.
FORWARD_SUM = 0  # sum of the forward elements except the uplink [s]
BACKWARD_SUM = 1  # sum of the backward elements except the downlink [s]
FORWARD_MAX = 2  # slowest forward element except the uplink [s]
BACKWARD_MAX = 3  # slowest backward element except the downlink [s]
COLLECT = 4  # collection [s]
FIXED_COST = 5  # priced energy (and failures) without the uplink
UPLINK_SNR = 6  # signal to noise ratio of the uplink if it had the whole band
DOWNLINK_RATE = 7  # downlink rate with the whole band [bit/s]
UPLINK_PRICE = 8  # price of a second on the uplink [1/s]
MICRO_BATCHES = 9  # M
LOSS_PRICE = 10  # price of a unit of the failure exponent
SUMMARY = 11


@compiled_leaf
def hop_of(snr: float, parameters: Parameters) -> tuple[float, float]:
    """Airtime of one bit on a device-to-device link, repeats included [s], and its failure exponent."""
    exponent = failure_exponent(snr, parameters.waterfall_threshold)
    rate = shannon_rate(snr, parameters.d2d_bandwidth_hz)
    return seconds_per_bit(rate, exponent, parameters.repeat), exponent


@compiled_leaf
def summarise_cluster(
    n: int,
    segments: IntArray,
    power: FloatArray,
    noise_w: float,
    inputs: RoundInput,
    parameters: Parameters,
    summary: FloatArray,
) -> None:
    """Write everything about a cluster's round that does not depend on its share of the uplink.

    Args:
        n: The cluster.
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        noise_w: Noise plus interference of its device-to-device links [W].
        inputs: The environment.
        parameters: The scenario.
        summary: Receives the columns above (SUMMARY,).
    """
    devices = segments.shape[0]
    ratio, steps, B = BACKWARD_OVER_FORWARD, parameters.local_steps, parameters.batch_size
    server = B * parameters.server_seconds
    forward_sum, backward_sum = server, ratio * server
    forward_max, backward_max = server, ratio * server
    collect_max, cost, exponent = 0.0, 0.0, 0.0
    last = 0
    for step in range(1, devices + 2):
        node = step if step <= devices else 0
        if node > 0 and segments[node - 1] == 0:
            continue
        gain = inputs.gain[n, last, node]
        there, failed_there = hop_of(power[last] * gain / noise_w, parameters)
        back, failed_back = hop_of(power[node] * gain / noise_w, parameters)
        forward = hop_time(there * B, parameters.activation_bits)
        backward = hop_time(back * B, parameters.gradient_bits)
        forward_sum, backward_sum = forward_sum + forward, backward_sum + backward
        forward_max, backward_max = max(forward_max, forward), max(backward_max, backward)
        cost += steps * inputs.price[n, last] * power[last] * forward
        cost += steps * inputs.price[n, node] * power[node] * backward
        exponent += failed_there + failed_back
        if node > 0:
            blocks = segments[node - 1]
            compute = stage_time(B, blocks, parameters.block_forward_flops, inputs.speed[n, node - 1])
            forward_sum, backward_sum = forward_sum + compute, backward_sum + ratio * compute
            forward_max, backward_max = max(forward_max, compute), max(backward_max, ratio * compute)
            snr = power[node] * inputs.gain[n, node, 0] / noise_w
            rate = shannon_rate(snr, parameters.d2d_bandwidth_hz)
            collect = collection_time(blocks * parameters.block_payload_bits, rate)
            collect_max = max(collect_max, collect)
            cost += blocks * inputs.block_price[n, node - 1]
            cost += inputs.price[n, node] * power[node] * collect
        last = node
    summary[FORWARD_SUM], summary[BACKWARD_SUM] = forward_sum, backward_sum
    summary[FORWARD_MAX], summary[BACKWARD_MAX] = forward_max, backward_max
    summary[COLLECT] = collect_max
    summary[FIXED_COST] = cost + inputs.loss_price[n] * exponent
    summary[UPLINK_SNR] = power[0] * inputs.uplink_gain[n] / parameters.uplink_noise_w
    summary[DOWNLINK_RATE] = inputs.downlink_rate[n]
    summary[UPLINK_PRICE] = inputs.price[n, 0] * power[0]
    summary[MICRO_BATCHES] = inputs.micro_batches[n]
    summary[LOSS_PRICE] = inputs.loss_price[n]


@inlined
def delay_of(
    uplink: float, upload: float, downlink: float, summary: FloatArray, parameters: Parameters
) -> float:
    """A cluster's delay ``T_n`` for given times of a mini-batch on the uplink, of the update and back [s]."""
    step = gpipe_step(
        summary[FORWARD_SUM] + uplink,
        max(summary[FORWARD_MAX], uplink),
        summary[BACKWARD_SUM] + downlink,
        max(summary[BACKWARD_MAX], downlink),
        summary[MICRO_BATCHES],
    )
    step /= summary[MICRO_BATCHES]
    delay: float = cluster_delay(parameters.local_steps, step, summary[COLLECT], upload)
    return delay


@compiled_leaf
def delay_and_cost(share: float, summary: FloatArray, parameters: Parameters) -> tuple[float, float]:
    """A cluster's delay ``T_n`` [s] and priced energy for a share of the uplink.

    Args:
        share: ``beta_n``.
        summary: The cluster's summary (SUMMARY,).
        parameters: The scenario.
    """
    B, snr = parameters.batch_size, summary[UPLINK_SNR] / share
    # The whole power in the share: `physics.radio.uplink_rate`.
    rate = shannon_rate(snr, share * parameters.uplink_bandwidth_hz)
    exponent = failure_exponent(snr, parameters.waterfall_threshold)
    uplink = edge_time(B, parameters.activation_bits, rate)
    if parameters.repeat:
        uplink *= expected_transmissions(exponent)
    upload = upload_time(parameters.update_bits, rate)
    downlink = edge_time(B, parameters.gradient_bits, share * summary[DOWNLINK_RATE])
    cost = (
        summary[FIXED_COST]
        + summary[UPLINK_PRICE] * (parameters.local_steps * uplink + upload)
        + summary[LOSS_PRICE] * exponent
    )
    return delay_of(uplink, upload, downlink, summary, parameters), cost


@compiled_leaf
def mean_active_power(segments: IntArray, power: FloatArray) -> float:
    """Mean transmit power of a cluster's CU and used devices [W]: what disturbs the other clusters.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
    """
    total, active = float(power[0]), 1
    for k in range(segments.shape[0]):
        if segments[k] > 0:
            total += power[k + 1]
            active += 1
    return total / active
