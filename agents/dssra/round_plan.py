"""A round's plan: its true objective, and each cluster's best answer to the others' plans.

Given segments and powers, ``bandwidth.share_band`` settles shares and the slowest cluster exactly and tells
what each cluster's delay is worth; the slope of the other clusters' costs with respect to their interference
tells what a watt of mean power is worth. With these prices every cluster improves its plan alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled_inner
from collapipe_env.physics.parameters import Parameters

from .bandwidth import earliest_deadline, evaluate_shares, later_shares, share_band, weigh_delays
from .closed_forms import minmax_upload
from .cluster_costs import (
    FIXED_COST,
    SUMMARY,
    UPLINK_PRICE,
    UPLINK_W,
    delay_and_cost,
    exact_difference,
    mean_active_power,
    price_after,
    reprice_cluster,
    summarise_cluster,
    uplink_joules,
)
from .power_search import cluster_cost, search_powers, starting_power
from .round_input import ClusterTerms, RoundInput
from .segment_dp import best_segments, plan_cost
from .segment_problem import segment_problem

POWER_PASSES = 3  # coordinate passes over a cluster's powers
LEAST_WEIGHT = 0.02  # of an equal part of V: a cluster with time to spare still prefers the faster plan
SHARE_STEPS = 6  # most steps of shares and the CUs' prices towards each other
SETTLED_PRICE = 1e-3  # relative to the objective, what a step may change of a CU's priced energy at the end
SLOPE_STEP = 1e-3  # relative, of the finite differences


class RoundPlan(NamedTuple):
    """Segments and powers with their best shares, and the prices that go with them.

    Attributes:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
        share: ``beta`` (N,).
        micro_batches: ``M`` (N,).
        weight: Worth of a second of each cluster's delay, ``w`` (N,) [1/s].
        noise: Noise plus interference of the device-to-device links (N,) [W].
    """

    segments: IntArray
    power: FloatArray
    share: FloatArray
    micro_batches: FloatArray
    weight: FloatArray
    noise: FloatArray


@compiled_inner
def noise_of(segments: IntArray, power: FloatArray, inputs: RoundInput, parameters: Parameters) -> FloatArray:
    """Noise plus interference of every cluster's device-to-device links (N,) [W].

    Args:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
        inputs: The environment.
        parameters: The scenario.
    """
    clusters = segments.shape[0]
    noise = np.empty(clusters)
    for n in range(clusters):
        noise[n] = parameters.noise_density * parameters.d2d_bandwidth_hz
    for m in range(clusters):
        mean = mean_active_power(segments[m], power[m])
        for n in range(clusters):
            if n != m:
                noise[n] += inputs.cross_gain[m, n] * mean
    return noise


@compiled_inner
def evaluate(
    segments: IntArray,
    power: FloatArray,
    micro_batches: FloatArray,
    share: FloatArray,
    inputs: RoundInput,
    parameters: Parameters,
) -> tuple[float, RoundPlan]:
    """True objective of segments and powers with their best shares.

    Args:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
        micro_batches: ``M`` (N,).
        share: First guess of the shares, with sum 1 (N,).
        inputs: The environment; under the exact drift it receives the CUs' prices.
        parameters: The scenario.

    Returns:
        ``V max_n T_n + sum z e``, or ``V max_n T_n + L(t+1) - L(t)`` less its least under the exact drift,
        and the plan.
    """
    clusters = segments.shape[0]
    noise = noise_of(segments, power, inputs, parameters)
    summary = np.empty((clusters, SUMMARY + power.shape[1]))
    for n in range(clusters):
        M = micro_batches[n]
        summarise_cluster(n, segments[n], power[n], M, noise[n], inputs, parameters, summary[n])
    share, weight, delay = share.copy(), np.empty(clusters), np.empty(clusters)
    if inputs.exact[0] > 0.0:
        objective = _share_exactly(summary, inputs, parameters, share, weight, delay)
    else:
        objective = share_band(summary, parameters, share, weight, delay)
    return objective, RoundPlan(segments, power, share, micro_batches, weight, noise)


@compiled_inner
def _share_exactly(
    summary: FloatArray,
    inputs: RoundInput,
    parameters: Parameters,
    share: FloatArray,
    weight: FloatArray,
    delay: FloatArray,
) -> float:
    """Shares that suit the CUs' queues after the round, and the exact objective.

    The shares of the earliest deadline do not depend on prices. Where some CU's energy is worth more band,
    shares are best for given prices of the CUs' energy, and those prices follow from the shares: both settle
    by steps of half the way, and the best shares met are kept.

    Args:
        summary: Summaries (N, SUMMARY + K + 1); the CUs' prices in it are overwritten.
        inputs: The environment; receives the CUs' prices.
        parameters: The scenario.
        share: First guess with sum 1 (N,); receives the shares.
        weight: Receives the weights (N,) [1/s].
        delay: Receives ``T_n`` (N,) [s].

    Returns:
        ``V max_n T_n + L(t+1) - L(t)`` less its least.
    """
    clusters = share.shape[0]
    most, slowest = np.empty(clusters), np.empty(clusters)
    earliest = earliest_deadline(summary, parameters, share, most, slowest)
    _reprice_uplinks(1.0, share, summary, inputs, parameters)
    wanting = weigh_delays(summary, parameters, share, weight)
    best = evaluate_shares(summary, parameters, share, delay) + _all_differences(
        share, summary, inputs, parameters
    )
    if not wanting:
        return best
    first, trial, worth = share.copy(), share.copy(), weight.copy()
    for step in range(SHARE_STEPS):
        for n in range(clusters):
            trial[n] = first[n]
        value = later_shares(earliest, most, slowest, summary, parameters, trial, worth, delay)
        value += _all_differences(trial, summary, inputs, parameters)
        better = value < best
        best = min(best, value)
        for n in range(clusters):
            share[n] = trial[n] if better else share[n]
            weight[n] = worth[n] if better or step == 0 else weight[n]
        moved = _reprice_uplinks(0.5, trial, summary, inputs, parameters)
        if moved <= SETTLED_PRICE * abs(value):
            break
    return best


@compiled_inner
def _all_differences(
    share: FloatArray, summary: FloatArray, inputs: RoundInput, parameters: Parameters
) -> float:
    """Sum of :func:`exact_difference` over the clusters."""
    total = 0.0
    for n in range(share.shape[0]):
        total += exact_difference(n, share[n], summary[n], inputs, parameters)
    return total


@compiled_inner
def _reprice_uplinks(
    part: float, share: FloatArray, summary: FloatArray, inputs: RoundInput, parameters: Parameters
) -> float:
    """Move the CUs' prices a part of the way to those after the round.

    Args:
        part: The part, 1 for all of the way.
        share: ``beta`` (N,).
        summary: Summaries (N, SUMMARY + K + 1); receives the prices.
        inputs: The environment; receives the prices.
        parameters: The scenario.

    Returns:
        Largest change of a CU's priced energy.
    """
    moved = 0.0
    for n in range(share.shape[0]):
        before = inputs.price[n, 0]
        joules = summary[n, SUMMARY] + uplink_joules(share[n], summary[n], parameters)
        change = part * (price_after(inputs.backlog[n, 0], joules, inputs.budget[n, 0]) - before)
        moved = max(moved, abs(change) * joules)
        summary[n, FIXED_COST] += change * summary[n, SUMMARY]
        inputs.price[n, 0] = before + change
        summary[n, UPLINK_PRICE] = inputs.price[n, 0] * summary[n, UPLINK_W]
    return moved


@compiled_inner
def reprice(plan: RoundPlan, inputs: RoundInput, parameters: Parameters) -> None:
    """Set all prices of energy to those after the round under a plan.

    Args:
        plan: The present plan.
        inputs: The environment; receives the prices.
        parameters: The scenario.
    """
    clusters, nodes = plan.power.shape
    summary = np.empty(SUMMARY + nodes)
    for n in range(clusters):
        M, noise = plan.micro_batches[n], plan.noise[n]
        summarise_cluster(n, plan.segments[n], plan.power[n], M, noise, inputs, parameters, summary)
        reprice_cluster(n, plan.share[n], summary, inputs, parameters)


@compiled_inner
def interference_prices(
    plan: RoundPlan, weight: FloatArray, inputs: RoundInput, parameters: Parameters
) -> FloatArray:
    """Price of a watt of each cluster's mean power to the others (N,) [1/W], by finite differences.

    Args:
        plan: The present plan.
        weight: ``w`` (N,) [1/s].
        inputs: The environment.
        parameters: The scenario.
    """
    clusters = weight.shape[0]
    summary = np.empty(SUMMARY + plan.power.shape[1])
    price = np.empty(clusters)
    for n in range(clusters):
        price[n] = 0.0
    for m in range(clusters):
        rise = 0.0
        for side in range(2):
            level, M = plan.noise[m] * (1.0 + SLOPE_STEP * side), plan.micro_batches[m]
            summarise_cluster(m, plan.segments[m], plan.power[m], M, level, inputs, parameters, summary)
            delay, cost = delay_and_cost(plan.share[m], summary, parameters)
            rise += (2.0 * side - 1.0) * (weight[m] * delay + cost)
        slope = rise / (SLOPE_STEP * plan.noise[m])
        for n in range(clusters):
            if n != m:
                price[n] += inputs.cross_gain[n, m] * slope
    return price


@compiled_inner
def best_micro_batches(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    inputs: RoundInput,
    parameters: Parameters,
) -> ClusterTerms:
    """The terms with the number of micro-batches that suits segments and powers best.

    Args:
        n: The cluster.
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        terms: What the rest of the plan leaves it, and prices.
        inputs: The environment.
        parameters: The scenario.
    """
    if inputs.choices.shape[0] == 1:
        return terms
    summary = np.empty(SUMMARY + power.shape[0])
    best = cluster_cost(n, segments, power, terms, inputs, parameters, summary)
    noise_w, share, weight, price = terms.noise_w, terms.share, terms.delay_weight, terms.interference_price
    for choice in range(inputs.choices.shape[0]):
        other = ClusterTerms(inputs.choices[choice], noise_w, share, weight, price)
        cost = cluster_cost(n, segments, power, other, inputs, parameters, summary)
        if cost < best:
            best, terms = cost, other
    return terms


@compiled_inner
def improve_cluster(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    replans: int,
    inputs: RoundInput,
    parameters: Parameters,
) -> tuple[float, float]:
    """Better segments and powers of one cluster at given prices, in place.

    The exact segments for the present powers compete, after both had their powers searched, with the
    present segments; the winner is replanned until its segments stay.

    Args:
        n: The cluster.
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        terms: What the rest of the plan leaves it, and prices.
        replans: Most changes of the segments; 0 for the powers alone.
        inputs: The environment.
        parameters: The scenario.

    Returns:
        What the cluster's cost fell by, at these prices, and its number of micro-batches.
    """
    scratch = np.empty(SUMMARY + power.shape[0])
    before = cluster_cost(n, segments, power, terms, inputs, parameters, scratch)
    terms = best_micro_batches(n, segments, power, terms, inputs, parameters)
    cost, exact = np.inf, inputs.exact[0] > 0.0
    planned, trial = segments, power.copy()
    for attempt in range(replans + 1):
        if attempt > 0:
            for k in range(segments.shape[0]):
                if segments[k] == 0:
                    power[k + 1] = starting_power(
                        n, k + 1, terms.delay_weight, terms.noise_w, inputs, parameters
                    )
            problem = segment_problem(n, power, terms, inputs, parameters)
            planned = best_segments(problem, plan_cost(problem, segments))[1]
            stays = True
            for k in range(segments.shape[0]):
                stays = stays and planned[k] == segments[k]
            if stays:
                break
            for i in range(power.shape[0]):
                trial[i] = power[i]
        if exact:
            M = terms.micro_batches
            summarise_cluster(n, planned, trial, M, terms.noise_w, inputs, parameters, scratch)
            reprice_cluster(n, terms.share, scratch, inputs, parameters)
        found = search_powers(n, planned, trial, terms, inputs, parameters, POWER_PASSES)
        if exact:
            found = cluster_cost(n, planned, trial, terms, inputs, parameters, scratch)
        if found >= cost:
            break
        cost = found
        for k in range(segments.shape[0]):
            segments[k] = planned[k]
        for i in range(power.shape[0]):
            power[i] = trial[i]
        if attempt > 0:
            terms = best_micro_batches(n, segments, power, terms, inputs, parameters)
    return before - cost, terms.micro_batches


@compiled_inner
def propose(
    plan: RoundPlan, weight: FloatArray, replans: int, inputs: RoundInput, parameters: Parameters
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Every cluster's best answer to the others' present plans.

    Args:
        plan: The present plan.
        weight: ``w`` to use (N,) [1/s].
        replans: Most changes of a cluster's segments; 0 for the powers alone.
        inputs: The environment.
        parameters: The scenario.

    Returns:
        New segments (N, K), powers (N, K+1), micro-batches (N,) and what every cluster's cost should fall by
        (N,).
    """
    clusters = weight.shape[0]
    prices = interference_prices(plan, weight, inputs, parameters)
    segments, power, micro_batches = plan.segments.copy(), plan.power.copy(), plan.micro_batches.copy()
    least = LEAST_WEIGHT * parameters.tradeoff_v / clusters
    gain = np.empty(clusters)
    for n in range(clusters):
        M = micro_batches[n]
        terms = ClusterTerms(M, plan.noise[n], plan.share[n], max(weight[n], least), prices[n])
        gain[n], micro_batches[n] = improve_cluster(
            n, segments[n], power[n], terms, replans, inputs, parameters
        )
    return segments, power, micro_batches, gain


@compiled_inner
def first_guess(
    inputs: RoundInput, parameters: Parameters
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Closed-form powers, each cluster's exact segments for them, and shares that end all uploads together.

    Args:
        inputs: The environment.
        parameters: The scenario.

    Returns:
        Segments (N, K), powers (N, K+1), micro-batches (N,) and shares (N,).
    """
    clusters, devices = inputs.cap.shape
    micro_batches = inputs.micro_batches.copy()
    weight = parameters.tradeoff_v / clusters
    segments = np.empty((clusters, devices), dtype=np.int64)
    power = np.empty((clusters, devices + 1))
    typical = math.sqrt(parameters.power_min_w * parameters.power_max_w)
    for n in range(clusters):
        power[n, 0] = typical
        for k in range(devices):
            segments[n, k], power[n, k + 1] = 0, typical
    noise = noise_of(segments, power, inputs, parameters)
    snr_hz, update_bits = np.empty(clusters), np.empty(clusters)
    for n in range(clusters):
        for i in range(devices + 1):
            power[n, i] = starting_power(n, i, weight, noise[n], inputs, parameters)
        snr = power[n, 0] * inputs.uplink_gain[n] / parameters.uplink_noise_w
        snr_hz[n] = snr * parameters.uplink_bandwidth_hz
        update_bits[n] = parameters.update_bits
    share = minmax_upload(update_bits, snr_hz, parameters.uplink_bandwidth_hz)
    for n in range(clusters):
        share[n] = parameters.bandwidth_floor + (1.0 - clusters * parameters.bandwidth_floor) * share[n]
        terms = ClusterTerms(micro_batches[n], noise[n], share[n], weight, 0.0)
        problem = segment_problem(n, power[n], terms, inputs, parameters)
        planned = best_segments(problem, np.inf)[1]
        for k in range(devices):
            segments[n, k] = planned[k]
        terms = best_micro_batches(n, segments[n], power[n], terms, inputs, parameters)
        micro_batches[n] = terms.micro_batches
    return segments, power, micro_batches, share
