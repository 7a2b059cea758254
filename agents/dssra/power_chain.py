"""A cluster's cost as a function of the powers in its chain of active nodes, the CU first.

For given segments and share everything but the airtimes is fixed. The chain keeps every node's power and
the airtimes that it decides, so that a new power of one node is priced without touching the other links.
``cluster_costs`` holds the same formulas for a whole plan; the tests hold the two together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.arrays import FloatArray
from collapipe_env.compiled import compiled_leaf, inlined
from collapipe_env.physics.parameters import Parameters

# Columns of a cluster's chain of active nodes, the CU first.
FORWARD_SNR, BACKWARD_SNR, COLLECT_SNR = 0, 1, 2  # per watt
COLLECT_BITS, PRICE, POWER = 3, 4, 5
FORWARD, BACKWARD, COLLECT = 6, 7, 8  # times at the power [s]
COLUMNS = 9


class ChainConstants(NamedTuple):
    """Figures that all nodes of a cluster share, and those that do not depend on powers.

    ``fill`` is local steps over micro-batches; ``fixed`` holds the delay and cost of computing, of the server
    and of the downlink; ``least_*`` the slowest elements among them; ``uplink_snr`` is per watt and for the
    share; ``uplink_s`` to ``backward_s`` are times at ``ln(1 + SNR) = 1``; ``waterfall`` is the threshold of
    repeats, 0 without them.
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
    waterfall: float


class Others(NamedTuple):
    """The slowest elements and the longest collection without those of one node's power."""

    forward: float
    backward: float
    collect: float


@inlined
def link_time(snr: float, seconds: float, waterfall: float) -> tuple[float, float]:
    """Time on a link [s], and its slope in the power's logarithm.

    Args:
        snr: Signal to noise ratio, > 0.
        seconds: Time at ``ln(1 + SNR) = 1`` [s].
        waterfall: Threshold of the repeats, 0 without.
    """
    log = math.log1p(snr)
    time, fall = seconds / log, snr / ((1.0 + snr) * log)
    if waterfall > 0.0:
        time *= math.exp(waterfall / snr)
        fall += waterfall / snr
    return time, -time * fall


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
    power, waterfall = math.exp(log_power), cluster.waterfall
    forward_snr, backward_snr = chain[position, FORWARD_SNR], chain[position, BACKWARD_SNR]
    forward, forward_slope = link_time(power * forward_snr, cluster.forward_s, waterfall)
    backward, backward_slope = link_time(power * backward_snr, cluster.backward_s, waterfall)
    exponent = (1.0 / forward_snr + 1.0 / backward_snr) / power
    sums, sums_slope = forward + backward, forward_slope + backward_slope
    slowest, slowest_slope = others.forward, 0.0
    if forward > slowest:
        slowest, slowest_slope = forward, forward_slope
    once, once_slope = others.collect, 0.0
    if position == 0:
        snr = power * cluster.uplink_snr
        uplink, uplink_slope = link_time(snr, cluster.uplink_s, waterfall)
        if uplink > slowest:
            slowest, slowest_slope = uplink, uplink_slope
        sums, sums_slope = sums + uplink, sums_slope + uplink_slope
        air, air_slope = link_time(snr, cluster.upload_s, 0.0)
        once, once_slope = once + air, air_slope
        exponent += 1.0 / snr
    else:
        snr = power * chain[position, COLLECT_SNR]
        log = math.log1p(snr)
        air = chain[position, COLLECT_BITS] / log
        air_slope = -air * snr / ((1.0 + snr) * log)
        if air > once:
            once, once_slope = air, air_slope
    if backward > others.backward:
        slowest, slowest_slope = slowest + backward, slowest_slope + backward_slope
    else:
        slowest += others.backward
    fill, steps = cluster.fill, parameters.local_steps
    price = chain[position, PRICE] * power
    air, air_slope = steps * sums + air, steps * sums_slope + air_slope
    loss = cluster.loss_price * parameters.waterfall_threshold * exponent
    spent = cluster.power_price * power
    value = (
        cluster.delay_weight * (fill * sums + (steps - fill) * slowest + once) + price * air + spent + loss
    )
    slope = (
        cluster.delay_weight * (fill * sums_slope + (steps - fill) * slowest_slope + once_slope)
        + price * (air + air_slope)
        + spent
        - loss
    )
    return value, slope


@compiled_leaf
def set_power(position: int, power: float, chain: FloatArray, cluster: ChainConstants) -> None:
    """Write a node's power and the times that it decides into the chain (the CU's uplink apart)."""
    forward_snr, backward_snr = power * chain[position, FORWARD_SNR], power * chain[position, BACKWARD_SNR]
    chain[position, POWER] = power
    chain[position, FORWARD], _ = link_time(forward_snr, cluster.forward_s, cluster.waterfall)
    chain[position, BACKWARD], _ = link_time(backward_snr, cluster.backward_s, cluster.waterfall)
    if position > 0:
        snr, seconds = power * chain[position, COLLECT_SNR], chain[position, COLLECT_BITS]
        chain[position, COLLECT], _ = link_time(snr, seconds, 0.0)


@compiled_leaf
def chain_cost(chain: FloatArray, count: int, cluster: ChainConstants, parameters: Parameters) -> float:
    """``w T_n + C_n + interference price x mean active power`` from the times in the chain."""
    snr = chain[0, POWER] * cluster.uplink_snr
    uplink, _ = link_time(snr, cluster.uplink_s, cluster.waterfall)
    upload, _ = link_time(snr, cluster.upload_s, 0.0)
    forward, backward = max(cluster.least_forward, uplink), cluster.least_backward
    sums, collect, exponent = uplink, 0.0, 1.0 / snr
    cost = chain[0, PRICE] * chain[0, POWER] * (parameters.local_steps * uplink + upload)
    for i in range(count):
        power = chain[i, POWER]
        airtime = chain[i, FORWARD] + chain[i, BACKWARD]
        forward = max(forward, chain[i, FORWARD])
        backward = max(backward, chain[i, BACKWARD])
        collect = max(collect, chain[i, COLLECT])
        sums += airtime
        cost += (
            chain[i, PRICE] * (parameters.local_steps * airtime + chain[i, COLLECT]) + cluster.power_price
        ) * power
        exponent += (1.0 / chain[i, FORWARD_SNR] + 1.0 / chain[i, BACKWARD_SNR]) / power
    fill = cluster.fill
    delay = fill * sums + (parameters.local_steps - fill) * (forward + backward) + collect + upload
    total: float = cluster.fixed + cluster.delay_weight * delay + cost
    total += cluster.loss_price * parameters.waterfall_threshold * exponent
    return total


@compiled_leaf
def others_of(position: int, chain: FloatArray, count: int, cluster: ChainConstants) -> Others:
    """Slowest forward and backward elements and longest collection without those of one node's power."""
    forward, backward, collect = cluster.least_forward, cluster.least_backward, 0.0
    if position > 0:
        uplink, _ = link_time(chain[0, POWER] * cluster.uplink_snr, cluster.uplink_s, cluster.waterfall)
        forward = max(forward, uplink)
    for i in range(count):
        if i != position:
            forward = max(forward, chain[i, FORWARD])
            backward = max(backward, chain[i, BACKWARD])
            collect = max(collect, chain[i, COLLECT])
    return Others(forward, backward, collect)
