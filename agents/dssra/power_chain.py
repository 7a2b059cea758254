"""A cluster's cost as a function of the powers in its chain of active nodes, the CU first.

For given segments and share everything but the airtimes is fixed. The chain keeps every node's power and
the airtimes that it decides, so that a new power of one node is priced without touching the other links.
``cluster_costs`` holds the same formulas for a whole plan; the tests hold the two together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.arrays import FloatArray
from collapipe_env.compiled import compiled_leaf
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
    share.
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


class Others(NamedTuple):
    """The slowest elements and the longest collection without those of one node's power."""

    forward: float
    backward: float
    collect: float


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
    power = math.exp(log_power)
    waterfall = parameters.waterfall_threshold if parameters.repeat else 0.0
    x = power * chain[position, FORWARD_SNR]
    log = math.log1p(x)
    forward = cluster.forward_s / log
    forward_fall = x / ((1.0 + x) * log) + waterfall / x
    x = power * chain[position, BACKWARD_SNR]
    log = math.log1p(x)
    backward = cluster.backward_s / log
    backward_fall = x / ((1.0 + x) * log) + waterfall / x
    if parameters.repeat:
        forward *= math.exp(waterfall / (power * chain[position, FORWARD_SNR]))
        backward *= math.exp(waterfall / x)
    exponent = (1.0 / chain[position, FORWARD_SNR] + 1.0 / chain[position, BACKWARD_SNR]) / power
    forward_slope, backward_slope = -forward * forward_fall, -backward * backward_fall
    sums, sums_slope = forward + backward, forward_slope + backward_slope
    slowest, slowest_slope = others.forward, 0.0
    if forward > slowest:
        slowest, slowest_slope = forward, forward_slope
    once, once_slope = others.collect, 0.0
    air, air_slope = 0.0, 0.0
    if position == 0:
        x = power * cluster.uplink_snr
        log = math.log1p(x)
        fall = x / ((1.0 + x) * log)
        upload = cluster.upload_s / log
        uplink = cluster.uplink_s / log
        if parameters.repeat:
            uplink *= math.exp(waterfall / x)
        uplink_slope = -uplink * (fall + waterfall / x)
        if uplink > slowest:
            slowest, slowest_slope = uplink, uplink_slope
        sums, sums_slope = sums + uplink, sums_slope + uplink_slope
        once, once_slope = once + upload, -upload * fall
        air, air_slope = upload, once_slope
        exponent += 1.0 / x
    else:
        x = power * chain[position, COLLECT_SNR]
        log = math.log1p(x)
        air = chain[position, COLLECT_BITS] / log
        air_slope = -air * x / ((1.0 + x) * log)
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
def set_power(
    position: int, power: float, chain: FloatArray, cluster: ChainConstants, parameters: Parameters
) -> None:
    """Write a node's power and the times that it decides into the chain (the CU's uplink apart)."""
    chain[position, POWER] = power
    x = power * chain[position, FORWARD_SNR]
    y = power * chain[position, BACKWARD_SNR]
    forward, backward = cluster.forward_s / math.log1p(x), cluster.backward_s / math.log1p(y)
    if parameters.repeat:
        forward *= math.exp(parameters.waterfall_threshold / x)
        backward *= math.exp(parameters.waterfall_threshold / y)
    chain[position, FORWARD], chain[position, BACKWARD] = forward, backward
    if position > 0:
        chain[position, COLLECT] = chain[position, COLLECT_BITS] / math.log1p(
            power * chain[position, COLLECT_SNR]
        )


@compiled_leaf
def _uplink(power: float, cluster: ChainConstants, parameters: Parameters) -> tuple[float, float]:
    """Times of a mini-batch's activations and of the update on the uplink [s]."""
    x = power * cluster.uplink_snr
    log = math.log1p(x)
    repeats = math.exp(parameters.waterfall_threshold / x) if parameters.repeat else 1.0
    return cluster.uplink_s / log * repeats, cluster.upload_s / log


@compiled_leaf
def chain_cost(chain: FloatArray, count: int, cluster: ChainConstants, parameters: Parameters) -> float:
    """``w T_n + C_n + interference price x mean active power`` from the times in the chain."""
    uplink, upload = _uplink(chain[0, POWER], cluster, parameters)
    forward, backward = max(cluster.least_forward, uplink), cluster.least_backward
    sums, collect, cost, exponent = uplink, 0.0, 0.0, 0.0
    cost = chain[0, PRICE] * chain[0, POWER] * (parameters.local_steps * uplink + upload)
    exponent = 1.0 / (chain[0, POWER] * cluster.uplink_snr)
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
def others_of(
    position: int, chain: FloatArray, count: int, cluster: ChainConstants, parameters: Parameters
) -> Others:
    """Slowest forward and backward elements and longest collection without those of one node's power."""
    forward, backward, collect = cluster.least_forward, cluster.least_backward, 0.0
    if position > 0:
        forward = max(forward, _uplink(chain[0, POWER], cluster, parameters)[0])
    for i in range(count):
        if i != position:
            forward = max(forward, chain[i, FORWARD])
            backward = max(backward, chain[i, BACKWARD])
            collect = max(collect, chain[i, COLLECT])
    return Others(forward, backward, collect)
