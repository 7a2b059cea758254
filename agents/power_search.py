"""Transmit powers of one cluster for given segments and share: exact searches, one node at a time.

A node has one power for up to three links (activations to the next node, gradients to the previous one,
its segment to the CU; the CU: first hop, last hop, uplink), so the closed form for a single link
(``closed_forms.optimal_power``) is only the start. Each node's power is then found by golden-section
search on a logarithmic scale of the cluster's true cost with the other nodes' powers fixed, and a common
factor of all powers is searched as well, because two links that are equally slow stop the node-wise
search. The cost is ``w T_n + C_n + interference price x mean active power``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.agents.closed_forms import optimal_power
from collapipe_env.agents.cluster_costs import (
    LN2,
    RoundConstants,
    RoundInput,
    delay_and_cost,
    mean_active_power,
    packet_seconds_per_bit,
    summarise_cluster,
    uplink_seconds,
)
from collapipe_env.agents.compiled import compiled

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_GOLDEN = 0.6180339887498949
_RESOLUTION = 0.01  # of a power's logarithm
_COMMON_FACTORS = (1.5, 1.2, 1.06, 0.94, 0.85, 0.7)


@compiled
def starting_powers(
    n: int,
    delay_weight: float,
    noise_w: float,
    inputs: RoundInput,
    constants: RoundConstants,
    power: FloatArray,
) -> None:
    """Closed-form powers of all nodes of a cluster, each for one typical link.

    The typical gain of a device is the geometric mean of its gains to the nodes that may matter to it;
    the CU's stands for its uplink.

    Args:
        n: The cluster.
        delay_weight: ``w_n`` [1/s].
        noise_w: Noise plus interference of the device-to-device links [W].
        inputs: The environment.
        constants: The scenario.
        power: Receives the powers (K+1,) [W].
    """
    nodes = power.shape[0]
    low, high = constants.power_min_w, constants.power_max_w
    weight = delay_weight * constants.steps
    power[0] = optimal_power(
        weight, inputs.price[n, 0], inputs.uplink_gain[n], constants.uplink_noise_w / 4.0, low, high
    )
    for i in range(1, nodes):
        total, count = 0.0, 0
        for j in range(nodes):
            if j != i and (j == 0 or inputs.cap[n, j - 1] > 0):
                total += math.log(max(inputs.gain[n, i, j], 1e-300))
                count += 1
        power[i] = optimal_power(weight, inputs.price[n, i], math.exp(total / count), noise_w, low, high)


@compiled
def cluster_cost(
    n: int,
    segments: IntArray,
    power: FloatArray,
    noise_w: float,
    share: float,
    delay_weight: float,
    interference_price: float,
    inputs: RoundInput,
    constants: RoundConstants,
    summary: FloatArray,
) -> float:
    """``w T_n + C_n + interference price x mean active power``.

    Args:
        n: The cluster.
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        noise_w: Noise plus interference of the device-to-device links [W].
        share: ``beta_n``.
        delay_weight: ``w_n`` [1/s].
        interference_price: What a watt of mean power costs the other clusters [1/W].
        inputs: The environment.
        constants: The scenario.
        summary: Receives the cluster's summary (7,).
    """
    summarise_cluster(n, segments, power, noise_w, inputs, constants, summary)
    delay, cost = delay_and_cost(share, summary, constants)
    return delay_weight * delay + cost + interference_price * mean_active_power(segments, power)


class _Node(NamedTuple):
    """What a node's power decides: prices, SNRs per watt, and the other nodes' slowest elements."""

    price: float
    power_price: float
    delay_weight: float
    forward_snr: float
    backward_snr: float
    collect_snr: float
    collect_bits: float
    uplink_snr: float
    share: float
    other_forward: float
    other_backward: float
    other_collect: float


@compiled
def _node_cost(log_power: float, node: _Node, constants: RoundConstants) -> float:
    """The part of a cluster's cost that one node's power decides."""
    power = math.exp(log_power)
    forward = constants.activation_bits * packet_seconds_per_bit(power * node.forward_snr, constants)
    backward = constants.gradient_bits * packet_seconds_per_bit(power * node.backward_snr, constants)
    collect, uplink, upload = 0.0, 0.0, 0.0
    exponent = (1.0 / node.forward_snr + 1.0 / node.backward_snr) / power
    if node.collect_bits > 0.0:
        collect = node.collect_bits * LN2 / (constants.d2d_hz * math.log1p(power * node.collect_snr))
    if node.uplink_snr > 0.0:
        uplink, upload = uplink_seconds(node.share, power * node.uplink_snr, constants)
        exponent += node.share / (node.uplink_snr * power)
    fill = constants.steps / constants.micro_batches
    delay = (
        fill * (forward + backward + uplink)
        + (constants.steps - fill)
        * (max(node.other_forward, max(forward, uplink)) + max(node.other_backward, backward))
        + max(node.other_collect, collect)
        + upload
    )
    airtime = constants.steps * (forward + backward + uplink) + collect + upload
    return (
        node.delay_weight * delay
        + (node.price * airtime + node.power_price) * power
        + constants.loss_price * constants.waterfall * exponent
    )


@compiled
def _best_log_power(here: float, low: float, high: float, node: _Node, constants: RoundConstants) -> float:
    """Golden-section search between two log-powers; never worse than ``here`` or either end."""
    best_x, best = here, _node_cost(here, node, constants)
    for end in (low, high):
        value = _node_cost(end, node, constants)
        if value < best:
            best_x, best = end, value
    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_a, at_b = _node_cost(a, node, constants), _node_cost(b, node, constants)
    while high - low > _RESOLUTION:
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - _GOLDEN * (high - low)
            at_a = _node_cost(a, node, constants)
        else:
            low, a, at_a = a, b, at_b
            b = low + _GOLDEN * (high - low)
            at_b = _node_cost(b, node, constants)
    if min(at_a, at_b) < best:
        return a if at_a <= at_b else b
    return best_x


@compiled
def search_powers(
    n: int,
    segments: IntArray,
    power: FloatArray,
    noise_w: float,
    share: float,
    delay_weight: float,
    interference_price: float,
    inputs: RoundInput,
    constants: RoundConstants,
    passes: int,
    summary: FloatArray,
) -> float:
    """Improve a cluster's powers in place by coordinate searches.

    Args:
        n: The cluster.
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W]; receives the new ones (idle devices keep theirs).
        noise_w: Noise plus interference of the device-to-device links [W].
        share: ``beta_n``.
        delay_weight: ``w_n`` [1/s].
        interference_price: What a watt of mean power costs the other clusters [1/W].
        inputs: The environment.
        constants: The scenario.
        passes: Rounds over all nodes; fewer if the cost stops falling.
        summary: Receives the cluster's summary (7,).

    Returns:
        The cost ``w T_n + C_n + interference price x mean active power``.
    """
    chain = np.zeros(power.shape[0] + 1, dtype=np.int64)
    stages = 0
    for k in range(segments.shape[0]):
        if segments[k] > 0:
            stages += 1
            chain[stages] = k + 1
    chain[stages + 1] = 0  # the CU closes the chain
    power_price = interference_price / (stages + 1)
    low, high = math.log(constants.power_min_w), math.log(constants.power_max_w)
    cost = cluster_cost(
        n, segments, power, noise_w, share, delay_weight, interference_price, inputs, constants, summary
    )
    trial = power.copy()
    for turn in range(passes):
        # The whole range first, then the neighbourhood of what was found.
        reach = high - low if turn == 0 else 0.7 * 0.5 ** (turn - 1)
        before = cost
        for position in range(stages + 1):
            node = chain[position]
            following = chain[position + 1]
            previous = chain[position - 1] if position > 0 else chain[stages]
            other_forward, other_backward, other_collect = _others(
                n, chain, stages, position, segments, power, noise_w, share, inputs, constants
            )
            device = node > 0
            part = _Node(
                inputs.price[n, node],
                power_price,
                delay_weight,
                inputs.gain[n, node, following] / noise_w,
                inputs.gain[n, node, previous] / noise_w,
                inputs.gain[n, node, 0] / noise_w if device else 0.0,
                segments[node - 1] * constants.collect_bits if device else 0.0,
                0.0 if device else inputs.uplink_gain[n] / constants.uplink_noise_w,
                share,
                other_forward,
                other_backward,
                other_collect,
            )
            here = math.log(power[node])
            found = _best_log_power(here, max(low, here - reach), min(high, here + reach), part, constants)
            power[node] = min(max(math.exp(found), constants.power_min_w), constants.power_max_w)
        cost = cluster_cost(
            n, segments, power, noise_w, share, delay_weight, interference_price, inputs, constants, summary
        )
        for factor in _COMMON_FACTORS:
            for position in range(stages + 1):
                node = chain[position]
                trial[node] = min(max(factor * power[node], constants.power_min_w), constants.power_max_w)
            scaled = cluster_cost(
                n,
                segments,
                trial,
                noise_w,
                share,
                delay_weight,
                interference_price,
                inputs,
                constants,
                summary,
            )
            if scaled < cost:
                cost = scaled
                for position in range(stages + 1):
                    power[chain[position]] = trial[chain[position]]
        if before - cost <= 1e-5 * abs(before):
            break
    return cluster_cost(
        n, segments, power, noise_w, share, delay_weight, interference_price, inputs, constants, summary
    )


@compiled
def _others(
    n: int,
    chain: IntArray,
    stages: int,
    position: int,
    segments: IntArray,
    power: FloatArray,
    noise_w: float,
    share: float,
    inputs: RoundInput,
    constants: RoundConstants,
) -> tuple[float, float, float]:
    """Slowest forward and backward elements and longest collection without those of one node's power."""
    ratio = constants.backward_over_forward
    forward, backward, collect = constants.server_s, ratio * constants.server_s, 0.0
    backward = max(backward, constants.gradient_bits / (share * inputs.downlink_rate[n]))
    if position > 0:
        snr = power[0] * inputs.uplink_gain[n] / constants.uplink_noise_w
        forward = max(forward, uplink_seconds(share, snr, constants)[0])
    for s in range(stages + 1):
        node, following = chain[s], chain[s + 1]
        gain = inputs.gain[n, node, following] / noise_w
        if s != position:
            seconds = packet_seconds_per_bit(power[node] * gain, constants)
            forward = max(forward, constants.activation_bits * seconds)
        if following != chain[position]:
            seconds = packet_seconds_per_bit(power[following] * gain, constants)
            backward = max(backward, constants.gradient_bits * seconds)
        if node > 0:
            compute = segments[node - 1] * inputs.block_s[n, node - 1]
            forward, backward = max(forward, compute), max(backward, ratio * compute)
            if s != position:
                snr = power[node] * inputs.gain[n, node, 0] / noise_w
                bits = segments[node - 1] * constants.collect_bits
                collect = max(collect, bits * LN2 / (constants.d2d_hz * math.log1p(snr)))
    return forward, backward, collect
