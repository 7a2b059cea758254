"""Uplink shares of all clusters for given segments and powers: a common deadline (`algorithms.md` 1.5d, [R]).

``T_n(beta)`` holds the upload and, inside every micro-batch, uplink and downlink elements; the CU's energy
depends on the share as well. Both fall with the share and are convex, so the problem

    min V max_n T_n(beta_n) + sum_n C_n(beta_n),  sum beta = 1,  beta >= floor

is convex. Where energy matters little every cluster just meets the earliest common deadline: each share is
found by monotone inversion and the deadline by a safeguarded Newton search. The multipliers of the deadline
tell how much each cluster's own delay is worth, ``w_n`` with ``sum w_n = V``. If a multiplier would be
negative, the energy of that cluster is worth more band than its deadline needs. The deadline is then put off
until the two balance.
"""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.kernels.cluster_chain import DELAY_PRICE
from collapipe_env.physics.parameters import Numbers

from .cluster_costs import delay_and_cost
from .share_curves import (
    delay_and_slopes,
    fill_band,
    most_useful_share,
    share_for_deadline,
    share_for_price,
)


@compiled_inner
def earliest_deadline(
    summary: FloatArray, parameters: Numbers, share: FloatArray, most: FloatArray, slowest: FloatArray
) -> float:
    """Earliest common deadline and the shares that just meet it.

    Args:
        summary: Summaries (N, SUMMARY + K + 1).
        share: First guess with sum 1 (N,); receives the shares, with sum 1.
        most: Receives the largest share that helps each cluster (N,).
        slowest: Receives each cluster's delay with the least share (N,) [s].

    Returns:
        The deadline [s].
    """
    clusters = share.shape[0]
    floor = parameters.bandwidth_floor
    low, high = 0.0, 0.0
    for n in range(clusters):
        most[n] = most_useful_share(1.0 - (clusters - 1) * floor, summary[n], parameters)
        low = max(low, delay_and_cost(most[n], summary[n], parameters)[0])
        high = max(high, delay_and_cost(share[n], summary[n], parameters)[0])
        slowest[n] = delay_and_cost(floor, summary[n], parameters)[0]
    if clusters == 1:
        share[0] = 1.0
        return high
    trial = share.copy()
    deadline = high
    for iteration in range(60):
        excess, slope = -1.0, 0.0
        for n in range(clusters):
            trial[n], delay_slope = share_for_deadline(
                deadline, trial[n], most[n], slowest[n], summary[n], parameters
            )
            excess += trial[n]
            if delay_slope < 0.0:
                slope += 1.0 / delay_slope
        if excess > 0.0:
            low = deadline
        else:
            high = deadline
            for n in range(clusters):
                share[n] = trial[n]
            if excess >= -1e-8:
                break
        if high - low <= 1e-9 * high:
            break
        # The needed band is convex in the deadline, so Newton's steps approach from below; a tiny
        # overshoot brings the last one to the feasible side.
        step = deadline - excess / slope * (1.0 + 1e-6) if slope < 0.0 else low
        deadline = step if low < step < high and iteration < 30 else 0.5 * (low + high)
    fill_band(share, most, floor)
    return high


@compiled_inner
def spend_band(
    price: float, least: FloatArray, summary: FloatArray, parameters: Numbers, share: FloatArray
) -> float:
    """Give the band that the deadlines leave over to the clusters whose energy cost it lowers most.

    Args:
        price: First guess of the band's price; 0 or less for no guess.
        least: Shares that the deadlines need (N,), with a sum of at most 1.
        summary: Summaries (N, SUMMARY + K + 1).
        share: First guess (N,); receives the shares, with sum 1 up to rounding.

    Returns:
        The price of the whole band: the saving per unit of band at every share above its least.
    """
    clusters = share.shape[0]
    low, high = np.inf, 0.0
    most_saved = np.empty(clusters)
    for n in range(clusters):
        low = min(low, -delay_and_slopes(1.0, summary[n], parameters)[2])
        most_saved[n] = -delay_and_slopes(least[n], summary[n], parameters)[2]
        high = max(high, most_saved[n])
    low, high = math.log(max(low, 1e-12)), math.log(max(high, 1e-9))
    x = math.log(price) if price > 0.0 else high
    x = min(max(x, low), high)
    before_x, before, steepness = x, 0.0, -0.5
    for iteration in range(40):
        total = 0.0
        for n in range(clusters):
            share[n] = share_for_price(math.exp(x), least[n], most_saved[n], share[n], summary[n], parameters)
            total += share[n]
        if total > 1.0:
            low = x
        else:
            high = x
        if abs(total - 1.0) <= 1e-6 or high - low <= 1e-7:
            break
        above = math.log(total)
        if iteration > 0 and x != before_x:
            steepness = (above - before) / (x - before_x)
        before_x, before = x, above
        step = x - above / steepness if steepness < 0.0 else low
        x = step if low < step < high else 0.5 * (low + high)
    return math.exp(x)


@compiled_inner
def put_off_deadline(
    earliest: float,
    most: FloatArray,
    slowest: FloatArray,
    summary: FloatArray,
    parameters: Numbers,
    share: FloatArray,
    weight: FloatArray,
) -> None:
    """Shares and weights where some cluster's energy is worth more band than the earliest deadline leaves.

    The later the deadline, the less the clusters' delays are worth. The deadline at which the weights sum to
    ``V`` is bracketed and then found by regula falsi.

    Args:
        earliest: Earliest common deadline [s].
        most: Largest share that helps each cluster (N,).
        slowest: Each cluster's delay with the least share (N,) [s].
        summary: Summaries (N, SUMMARY + K + 1).
        share: The shares at the earliest deadline (N,); receives the new ones.
        weight: Receives the weights (N,).
    """
    clusters = share.shape[0]
    least = share.copy()
    low, high, x = 0.0, math.log(4.0), 0.01
    low_excess, high_excess = 0.0, 0.0  # unknown as yet
    price, stayed = 0.0, 0
    for _ in range(40):
        deadline = earliest * math.exp(x)
        for n in range(clusters):
            least[n], _ = share_for_deadline(deadline, least[n], most[n], slowest[n], summary[n], parameters)
        price = spend_band(price, least, summary, parameters, share)
        worth = 0.0
        for n in range(clusters):
            weight[n] = 0.0
            if share[n] <= least[n] * (1.0 + 1e-9) and least[n] > parameters.bandwidth_floor:
                _, delay_slope, cost_slope = delay_and_slopes(share[n], summary[n], parameters)
                weight[n] = max(0.0, (price + cost_slope) / -delay_slope)
                worth += weight[n]
        excess = worth - summary[0, DELAY_PRICE]
        if abs(excess) <= 1e-3 * summary[0, DELAY_PRICE]:
            break
        # Illinois: the excess of an end that stays twice in a row is halved.
        if excess > 0.0:
            low, low_excess = x, excess
            high_excess *= 0.5 if stayed > 0 else 1.0
            stayed = 1
        else:
            high, high_excess = x, excess
            low_excess *= 0.5 if stayed < 0 else 1.0
            stayed = -1
        if high - low <= 1e-5:
            break
        if high_excess == 0.0:
            x = min(4.0 * x, 0.5 * (x + high))
        elif low_excess == 0.0:
            x = 0.25 * high
        else:
            part = low_excess / (low_excess - high_excess)
            x = low + min(max(part, 0.02), 0.98) * (high - low)
    fill_band(share, most, parameters.bandwidth_floor)
    together = 0.0
    for n in range(clusters):
        together += weight[n]
    scale = summary[0, DELAY_PRICE] / max(together, 1e-300)
    for n in range(clusters):
        weight[n] *= scale


@compiled_inner
def share_band(
    summary: FloatArray, parameters: Numbers, share: FloatArray, weight: FloatArray, delay: FloatArray
) -> float:
    """Optimal shares, the weights of the clusters' delays and the objective.

    Args:
        summary: Summaries (N, SUMMARY + K + 1).
        share: First guess with sum 1 (N,); receives the shares.
        weight: Receives ``w_n >= 0`` with sum ``V`` (N,) [1/s].
        delay: Receives ``T_n`` (N,) [s].

    Returns:
        ``V max_n T_n + sum_n C_n``.
    """
    clusters = share.shape[0]
    most, slowest = np.empty(clusters), np.empty(clusters)
    earliest = earliest_deadline(summary, parameters, share, most, slowest)
    if weigh_delays(summary, parameters, share, weight):
        return later_shares(earliest, most, slowest, summary, parameters, share, weight, delay)
    return evaluate_shares(summary, parameters, share, delay)


@compiled_inner
def weigh_delays(summary: FloatArray, parameters: Numbers, share: FloatArray, weight: FloatArray) -> bool:
    """Weights of the clusters' delays at the shares that meet the earliest deadline.

    Args:
        summary: Summaries (N, SUMMARY + K + 1).
        share: The shares (N,).
        weight: Receives the weights (N,) [1/s], with sum ``V``.

    Returns:
        Whether some cluster's energy is worth more band, so that these shares are not the best.
    """
    clusters = share.shape[0]
    # Price of the band from sum w = V, then each w from its own stationarity condition.
    worth, inverse = summary[0, DELAY_PRICE], 0.0
    delay_slope, cost_slope = np.empty(clusters), np.empty(clusters)
    for n in range(clusters):
        delay, delay_slope[n], cost_slope[n] = delay_and_slopes(share[n], summary[n], parameters)
        # With the most useful share the delay is flat.
        delay_slope[n] = min(delay_slope[n], -1e-9 * delay)
        if share[n] > parameters.bandwidth_floor * (1.0 + 1e-6) or clusters == 1:
            worth += cost_slope[n] / delay_slope[n]
            inverse -= 1.0 / delay_slope[n]
    band_price = worth / inverse if inverse > 0.0 else 0.0
    wanting = False
    for n in range(clusters):
        slack = (band_price + cost_slope[n]) / -delay_slope[n]
        weight[n] = 0.0
        if share[n] > parameters.bandwidth_floor * (1.0 + 1e-6) or clusters == 1:
            weight[n] = slack
        if slack < 0.0:
            wanting = True
    return wanting and clusters > 1


@compiled_inner
def later_shares(
    earliest: float,
    most: FloatArray,
    slowest: FloatArray,
    summary: FloatArray,
    parameters: Numbers,
    share: FloatArray,
    weight: FloatArray,
    delay: FloatArray,
) -> float:
    """Look for better shares than the earliest deadline's, where :func:`weigh_delays` says that they exist.

    Args:
        earliest: Earliest common deadline [s].
        most: Largest share that helps each cluster (N,).
        slowest: Each cluster's delay with the least share (N,) [s].
        summary: Summaries (N, SUMMARY + K + 1).
        share: Shares at the earliest deadline (N,); receives the better ones.
        weight: Receives ``w_n >= 0`` with sum ``V`` (N,) [1/s].
        delay: Receives ``T_n`` (N,) [s].

    Returns:
        ``V max_n T_n + sum_n C_n``.
    """
    objective = evaluate_shares(summary, parameters, share, delay)
    other = share.copy()
    put_off_deadline(earliest, most, slowest, summary, parameters, other, weight)
    better = evaluate_shares(summary, parameters, other, delay)
    if better < objective:
        for n in range(share.shape[0]):
            share[n] = other[n]
        return better
    return evaluate_shares(summary, parameters, share, delay)  # writes their delays again


@compiled_leaf
def evaluate_shares(summary: FloatArray, parameters: Numbers, share: FloatArray, delay: FloatArray) -> float:
    """``V max_n T_n + sum_n C_n`` for given shares.

    Args:
        summary: Summaries (N, SUMMARY + K + 1).
        share: ``beta`` (N,).
        delay: Receives ``T_n`` (N,) [s].
    """
    total, longest = 0.0, 0.0
    for n in range(share.shape[0]):
        delay[n], cost = delay_and_cost(share[n], summary[n], parameters)
        longest = max(longest, delay[n])
        total += cost
    return float(summary[0, DELAY_PRICE] * longest + total)
