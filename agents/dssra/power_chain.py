"""A cluster's cost as a function of the powers in its chain of active nodes, the CU first.

For given segments and share everything but the airtimes is fixed. The chain keeps every node's power and
the airtimes that it decides, so that a new power of one node is priced without touching the other links.
``cluster_costs`` holds the same formulas for a whole plan; the tests compare the two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_leaf, inlined
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.radio import expected_transmissions, loss_exponent

from .hops import loss_slope

# Columns of a cluster's chain of active nodes, the CU first.
FORWARD_SNR, BACKWARD_SNR, COLLECT_SNR = 0, 1, 2  # per watt
COLLECT_BITS, PRICE, POWER = 3, 4, 5
FORWARD, BACKWARD, COLLECT = 6, 7, 8  # times at the power [s]
# Price of a second of the node's messages at their receivers [1/s].
FORWARD_HEARD, BACKWARD_HEARD, COLLECT_HEARD, RELAY_HEARD = 9, 10, 11, 12
# The CU's message about the node's new state: per watt of the CU, at ln(1 + SNR) = 1 and at its power [s].
RELAY_SNR, RELAY_BITS, RELAY = 13, 14, 15
COLUMNS = 16


class ChainConstants(NamedTuple):
    """Figures that all nodes of a cluster share, and those that do not depend on powers.

    ``fill`` is local steps over micro-batches; ``fixed`` holds the delay and cost of computing, of the server
    and of the downlink, latencies and the update; ``least_*`` the slowest elements among them; ``uplink_snr``
    is per watt and for the share; ``uplink_s`` to ``backward_s`` are times at ``ln(1 + SNR) = 1``;
    ``message`` and ``edge_message`` are overheads of a mini-batch's messages on a hop and on the uplink [s];
    ``transmissions`` is the largest number of a packet's transmissions.
    """

    delay_weight: float
    fill: float
    loss_price: float
    power_price: float
    fixed: float
    least_forward: float
    least_backward: float
    uplink_snr: float
    uplink_s: float
    upload_s: float
    forward_s: float
    backward_s: float
    message: float
    edge_message: float
    transmissions: float


class Others(NamedTuple):
    """The slowest elements and the longest collection, except those that one node's power decides."""

    forward: float
    backward: float
    collect: float


@inlined
def link_time(
    snr: float, seconds: float, transmissions: float, threshold: float, cap: float
) -> tuple[float, float]:
    """Time on a link [s], and its slope in the power's logarithm.

    Args:
        snr: Signal to noise ratio, > 0.
        seconds: Time at ``ln(1 + SNR) = 1`` [s].
        transmissions: Most transmissions of a packet; 1 on a reliable link.
        threshold: Waterfall threshold ``m``.
        cap: Largest SNR that the rate can use.
    """
    log = math.log1p(min(snr, cap))
    time, fall = seconds / log, 0.0
    if snr < cap:
        fall = snr / ((1.0 + snr) * log)
    if transmissions > 1.0:
        exponent = threshold / snr
        time *= expected_transmissions(exponent, transmissions)
        fall += exponent * (1.0 - loss_slope(exponent, transmissions))
    return time, -time * fall


@inlined
def link_loss(snr: float, transmissions: float, threshold: float) -> tuple[float, float]:
    """Loss exponent of a link, and its slope in the power's logarithm.

    Args:
        snr: Signal to noise ratio, > 0.
        transmissions: Most transmissions of a packet.
        threshold: Waterfall threshold ``m``.
    """
    exponent = threshold / snr
    slope = -exponent * loss_slope(exponent, transmissions)
    return loss_exponent(exponent, transmissions), slope


@compiled_leaf
def node_cost(
    log_power: float,
    position: int,
    chain: FloatArray,
    others: Others,
    cluster: ChainConstants,
    parameters: Parameters,
) -> tuple[float, float]:
    """The part of a cluster's cost that one node's power decides, and its slope in the power's logarithm."""
    power, R, cap = math.exp(log_power), cluster.transmissions, parameters.d2d_snr_cap
    radio, m = parameters.radio_power, parameters.waterfall_threshold
    forward_snr, backward_snr = chain[position, FORWARD_SNR], chain[position, BACKWARD_SNR]
    forward, forward_slope = link_time(power * forward_snr, cluster.forward_s, R, m, cap)
    backward, backward_slope = link_time(power * backward_snr, cluster.backward_s, R, m, cap)
    forward, backward = forward + cluster.message, backward + cluster.message
    lost = lost_slope = 0.0
    if cluster.loss_price > 0.0:
        lost, lost_slope = link_loss(power * forward_snr, R, m)
        lost_back, lost_back_slope = link_loss(power * backward_snr, R, m)
        lost, lost_slope = lost + lost_back, lost_slope + lost_back_slope
    sums, sums_slope = forward + backward, forward_slope + backward_slope
    slowest, slowest_slope = others.forward, 0.0
    if forward > slowest:
        slowest, slowest_slope = forward, forward_slope
    once, once_slope = others.collect, 0.0
    fill, steps = cluster.fill, parameters.local_steps
    air, air_slope = steps * sums, steps * sums_slope
    heard = chain[position, FORWARD_HEARD] * forward + chain[position, BACKWARD_HEARD] * backward
    heard_slope = (
        chain[position, FORWARD_HEARD] * forward_slope + chain[position, BACKWARD_HEARD] * backward_slope
    )
    heard, heard_slope = steps * heard, steps * heard_slope
    circuits, circuits_slope = radio.d2d_circuit_w * air, radio.d2d_circuit_w * air_slope
    if position == 0:
        snr = power * cluster.uplink_snr
        uplink, uplink_slope = link_time(snr, cluster.uplink_s, R, m, math.inf)
        uplink += cluster.edge_message
        if uplink > slowest:
            slowest, slowest_slope = uplink, uplink_slope
        sums, sums_slope = sums + uplink, sums_slope + uplink_slope
        upload, upload_slope = link_time(snr, cluster.upload_s, 1.0, 0.0, math.inf)
        once, once_slope = once + upload, upload_slope
        edge, edge_slope = steps * uplink + upload, steps * uplink_slope + upload_slope
        air, air_slope = air + edge, air_slope + edge_slope
        circuits, circuits_slope = (
            circuits + radio.edge_circuit_w * edge,
            circuits_slope + radio.edge_circuit_w * edge_slope,
        )
        if cluster.loss_price > 0.0:
            lost_edge, lost_edge_slope = link_loss(snr, R, m)
            lost, lost_slope = lost + lost_edge, lost_slope + lost_edge_slope
        if parameters.relay_bits > 0.0:
            for i in range(1, chain.shape[0]):
                sent, sent_slope = link_time(power * chain[i, RELAY_SNR], chain[i, RELAY_BITS], 1.0, 0.0, cap)
                once, once_slope = once + sent, once_slope + sent_slope
                air, air_slope = air + sent, air_slope + sent_slope
                circuits += radio.d2d_circuit_w * sent
                circuits_slope += radio.d2d_circuit_w * sent_slope
                heard += chain[i, RELAY_HEARD] * sent
                heard_slope += chain[i, RELAY_HEARD] * sent_slope
    else:
        snr = power * chain[position, COLLECT_SNR]
        sent, sent_slope = link_time(snr, chain[position, COLLECT_BITS], 1.0, 0.0, cap)
        air, air_slope = air + sent, air_slope + sent_slope
        circuits += radio.d2d_circuit_w * sent
        circuits_slope += radio.d2d_circuit_w * sent_slope
        heard += chain[position, COLLECT_HEARD] * sent
        heard_slope += chain[position, COLLECT_HEARD] * sent_slope
        if sent > once:
            once, once_slope = sent, sent_slope
    if backward > others.backward:
        slowest, slowest_slope = slowest + backward, slowest_slope + backward_slope
    else:
        slowest += others.backward
    price, emitted = chain[position, PRICE], power / radio.efficiency
    spent = cluster.power_price * power
    value = (
        cluster.delay_weight * (fill * sums + (steps - fill) * slowest + once)
        + price * (emitted * air + circuits)
        + heard
        + spent
        + cluster.loss_price * lost
    )
    slope = (
        cluster.delay_weight * (fill * sums_slope + (steps - fill) * slowest_slope + once_slope)
        + price * (emitted * (air + air_slope) + circuits_slope)
        + heard_slope
        + spent
        + cluster.loss_price * lost_slope
    )
    return value, slope


@compiled_leaf
def set_power(
    position: int, power: float, chain: FloatArray, cluster: ChainConstants, parameters: Parameters
) -> None:
    """Write a node's power and the times that it decides into the chain (except the CU's uplink)."""
    forward_snr, backward_snr = power * chain[position, FORWARD_SNR], power * chain[position, BACKWARD_SNR]
    chain[position, POWER], cap = power, parameters.d2d_snr_cap
    R, m = cluster.transmissions, parameters.waterfall_threshold
    forward, _ = link_time(forward_snr, cluster.forward_s, R, m, cap)
    backward, _ = link_time(backward_snr, cluster.backward_s, R, m, cap)
    chain[position, FORWARD], chain[position, BACKWARD] = (
        forward + cluster.message,
        backward + cluster.message,
    )
    if position > 0:
        snr, seconds = power * chain[position, COLLECT_SNR], chain[position, COLLECT_BITS]
        chain[position, COLLECT], _ = link_time(snr, seconds, 1.0, 0.0, cap)
    elif parameters.relay_bits > 0.0:
        for i in range(1, chain.shape[0]):
            chain[i, RELAY], _ = link_time(power * chain[i, RELAY_SNR], chain[i, RELAY_BITS], 1.0, 0.0, cap)


@compiled_leaf
def chain_cost(chain: FloatArray, count: int, cluster: ChainConstants, parameters: Parameters) -> float:
    """``w T_n + C_n + interference price x mean active power`` from the times in the chain."""
    radio, steps = parameters.radio_power, parameters.local_steps
    R, m = cluster.transmissions, parameters.waterfall_threshold
    snr = chain[0, POWER] * cluster.uplink_snr
    uplink, _ = link_time(snr, cluster.uplink_s, R, m, math.inf)
    uplink += cluster.edge_message
    upload, _ = link_time(snr, cluster.upload_s, 1.0, 0.0, math.inf)
    forward, backward = max(cluster.least_forward, uplink), cluster.least_backward
    sums, collect, lost = uplink, 0.0, 0.0
    if cluster.loss_price > 0.0:
        lost, _ = link_loss(snr, R, m)
    drawn = radio_power(chain[0, POWER], radio.edge_circuit_w, radio.efficiency)
    cost = chain[0, PRICE] * drawn * (steps * uplink + upload)
    relay, relay_price = (
        0.0,
        chain[0, PRICE] * radio_power(chain[0, POWER], radio.d2d_circuit_w, radio.efficiency),
    )
    for i in range(count):
        power = chain[i, POWER]
        airtime = chain[i, FORWARD] + chain[i, BACKWARD]
        forward = max(forward, chain[i, FORWARD])
        backward = max(backward, chain[i, BACKWARD])
        collect = max(collect, chain[i, COLLECT])
        sums += airtime
        drawn = radio_power(power, radio.d2d_circuit_w, radio.efficiency)
        cost += chain[i, PRICE] * drawn * (steps * airtime + chain[i, COLLECT]) + cluster.power_price * power
        cost += steps * chain[i, FORWARD_HEARD] * chain[i, FORWARD]
        cost += steps * chain[i, BACKWARD_HEARD] * chain[i, BACKWARD]
        cost += chain[i, COLLECT_HEARD] * chain[i, COLLECT]
        relay += chain[i, RELAY]
        cost += (relay_price + chain[i, RELAY_HEARD]) * chain[i, RELAY]
        if cluster.loss_price > 0.0:
            lost += link_loss(power * chain[i, FORWARD_SNR], R, m)[0]
            lost += link_loss(power * chain[i, BACKWARD_SNR], R, m)[0]
    fill = cluster.fill
    delay = fill * sums + (steps - fill) * (forward + backward) + collect + upload + relay
    total: float = cluster.fixed + cluster.delay_weight * delay + cost
    total += cluster.loss_price * lost
    return total


@compiled_leaf
def others_of(
    position: int, chain: FloatArray, count: int, cluster: ChainConstants, parameters: Parameters
) -> Others:
    """Slowest forward and backward elements and longest collection, except those that one node decides."""
    forward, backward, collect = cluster.least_forward, cluster.least_backward, 0.0
    if position > 0:
        snr = chain[0, POWER] * cluster.uplink_snr
        threshold = parameters.waterfall_threshold
        uplink, _ = link_time(snr, cluster.uplink_s, cluster.transmissions, threshold, math.inf)
        forward = max(forward, uplink + cluster.edge_message)
    for i in range(count):
        if i != position:
            forward = max(forward, chain[i, FORWARD])
            backward = max(backward, chain[i, BACKWARD])
            collect = max(collect, chain[i, COLLECT])
    return Others(forward, backward, collect)
