"""One cluster's priced round in scalars, and the noise that couples the clusters, for compiled search loops.

The physics is that of played rounds (:mod:`collapipe_env.kernels.cluster_chain`), so only plans with one
device in each stage are covered. The tests compare this module with ``round_costs``.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf, inlined
from collapipe_env.kernels.cluster_chain import (
    CU_LEAST,
    CU_PRICE,
    CU_RISE,
    CU_START,
    DELAY_PRICE,
    FIXED_COST,
    LOSS_PRICE,
    LOSSES,
    ONCE,
    SUMMARY,
    delay_of,
    edge_joules,
    edge_times,
    link_joules,
    price_chain,
    receiving_joules,
)
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.queues import update_backlog
from collapipe_env.physics.radio import power_in_a_channel

from .moving import moving_costs
from .round_input import RoundInput, micro_batches_of, server_blocks_of, setting_of

LEAST_PRICE = 0.02
"""Least price of a second, over ``V``: where waiting would pay, plans only stop hurrying."""
ENDLESS_S = 1e100
"""Stands for the length of a round without end, in which radios that are off still use nothing [s]."""


@inlined
def time_counts(parameters: Numbers) -> bool:
    """Whether allowances depend on a round's delay: budgets per second grant more, idle radios use more."""
    return bool(parameters.budget_period_s > 0.0 or parameters.radio_power.idle_w > 0.0)


@inlined
def delay_price(inputs: RoundInput, parameters: Numbers) -> float:
    """Price of a second [1/s]: ``V``, less what a second grants the queues and plus what idle radios use."""
    V = parameters.tradeoff_v
    return float(max(V - inputs.common[0].relief, LEAST_PRICE * V))


@inlined
def granted_in(seconds: float, parameters: Numbers) -> float:
    """Budgets that a round of a length [s] grants every node: 1, or its part of the period of a budget."""
    period = parameters.budget_period_s
    return seconds / period if period > 0.0 else 1.0


@inlined
def allowance_of(n: int, i: int, seconds: float, inputs: RoundInput, parameters: Numbers) -> float:
    """Budgets that a round leaves a node for its work, ``a``: what it grants, less its idle radio's energy.

    The search prices energies without those of idle radios, which depend on the whole round.

    Args:
        i: The node, 0 for the CU.
        seconds: ``T`` [s].
    """
    idle: float = inputs.idle_w[n, i] * seconds / inputs.system.budget[n, i]
    return granted_in(seconds, parameters) - idle


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

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        option: ``M_n`` and what goes with it (see :mod:`.option_table`).
        noise_w: Noise plus interference of its device-to-device links [W].
        summary: Receives the columns of :mod:`~collapipe_env.kernels.cluster_chain`, then the nodes' energies
            and more (SUMMARY + 4 (K+1),).
    """
    M, setting = micro_batches_of(option, inputs), setting_of(option, inputs)
    H, kept = parameters.local_steps, float(server_blocks_of(option, inputs))
    price_chain(parameters, inputs.system, n, segments, power, noise_w, M, H, setting, kept, summary)
    summary[ONCE] += moving_costs(n, segments, power, inputs, parameters, summary[SUMMARY:])
    summary[SUMMARY] += receiving_joules(parameters, inputs.common[0].heard_s)
    cost = inputs.common[0].loss_price * summary[LOSSES] + kept * inputs.common[0].server_price
    for i in range(power.shape[0]):
        cost += inputs.price[n, i] * summary[SUMMARY + i]
        if i > 0 and segments[i - 1] > 0:
            cost += inputs.use_price[n, i - 1]
    summary[FIXED_COST] = cost
    summary[CU_PRICE] = inputs.price[n, 0]
    summary[LOSS_PRICE] = inputs.common[0].loss_price
    summary[DELAY_PRICE] = delay_price(inputs, parameters)


@compiled_leaf
def price_edge_joules(n: int, inputs: RoundInput, parameters: Numbers, summary: FloatArray) -> None:
    """Add to a cluster's summary how the price of its CU's energy follows that of the edge link.

    Only a search for shares of the uplink needs it.
    """
    summary[CU_LEAST], summary[CU_START], summary[CU_RISE] = inputs.price[n, 0], 0.0, 0.0
    if inputs.common[0].exact > 0.0:
        budget = inputs.system.budget[n, 0]
        allowance = allowance_of(n, 0, inputs.common[0].round_s, inputs, parameters)
        summary[CU_LEAST] = inputs.extra_price[n, 0]
        summary[CU_START] = (inputs.backlog[n, 0] + summary[SUMMARY] / budget - allowance) / budget
        summary[CU_RISE] = 1.0 / (budget * budget)


@compiled_leaf
def delay_and_cost(share: float, summary: FloatArray, parameters: Numbers) -> tuple[float, float]:
    """A cluster's delay ``T_n`` [s] and priced energy for a share of the uplink.

    Args:
        share: ``beta_n``.
    """
    uplink, upload, downlink, exponent = edge_times(parameters, share, summary)
    cost = summary[FIXED_COST]
    if summary[CU_PRICE] > 0.0:  # over a dead link energy has no end
        cost += summary[CU_PRICE] * link_joules(parameters, uplink, upload, downlink, summary)
    return delay_of(uplink, upload, downlink, summary), cost + summary[LOSS_PRICE] * exponent


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
    """Energy of a node in the round, the CU's edge link included and idle radios not [J].

    Args:
        i: The node, 0 for the CU.
        share: ``beta_n``.
    """
    joules = float(summary[SUMMARY + i])
    if i == 0:
        joules += edge_joules(parameters, share, summary)
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
    n: int, share: float, summary: FloatArray, seconds: float, inputs: RoundInput, parameters: Numbers
) -> float:
    """Drift of a cluster's nodes (:func:`node_drift`) plus extra prices, less the energy at present prices.

    Args:
        share: ``beta_n``.
        seconds: ``T`` [s].
    """
    difference = 0.0
    for i in range(inputs.price.shape[1]):
        joules = node_joules(i, share, summary, parameters)
        allowance = allowance_of(n, i, seconds, inputs, parameters)
        difference += node_drift(inputs.backlog[n, i], joules / inputs.system.budget[n, i], allowance)
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
        z, budget = inputs.backlog[n, i], inputs.system.budget[n, i]
        allowance = allowance_of(n, i, inputs.common[0].round_s, inputs, parameters)
        inputs.price[n, i] = inputs.extra_price[n, i] + price_after(z, joules, budget, allowance)


@compiled_leaf
def mean_active_power(segments: IntArray, power: FloatArray, parameters: Numbers) -> float:
    """Mean power of a cluster's CU and used devices in a sub-channel [W], which disturbs the other clusters.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
    """
    total = float(power[0])
    for k in range(segments.shape[0]):
        if segments[k] > 0:
            total += power[k + 1]
    return float(power_in_a_channel(total, parameters.sharing))


@compiled_inner
def noise_of(segments: IntArray, power: FloatArray, inputs: RoundInput, parameters: Numbers) -> FloatArray:
    """Noise plus interference of every cluster's device-to-device links (N,) [W].

    Args:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
    """
    clusters = segments.shape[0]
    noise, mean = np.empty(clusters), np.empty(clusters)
    for m in range(clusters):
        mean[m] = mean_active_power(segments[m], power[m], parameters)
    _add_interference(mean, inputs, parameters, noise)
    return noise


@compiled_inner
def set_moving_noise(segments: IntArray, power: FloatArray, inputs: RoundInput, parameters: Numbers) -> None:
    """Set the noise plus interference of the phase in which moments move, under a plan.

    In this phase the CUs and the old and new owners of all clusters disturb each other.

    Args:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
        inputs: The environment; receives the noise (N,) [W].
    """
    clusters, devices = segments.shape
    blocks = inputs.held.shape[1]
    if blocks == 0:
        return
    mean = np.empty(clusters)
    for m in range(clusters):
        total = power[m, 0]
        for k in range(devices):
            involved = segments[m, k] > 0
            for block in range(blocks):
                involved = involved or inputs.held[m, block, k] > 0
            if involved:
                total += power[m, k + 1]
        mean[m] = total / parameters.sharing.channels
    _add_interference(mean, inputs, parameters, inputs.moving_noise)


@compiled_leaf
def _add_interference(
    mean_power: FloatArray, inputs: RoundInput, parameters: Numbers, noise: FloatArray
) -> None:
    """Write noise plus interference (N,) [W] for the clusters' mean powers (N,) [W]."""
    clusters = noise.shape[0]
    for n in range(clusters):
        noise[n] = parameters.noise_density * parameters.d2d_bandwidth_hz
    for m in range(clusters):
        for n in range(clusters):
            if n != m:
                noise[n] += inputs.system.cross_gain[m, n] * mean_power[m]
