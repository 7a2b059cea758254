"""Transmit powers of one cluster for given segments and share: exact searches, one node at a time.

A node has one power for up to three links (activations to the next node, gradients to the previous one,
its segment to the CU; the CU: first hop, last hop, uplink), so the closed form for a single link
(``closed_forms.optimal_power``) is only the start. The cluster's true cost as a function of one power's
logarithm, the other powers fixed, is convex with kinks where the node's links become the slowest elements;
its slope is known in closed form, so a bracket and regula falsi on the slope find its minimum in a few
evaluations. A common factor of all powers is searched too, because two equally slow links stop the node-wise
search. The cost is ``w T_n + C_n + interference price x mean active power``.
"""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.physics.delay import edge_time, stage_time
from collapipe_env.physics.overheads import latency_of_chain, launch_time, update_time
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD

from .closed_forms import optimal_power
from .cluster_costs import LN2, delay_and_cost, exact_difference, mean_active_power, summarise_cluster
from .options import (
    block_joules,
    micro_batches_of,
    ratio_of,
    saving_of,
    server_blocks_of,
    server_seconds_of,
    update_bits_of,
)
from .power_chain import (
    BACKWARD_HEARD,
    BACKWARD_SNR,
    COLLECT,
    COLLECT_BITS,
    COLLECT_HEARD,
    COLLECT_SNR,
    COLUMNS,
    FORWARD_HEARD,
    FORWARD_SNR,
    POWER,
    PRICE,
    RELAY,
    RELAY_BITS,
    RELAY_HEARD,
    RELAY_SNR,
    ChainConstants,
    Others,
    chain_cost,
    node_cost,
    others_of,
    set_power,
)
from .round_input import ClusterTerms, RoundInput

_RESOLUTION = 0.01  # of a power's logarithm
_WORTHLESS = 1e-6  # relative gain of a node's cost that is not worth a search
_FIRST_STEP = 0.2  # of a power's logarithm, in search of a bracket
_FACTOR_STEP = 0.16  # logarithm of the common factors tried first


@compiled_leaf
def starting_power(
    n: int, node: int, delay_weight: float, noise_w: float, inputs: RoundInput, parameters: Parameters
) -> float:
    """Closed-form power of a node of a cluster, for one typical link.

    The typical gain of a device is the geometric mean of its gains to the CU and to devices that can hold
    blocks. The CU's typical link is its uplink.

    Args:
        node: 0 for the CU, k + 1 for device k.
        delay_weight: ``w_n`` [1/s].
        noise_w: Noise plus interference of the device-to-device links [W].
        inputs: The environment.
        parameters: The scenario.

    Returns:
        The power [W].
    """
    gain, noise = inputs.uplink_gain[n], parameters.uplink_noise_w / 4.0
    if node > 0:
        total, count = 0.0, 0
        for other in range(inputs.gain.shape[1]):
            if other != node and (other == 0 or inputs.cap[n, other - 1] > 0):
                total += math.log(max(inputs.gain[n, node, other], 1e-300))
                count += 1
        gain, noise = math.exp(total / count), noise_w
    return optimal_power(
        delay_weight * parameters.local_steps,
        inputs.price[n, node],
        gain,
        noise,
        parameters.power_min_w,
        parameters.power_max_w,
    )


@compiled_leaf
def cluster_cost(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    inputs: RoundInput,
    parameters: Parameters,
    summary: FloatArray,
) -> float:
    """``w T_n + C_n + interference price x mean active power``.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan, and prices.
        inputs: The environment.
        parameters: The scenario.
        summary: Receives the cluster's summary (SUMMARY + K + 1,).
    """
    M = terms.option
    summarise_cluster(n, segments, power, M, terms.noise_w, inputs, parameters, summary)
    delay, cost = delay_and_cost(terms.share, summary, parameters)
    if inputs.exact[0] > 0.0:
        cost += exact_difference(n, terms.share, summary, inputs.allowance[0], inputs, parameters)
    disturbing = terms.interference_price * mean_active_power(segments, power)
    return terms.delay_weight * delay + cost + disturbing


@compiled_leaf
def _best_log_power(
    position: int,
    here: float,
    low: float,
    high: float,
    chain: FloatArray,
    others: Others,
    cluster: ChainConstants,
    parameters: Parameters,
) -> float:
    """Minimum of the convex node cost between two log-powers, never worse than ``here``."""
    best, slope = node_cost(here, position, chain, others, cluster, parameters)
    best_x = here
    sign = -1.0 if slope > 0.0 else 1.0
    end = low if slope > 0.0 else high
    # A convex function falls by at most its slope times the distance.
    if abs(slope) * abs(end - here) <= _WORTHLESS * best:
        return here
    near, near_slope, step = here, slope, _FIRST_STEP
    while True:
        far = near + sign * step
        if sign * (far - end) >= 0.0:
            far = end
        value, far_slope = node_cost(far, position, chain, others, cluster, parameters)
        if value < best:
            best, best_x = value, far
        if sign * far_slope >= 0.0:
            break
        if far == end:
            return best_x
        near, near_slope, step = far, far_slope, 3.0 * step
    # The minimum lies between near and far: regula falsi, with the slope of an end that stays halved.
    stayed = 0
    while abs(far - near) > _RESOLUTION:
        part = min(max(near_slope / (near_slope - far_slope), 0.1), 0.9)
        x = near + part * (far - near)
        value, slope = node_cost(x, position, chain, others, cluster, parameters)
        if value < best:
            best, best_x = value, x
        if sign * slope < 0.0:
            gain = abs(slope * (far - x))
            near, near_slope = x, slope
            if stayed == 1:
                far_slope *= 0.5
            stayed = 1
        else:
            gain = abs(slope * (near - x))
            far, far_slope = x, slope
            if stayed == -1:
                near_slope *= 0.5
            stayed = -1
        if gain <= _WORTHLESS * best:
            break
    return best_x


@compiled_leaf
def _copy_chain(source: FloatArray, target: FloatArray) -> None:
    for i in range(source.shape[0]):
        for column in range(COLUMNS):
            target[i, column] = source[i, column]


@compiled_inner
def search_powers(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    inputs: RoundInput,
    parameters: Parameters,
    passes: int,
) -> float:
    """Improve a cluster's powers in place by coordinate searches.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W]; receives the new ones (idle devices keep theirs).
        terms: Terms left by the rest of the plan, and prices.
        inputs: The environment.
        parameters: The scenario.
        passes: Most passes over all nodes; fewer if the cost stops falling.

    Returns:
        The cost ``w T_n + C_n + interference price x mean active power``.
    """
    # The CU begins and closes the chain.
    nodes = np.empty(power.shape[0] + 1, dtype=np.int64)
    nodes[0], last = 0, 0
    option, noise_w, share, delay_weight, interference_price = terms
    M = micro_batches_of(option)
    extra, steps = parameters.overheads, parameters.local_steps
    ratio, B = ratio_of(option, inputs), parameters.batch_size
    server = B * server_seconds_of(option, inputs, parameters) + M * extra.server_s
    forward, backward = server, BACKWARD_OVER_FORWARD * server
    forward_max, backward_max, fixed, update = forward, backward, 0.0, 0.0
    for k in range(segments.shape[0]):
        if segments[k] > 0:
            last += 1
            nodes[last] = k + 1
            seconds = stage_time(B, segments[k], parameters.block_forward_flops, inputs.speed[n, k])
            seconds += M * launch_time(segments[k], extra.block_cycles, inputs.clock[n, k])
            forward, backward = forward + seconds, backward + ratio * seconds
            forward_max, backward_max = max(forward_max, seconds), max(backward_max, ratio * seconds)
            update = max(update, update_time(segments[k], extra.update_cycles, inputs.clock[n, k]))
            joules = segments[k] * block_joules(n, k, option, inputs)
            fixed += inputs.price[n, k + 1] * joules
    count = last + 1
    nodes[count] = 0
    edge_message = M * extra.edge_message_s
    downlink = edge_time(B, parameters.gradient_bits, share * inputs.downlink_rate[n]) + edge_message
    fill = steps / M
    fixed += server_blocks_of(option) * inputs.server_queue[0]
    saved = saving_of(n, option, inputs)
    fixed += delay_weight * steps * (2.0 * latency_of_chain(last, extra) + update - saved)
    header = M * extra.header_bits
    hertz = share * parameters.uplink_bandwidth_hz
    cluster = ChainConstants(
        delay_weight,
        fill,
        inputs.loss_price[n],
        interference_price / count,
        fixed + delay_weight * fill * (forward + backward + downlink),
        forward_max,
        max(backward_max, downlink),
        inputs.uplink_gain[n] / (parameters.uplink_noise_w * share),
        B * parameters.activation_bits * LN2 / hertz,
        update_bits_of(option, parameters) * LN2 / hertz,
        (B * parameters.activation_bits + header) * LN2 / parameters.d2d_bandwidth_hz,
        (B * parameters.gradient_bits + header) * LN2 / parameters.d2d_bandwidth_hz,
        M * extra.message_s,
        edge_message,
        parameters.transmissions,
    )
    chain, trial = np.empty((count, COLUMNS)), np.empty((count, COLUMNS))
    for i in range(count):
        node, after, before = nodes[i], nodes[i + 1], nodes[i - 1 if i > 0 else count - 1]
        chain[i, FORWARD_SNR] = inputs.gain[n, node, after] / noise_w
        chain[i, BACKWARD_SNR] = inputs.gain[n, node, before] / noise_w
        chain[i, PRICE] = inputs.price[n, node]
        chain[i, FORWARD_HEARD] = inputs.price[n, after] * parameters.radio_power.receive_w
        chain[i, BACKWARD_HEARD] = inputs.price[n, before] * parameters.radio_power.receive_w
        chain[i, COLLECT_SNR] = chain[i, COLLECT_BITS] = chain[i, COLLECT] = chain[i, COLLECT_HEARD] = 0.0
        if i > 0:
            chain[i, COLLECT_HEARD] = inputs.price[n, 0] * parameters.radio_power.receive_w
            chain[i, COLLECT_SNR] = inputs.gain[n, node, 0] / noise_w
            chain[i, COLLECT_BITS] = (
                segments[node - 1] * parameters.block_payload_bits * LN2 / parameters.d2d_bandwidth_hz
            )
        chain[i, RELAY_SNR] = chain[i, RELAY_BITS] = chain[i, RELAY] = chain[i, RELAY_HEARD] = 0.0
        if i > 0 and parameters.relay_bits > 0.0:
            chain[i, RELAY_HEARD] = inputs.price[n, node] * parameters.radio_power.receive_w
            chain[i, RELAY_SNR] = inputs.gain[n, 0, node] / noise_w
            chain[i, RELAY_BITS] = segments[node - 1] * parameters.relay_bits * LN2
            chain[i, RELAY_BITS] /= parameters.d2d_bandwidth_hz
    for i in range(count):
        set_power(i, power[nodes[i]], chain, cluster, parameters)
    low, high = math.log(parameters.power_min_w), math.log(parameters.power_max_w)
    cost = chain_cost(chain, count, cluster, parameters)
    step = _FACTOR_STEP
    for _ in range(passes):
        start = cost
        for i in range(count):
            others = others_of(i, chain, count, cluster, parameters)
            here = math.log(chain[i, POWER])
            found = _best_log_power(i, here, low, high, chain, others, cluster, parameters)
            if found != here:
                watts = min(max(math.exp(found), parameters.power_min_w), parameters.power_max_w)
                set_power(i, watts, chain, cluster, parameters)
        cost = chain_cost(chain, count, cluster, parameters)
        # Scale all powers by a common factor while that helps, or by its inverse if the first step does not.
        factor, turned = math.exp(step), False
        for _ in range(4):
            _copy_chain(chain, trial)
            for i in range(count):
                watts = min(max(factor * chain[i, POWER], parameters.power_min_w), parameters.power_max_w)
                set_power(i, watts, trial, cluster, parameters)
            scaled = chain_cost(trial, count, cluster, parameters)
            if scaled < cost:
                cost = scaled
                _copy_chain(trial, chain)
                turned = True
            elif not turned:
                factor, turned = 1.0 / factor, True
            else:
                break
        step *= 0.5
        if start - cost <= 1e-5 * abs(start):
            break
    for i in range(count):
        power[nodes[i]] = chain[i, POWER]
    return cost
