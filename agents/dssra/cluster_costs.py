"""One cluster's round in scalars: the physics of ``round_costs`` for compiled search loops.

Times are for the whole mini-batch, including the overheads of all ``M`` micro-batches. An element lasts
``1 / M`` of its time, so a local step is :func:`~collapipe_env.physics.delay.gpipe_step` of the times over
``M``.
Only plans with one device in each stage are covered. The tests compare this module with ``round_costs``.
"""

from __future__ import annotations

import math

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_leaf, inlined
from collapipe_env.physics.delay import (
    cluster_delay,
    gpipe_step,
    hop_time,
    message_time,
    stage_time,
)
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.overheads import cycles_time, latency_of_chain
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.queues import update_backlog
from collapipe_env.physics.radio import (
    expected_transmissions,
    failure_exponent,
    loss_exponent,
    shannon_rate,
    usable_snr,
)
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD

from .hops import hop_of
from .moving import moving_costs
from .options import (
    block_joules,
    micro_batches_of,
    server_blocks_of,
    server_seconds_of,
    setting_of,
    update_bits_of,
)
from .round_input import RoundInput

LN2 = math.log(2.0)
LEAST_PRICE = 0.02
"""Least price of a second, over ``V``: where waiting would pay, plans only stop hurrying."""

# Columns of a cluster's summary, from which its delay and cost follow for any share of the uplink.
FORWARD_SUM = 0  # sum of the forward elements except the uplink [s]
BACKWARD_SUM = 1  # sum of the backward elements except the downlink [s]
FORWARD_MAX = 2  # slowest forward element except the uplink [s]
BACKWARD_MAX = 3  # slowest backward element except the downlink [s]
ONCE = 4  # relay, collection, and latencies and updates of all local steps [s]
FIXED_COST = 5  # priced energy (and failures) without the uplink
UPLINK_SNR = 6  # signal to noise ratio of the uplink if it had the whole band
DOWNLINK_RATE = 7  # downlink rate with the whole band [bit/s]
UPLINK_PRICE = 8  # price of a second of sending on the uplink [1/s]
MICRO_BATCHES = 9  # M
LOSS_PRICE = 10  # price of a unit of the loss exponent
UPLINK_W = 11  # power that sending on the uplink draws [W]
DELAY_PRICE = 12  # price of a second of the slowest cluster's delay [1/s], the same for all clusters
UPDATE_BITS = 13  # the cluster's update [bit]
SUMMARY = 14
# Then the energy of each node, without the CU's uplink [J].


@inlined
def delay_price(inputs: RoundInput, parameters: Numbers) -> float:
    """Price of a second [1/s]: ``V``, less what a second grants the queues where budgets are per second."""
    V = parameters.tradeoff_v
    return float(max(V - inputs.relief[0], LEAST_PRICE * V))


@compiled_leaf
def summarise_cluster(
    n: int,
    segments: IntArray,
    power: FloatArray,
    option: int,
    noise_w: float,
    inputs: RoundInput,
    parameters: Numbers,
    summary: FloatArray,
) -> None:
    """Write everything about a cluster's round that does not depend on its share of the uplink.

    Columns are named above; those from ``SUMMARY`` on are the nodes' energies.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        option: ``M_n`` and what goes with it (see :mod:`.option_table`).
        noise_w: Noise plus interference of its device-to-device links [W].
        summary: Receives the columns (SUMMARY + K + 1,).
    """
    devices, M = segments.shape[0], micro_batches_of(option, inputs)
    extra, radio = parameters.overheads, parameters.radio_power
    ratio, steps, B = inputs.ratio[setting_of(option, inputs)], parameters.local_steps, parameters.batch_size
    server = B * server_seconds_of(option, inputs, parameters) + M * extra.server_s
    forward_sum, backward_sum = server, BACKWARD_OVER_FORWARD * server
    forward_max, backward_max = forward_sum, backward_sum
    collect_max, update, exponent, relay = 0.0, 0.0, 0.0, 0.0
    for i in range(devices + 1):
        summary[SUMMARY + i] = 0.0
    last, stages = 0, 0.0
    for step in range(1, devices + 2):
        node = step if step <= devices else 0
        if node > 0 and segments[node - 1] == 0:
            continue
        gain = inputs.gain[n, last, node]
        there, failed_there = hop_of(power[last] * gain / noise_w, parameters)
        back, failed_back = hop_of(power[node] * gain / noise_w, parameters)
        forward = hop_time(there * B, parameters.activation_bits)
        backward = hop_time(back * B, parameters.gradient_bits)
        forward += M * (extra.message_s + extra.header_bits * there)
        backward += M * (extra.message_s + extra.header_bits * back)
        forward_sum, backward_sum = forward_sum + forward, backward_sum + backward
        forward_max, backward_max = max(forward_max, forward), max(backward_max, backward)
        sender = radio_power(power[last], radio.d2d_circuit_w, radio.efficiency)
        summary[SUMMARY + last] += steps * (sender * forward + radio.receive_w * backward)
        sender = radio_power(power[node], radio.d2d_circuit_w, radio.efficiency)
        summary[SUMMARY + node] += steps * (sender * backward + radio.receive_w * forward)
        exponent += failed_there + failed_back
        if node > 0:
            blocks = segments[node - 1]
            compute = stage_time(B, blocks, parameters.block_forward_flops, inputs.speed[n, node - 1])
            compute += M * cycles_time(blocks, extra.block_cycles, inputs.clock[n, node - 1])
            update = max(update, cycles_time(blocks, extra.update_cycles, inputs.clock[n, node - 1]))
            stages += 1.0
            forward_sum, backward_sum = forward_sum + compute, backward_sum + ratio * compute
            forward_max, backward_max = max(forward_max, compute), max(backward_max, ratio * compute)
            snr = usable_snr(power[node] * inputs.gain[n, node, 0] / noise_w, parameters.d2d_snr_cap)
            rate = shannon_rate(snr, parameters.d2d_bandwidth_hz)
            collect = message_time(blocks * parameters.block_payload_bits, rate)
            collect_max = max(collect_max, collect)
            joules = block_joules(n, node - 1, option, inputs)
            summary[SUMMARY + node] += blocks * joules + sender * collect
            summary[SUMMARY] += radio.receive_w * collect
            if parameters.relay_bits > 0.0:
                snr = usable_snr(power[0] * inputs.gain[n, 0, node] / noise_w, parameters.d2d_snr_cap)
                rate = shannon_rate(snr, parameters.d2d_bandwidth_hz)
                sent = message_time(blocks * parameters.relay_bits, rate)
                relay += sent
                sender = radio_power(power[0], radio.d2d_circuit_w, radio.efficiency)
                summary[SUMMARY] += sender * sent
                summary[SUMMARY + node] += radio.receive_w * sent
        last = node
    moving = moving_costs(n, segments, power, inputs, parameters, summary[SUMMARY:])
    summary[FORWARD_SUM], summary[BACKWARD_SUM] = forward_sum, backward_sum
    summary[FORWARD_MAX], summary[BACKWARD_MAX] = forward_max, backward_max
    before = moving + relay
    summary[ONCE] = before + collect_max + steps * (2.0 * latency_of_chain(stages, extra) + update)
    cost = inputs.loss_price[n] * exponent + server_blocks_of(option, inputs) * inputs.server_queue[0]
    for i in range(devices + 1):
        cost += inputs.price[n, i] * summary[SUMMARY + i]
    for k in range(devices):
        if segments[k] > 0:
            cost += inputs.use_price[n, k]
    summary[FIXED_COST] = cost
    summary[UPLINK_SNR] = power[0] * inputs.uplink_gain[n] / parameters.uplink_noise_w
    summary[DOWNLINK_RATE] = inputs.downlink_rate[n]
    summary[UPLINK_W] = radio_power(power[0], radio.edge_circuit_w, radio.efficiency)
    summary[UPLINK_PRICE] = inputs.price[n, 0] * summary[UPLINK_W]
    summary[MICRO_BATCHES] = M
    summary[LOSS_PRICE] = inputs.loss_price[n]
    summary[DELAY_PRICE] = delay_price(inputs, parameters)
    summary[UPDATE_BITS] = update_bits_of(option, inputs, parameters)


@inlined
def delay_of(
    uplink: float, upload: float, downlink: float, summary: FloatArray, parameters: Numbers
) -> float:
    """A cluster's delay ``T_n`` [s] for given times of a mini-batch up, the update and a mini-batch back."""
    step = gpipe_step(
        summary[FORWARD_SUM] + uplink,
        max(summary[FORWARD_MAX], uplink),
        summary[BACKWARD_SUM] + downlink,
        max(summary[BACKWARD_MAX], downlink),
        summary[MICRO_BATCHES],
    )
    step /= summary[MICRO_BATCHES]
    delay: float = cluster_delay(parameters.local_steps, step, summary[ONCE], upload)
    return delay


@inlined
def uplink_times(share: float, summary: FloatArray, parameters: Numbers) -> tuple[float, float, float, float]:
    """Times of a mini-batch up, of the update and of a mini-batch back [s], and the loss exponent."""
    B, snr = parameters.batch_size, summary[UPLINK_SNR] / share
    # The whole power in the share: `physics.radio.uplink_rate`.
    rate = shannon_rate(snr, share * parameters.uplink_bandwidth_hz)
    exponent = failure_exponent(snr, parameters.waterfall_threshold)
    uplink = message_time(B * parameters.activation_bits, rate)
    if parameters.transmissions > 1.0:
        uplink *= expected_transmissions(exponent, parameters.transmissions)
    messages = summary[MICRO_BATCHES] * parameters.overheads.edge_message_s
    uplink += messages
    upload = message_time(summary[UPDATE_BITS], rate)
    downlink = message_time(B * parameters.gradient_bits, share * summary[DOWNLINK_RATE]) + messages
    return uplink, upload, downlink, loss_exponent(exponent, parameters.transmissions)


@compiled_leaf
def uplink_joules(share: float, summary: FloatArray, parameters: Numbers) -> float:
    """Energy of a CU's uplink in the round [J].

    Args:
        share: ``beta_n``.
    """
    uplink, upload, _, _ = uplink_times(share, summary, parameters)
    joules: float = summary[UPLINK_W] * (parameters.local_steps * uplink + upload)
    return joules


@compiled_leaf
def delay_and_cost(share: float, summary: FloatArray, parameters: Numbers) -> tuple[float, float]:
    """A cluster's delay ``T_n`` [s] and priced energy for a share of the uplink.

    Args:
        share: ``beta_n``.
    """
    uplink, upload, downlink, exponent = uplink_times(share, summary, parameters)
    cost = (
        summary[FIXED_COST]
        + summary[UPLINK_PRICE] * (parameters.local_steps * uplink + upload)
        + summary[LOSS_PRICE] * exponent
    )
    return delay_of(uplink, upload, downlink, summary, parameters), cost


@compiled_leaf
def node_drift(backlog: float, ratio: float, allowance: float) -> float:
    """A node's part of ``L(t+1) - L(t)`` beyond that of a round without energy.

    ``(max(z + e - a, 0)^2 - max(z - a, 0)^2) / 2``: like the bound's ``z e`` it begins at 0, so that relative
    tolerances mean the same for both.

    Args:
        backlog: ``z``.
        ratio: ``e``, energy over budget.
        allowance: ``a``.
    """
    after: float = update_backlog(backlog, ratio, allowance)
    least: float = update_backlog(backlog, 0.0, allowance)
    return 0.5 * (after - least) * (after + least)


@compiled_leaf
def node_joules(i: int, share: float, summary: FloatArray, parameters: Numbers) -> float:
    """Energy of a node in the round, the CU's uplink included [J].

    Args:
        i: The node, 0 for the CU.
        share: ``beta_n``.
    """
    joules = float(summary[SUMMARY + i])
    if i == 0:
        joules += uplink_joules(share, summary, parameters)
    return joules


@compiled_leaf
def price_after(backlog: float, joules: float, budget: float, allowance: float) -> float:
    """Slope of a node's drift in its energy: the queue after the round over the budget [1/J].

    Args:
        backlog: ``z``.
        joules: Its energy [J].
        budget: ``Ebar`` [J].
        allowance: ``a``.
    """
    after: float = update_backlog(backlog, joules / budget, allowance)
    return after / budget


@compiled_leaf
def exact_difference(
    n: int, share: float, summary: FloatArray, allowance: float, inputs: RoundInput, parameters: Numbers
) -> float:
    """Drift of a cluster's nodes (:func:`node_drift`) plus extra prices, less the energy at present prices.

    Args:
        share: ``beta_n``.
        allowance: ``a``.
    """
    difference = 0.0
    for i in range(inputs.price.shape[1]):
        joules = node_joules(i, share, summary, parameters)
        difference += node_drift(inputs.backlog[n, i], joules / inputs.budget[n, i], allowance)
        difference += inputs.extra_price[n, i] * joules
        difference -= inputs.price[n, i] * joules
    return difference


@compiled_leaf
def reprice_cluster(
    n: int, share: float, summary: FloatArray, inputs: RoundInput, parameters: Numbers
) -> None:
    """Set a cluster's prices of energy to those after the round.

    Args:
        share: ``beta_n``.
        inputs: The environment; receives the prices.
    """
    for i in range(inputs.price.shape[1]):
        joules = node_joules(i, share, summary, parameters)
        z, budget = inputs.backlog[n, i], inputs.budget[n, i]
        inputs.price[n, i] = inputs.extra_price[n, i] + price_after(z, joules, budget, inputs.allowance[0])


@compiled_leaf
def mean_active_power(segments: IntArray, power: FloatArray) -> float:
    """Mean transmit power of a cluster's CU and used devices [W], which disturbs the other clusters.

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
