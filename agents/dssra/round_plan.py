"""A round's plan: its true objective, and each cluster's best answer to the others' plans.

Given segments and powers, ``bandwidth.share_band`` settles shares and the slowest cluster exactly and tells
what each cluster's delay is worth; the slope of the other clusters' costs with respect to their interference
tells what a watt of mean power costs them. At these prices every cluster improves its plan on its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.kernels.cluster_chain import (
    CU_PRICE,
    DELAY_PRICE,
    FIXED_COST,
    SUMMARY,
    chain_size,
    edge_joules,
)
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.queues import update_backlog

from .bandwidth import earliest_deadline, evaluate_shares, later_shares, share_band, weigh_delays
from .cluster_costs import (
    ENDLESS_S,
    allowance_of,
    delay_and_cost,
    delay_price,
    exact_difference,
    granted_in,
    node_drift,
    noise_of,
    price_after,
    price_edge_joules,
    reprice_cluster,
    set_moving_noise,
    summarise_cluster,
    time_counts,
)
from .round_input import RoundInput, server_blocks_of

REPRICED = 3  # times that the price of a second follows the queues
SLOPE_STEP = 1e-3  # relative step of the finite differences


class RoundPlan(NamedTuple):
    """Segments and powers with their best shares, and the prices that go with them.

    Attributes:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
        share: ``beta`` (N,).
        option: Options (N,) (see :mod:`.option_table`).
        weight: Worth of a second of each cluster's delay, ``w`` (N,) [1/s].
        noise: Noise plus interference of the device-to-device links (N,) [W].
    """

    segments: IntArray
    power: FloatArray
    share: FloatArray
    option: IntArray
    weight: FloatArray
    noise: FloatArray


@compiled_leaf
def broadcast_of(options: IntArray, inputs: RoundInput) -> float:
    """``T_bc`` of a plan [s]: blocks that all clusters leave to the server are not broadcast.

    Args:
        options: Options of the clusters (N,).
    """
    common = inputs.common[0]
    broadcast = float(common.broadcast_s)
    if common.most_server > 0:
        most = least = server_blocks_of(options[0], inputs)
        for n in range(1, options.shape[0]):
            kept = server_blocks_of(options[n], inputs)
            most, least = max(most, kept), min(least, kept)
        broadcast += (most - least) * common.server_block_broadcast_s - most * common.block_broadcast_s
    return broadcast


@compiled_leaf
def blocks_on_server(options: IntArray, inputs: RoundInput) -> float:
    """Blocks that the server runs for all clusters together."""
    kept = 0.0
    for n in range(options.shape[0]):
        kept += server_blocks_of(options[n], inputs)
    return kept


@compiled_inner
def evaluate(
    segments: IntArray,
    power: FloatArray,
    option: IntArray,
    share: FloatArray,
    inputs: RoundInput,
    parameters: Numbers,
) -> tuple[float, RoundPlan]:
    """True objective of segments and powers with their best shares.

    Args:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
        option: Options (N,).
        share: First guess of the shares, with sum 1 (N,).
        inputs: The environment; under the exact drift it receives the CUs' prices.

    Returns:
        ``V max_n T_n + sum z e``, or under the exact drift ``V max_n T_n + L(t+1) - L(t)`` less the drift's
        least value; and the plan.
    """
    clusters = segments.shape[0]
    noise = noise_of(segments, power, inputs, parameters)
    set_moving_noise(segments, power, inputs, parameters)
    broadcast = inputs.common[0].heard_s = broadcast_of(option, inputs)
    summary = np.empty((clusters, chain_size(power.shape[1])))
    for n in range(clusters):
        summarise_cluster(n, segments[n], power[n], option[n], noise[n], inputs, parameters, summary[n])
        price_edge_joules(n, inputs, parameters, summary[n])
    share, weight, delay = share.copy(), np.empty(clusters), np.empty(clusters)
    further = broadcast - inputs.common[0].broadcast_s
    if inputs.common[0].exact > 0.0:
        objective = _share_exactly(
            summary, inputs, parameters, share, weight, delay, broadcast, blocks_on_server(option, inputs)
        )
        objective += parameters.tradeoff_v * further
    else:
        objective = share_band(summary, parameters, share, weight, delay)
        objective += delay_price(inputs, parameters) * further
    return objective, RoundPlan(segments, power, share, option, weight, noise)


@compiled_inner
def _share_exactly(
    summary: FloatArray,
    inputs: RoundInput,
    parameters: Numbers,
    share: FloatArray,
    weight: FloatArray,
    delay: FloatArray,
    broadcast: float,
    kept: float,
) -> float:
    """Shares that suit the CUs' queues after the round, and the exact objective.

    Args:
        summary: Summaries (N, SUMMARY + K + 1); the CUs' prices in it are overwritten.
        inputs: The environment; receives the CUs' prices.
        share: First guess with sum 1 (N,); receives the shares.
        weight: Receives the weights (N,) [1/s].
        delay: Room for ``T_n`` (N,) [s].
        broadcast: ``T_bc`` [s].
        kept: Blocks on the server, of all clusters.

    Returns:
        ``V max_n T_n + L(t+1) - L(t)`` less the drift's least value.
    """
    clusters = share.shape[0]
    least, most = np.empty(clusters), np.empty(clusters)
    earliest_deadline(summary, parameters, share, least, most)
    _reprice_uplinks(share, summary, inputs, parameters)
    price, wanting = weigh_delays(summary, parameters, share, least, weight)
    best = evaluate_shares(summary, parameters, share, delay)
    best += _beyond_prices(share, delay, summary, inputs, parameters, broadcast, kept)
    if not wanting:
        return best
    earliest = share.copy()
    later_shares(price, most, summary, parameters, share, weight)
    _reprice_uplinks(share, summary, inputs, parameters)
    value = evaluate_shares(summary, parameters, share, delay)
    value += _beyond_prices(share, delay, summary, inputs, parameters, broadcast, kept)
    if value < best:
        return value
    for n in range(clusters):
        share[n] = earliest[n]
    _reprice_uplinks(share, summary, inputs, parameters)
    return best


@compiled_leaf
def _beyond_prices(
    share: FloatArray,
    delay: FloatArray,
    summary: FloatArray,
    inputs: RoundInput,
    parameters: Numbers,
    broadcast: float,
    kept: float,
) -> float:
    """The exact objective less the one at the prices of energy and, where time counts, of delay.

    The objective leaves out the least drift of a round that grants 1, whatever the plan grants.

    Args:
        share: ``beta`` (N,).
        delay: ``T_n`` (N,) [s].
        summary: Summaries (N, SUMMARY + K + 1).
        broadcast: ``T_bc`` [s].
        kept: Blocks on the server, of all clusters.
    """
    common = inputs.common[0]
    total, seconds = 0.0, float(common.round_s)
    if time_counts(parameters):
        longest = _longest(delay)
        seconds = min(longest + broadcast, ENDLESS_S)
        total = (parameters.tradeoff_v - summary[0, DELAY_PRICE]) * longest
        # Least drift of a round that grants this, less that of a round that grants 1.
        for n in range(share.shape[0]):
            for i in range(inputs.backlog.shape[1]):
                allowance = allowance_of(n, i, seconds, inputs, parameters)
                total += node_drift(inputs.backlog[n, i], 1.0 - allowance, 1.0)
        total += node_drift(common.server_backlog, 1.0 - granted_in(seconds, parameters), 1.0)
    for n in range(share.shape[0]):
        total += exact_difference(n, share[n], summary[n], seconds, inputs, parameters)
    granted = granted_in(seconds, parameters)
    total += node_drift(common.server_backlog, kept * common.server_ratio, granted)
    return float(total - common.server_price * kept)


@compiled_leaf
def _longest(delay: FloatArray) -> float:
    """Delay of the slowest cluster [s]."""
    longest = 0.0
    for n in range(delay.shape[0]):
        longest = max(longest, delay[n])
    return longest


@compiled_leaf
def _reprice_uplinks(share: FloatArray, summary: FloatArray, inputs: RoundInput, parameters: Numbers) -> None:
    """Set the CUs' prices to those after the round.

    Args:
        share: ``beta`` (N,).
        summary: Summaries (N, SUMMARY + K + 1); receives the prices.
        inputs: The environment; receives the prices.
    """
    for n in range(share.shape[0]):
        joules = summary[n, SUMMARY] + edge_joules(parameters, share[n], summary[n])
        budget, backlog = inputs.system.budget[n, 0], inputs.backlog[n, 0]
        allowance = allowance_of(n, 0, inputs.common[0].round_s, inputs, parameters)
        price = inputs.extra_price[n, 0] + price_after(backlog, joules, budget, allowance)
        summary[n, FIXED_COST] += (price - inputs.price[n, 0]) * summary[n, SUMMARY]
        inputs.price[n, 0] = summary[n, CU_PRICE] = price


@compiled_inner
def reprice(plan: RoundPlan, inputs: RoundInput, parameters: Numbers) -> None:
    """Set all prices of energy to those after the round under a plan.

    Where time counts, the allowances become the plan's and the price of delay follows them.

    Args:
        inputs: The environment; receives the prices.
    """
    clusters, nodes = plan.power.shape
    summary, period = np.empty(chain_size(nodes)), parameters.budget_period_s
    inputs.common[0].heard_s = broadcast = broadcast_of(plan.option, inputs)
    if time_counts(parameters):
        delay = np.empty(clusters)
        for n in range(clusters):
            option, noise = plan.option[n], plan.noise[n]
            summarise_cluster(n, plan.segments[n], plan.power[n], option, noise, inputs, parameters, summary)
            delay[n] = delay_and_cost(plan.share[n], summary, parameters)[0]
        inputs.common[0].round_s = min(_longest(delay) + broadcast, ENDLESS_S)
    held = idle = 0.0
    for n in range(clusters):
        option, noise = plan.option[n], plan.noise[n]
        summarise_cluster(n, plan.segments[n], plan.power[n], option, noise, inputs, parameters, summary)
        reprice_cluster(n, plan.share[n], summary, inputs, parameters)
        for i in range(nodes):
            of_queue = inputs.price[n, i] - inputs.extra_price[n, i]
            held += of_queue * inputs.system.budget[n, i]
            idle += of_queue * inputs.idle_w[n, i]
    kept = blocks_on_server(plan.option, inputs) * inputs.common[0].server_ratio
    granted = granted_in(inputs.common[0].round_s, parameters)
    after = update_backlog(inputs.common[0].server_backlog, kept, granted)
    inputs.common[0].server_price = after * inputs.common[0].server_ratio
    if time_counts(parameters):
        # A server without a budget has a queue of 0, which stays 0.
        inputs.common[0].relief = (held + after) / period - idle if period > 0.0 else -idle


@compiled_inner
def evaluate_at_length(
    segments: IntArray,
    power: FloatArray,
    option: IntArray,
    share: FloatArray,
    inputs: RoundInput,
    parameters: Numbers,
) -> tuple[float, RoundPlan]:
    """The same as :func:`evaluate`, with the price of a second at the queues after the round."""
    value, plan = evaluate(segments, power, option, share, inputs, parameters)
    if time_counts(parameters) and inputs.common[0].exact > 0.0:
        for _ in range(REPRICED):
            reprice(plan, inputs, parameters)
            value, plan = evaluate(segments, power, option, plan.share, inputs, parameters)
    return value, plan


@compiled_inner
def interference_prices(
    plan: RoundPlan, weight: FloatArray, inputs: RoundInput, parameters: Numbers
) -> FloatArray:
    """Price of a watt of each cluster's mean power to the others (N,) [1/W], by finite differences.

    Args:
        weight: ``w`` (N,) [1/s].
    """
    clusters = weight.shape[0]
    summary = np.empty(chain_size(plan.power.shape[1]))
    price = np.empty(clusters)
    for n in range(clusters):
        price[n] = 0.0
    for m in range(clusters):
        rise = 0.0
        for side in range(2):
            level, option = plan.noise[m] * (1.0 + SLOPE_STEP * side), plan.option[m]
            summarise_cluster(m, plan.segments[m], plan.power[m], option, level, inputs, parameters, summary)
            delay, cost = delay_and_cost(plan.share[m], summary, parameters)
            rise += (2.0 * side - 1.0) * (weight[m] * delay + cost)
        slope = rise / (SLOPE_STEP * plan.noise[m])
        for n in range(clusters):
            if n != m:
                price[n] += inputs.system.cross_gain[n, m] * slope
    return price
