"""Uplink shares of all clusters for given segments and powers: a common deadline (`algorithms.md` 1.5d, [R]).

``T_n(beta)`` holds the upload and, inside every micro-batch, uplink and downlink elements; the CU's energy
depends on the share as well. Both fall with the share and are convex, so the problem

    min V max_n T_n(beta_n) + sum_n C_n(beta_n),  sum beta = 1,  beta >= floor

is convex. Where energy matters little every cluster just meets the earliest common deadline: each share is
found by monotone inversion and the deadline by a safeguarded Newton search. The multipliers of the deadline
tell how much each cluster's own delay is worth, ``w_n`` with ``sum w_n = V``. If one would be negative, that
cluster's energy deserves more band than its deadline needs, and the deadline is put off until it balances.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from collapipe_env.agents.cluster_costs import (
    BACKWARD_S,
    DOWNLINK_RATE,
    FORWARD_S,
    LN2,
    UPLINK_PRICE,
    UPLINK_SNR,
    RoundConstants,
    delay_and_cost,
)
from collapipe_env.agents.compiled import compiled

FloatArray = npt.NDArray[np.float64]


@compiled
def slopes(share: float, summary: FloatArray, constants: RoundConstants) -> tuple[float, float]:
    """Derivatives of a cluster's delay and cost with respect to its share, both negative.

    Args:
        share: ``beta_n``.
        summary: The cluster's summary (7,).
        constants: The scenario.
    """
    snr = summary[UPLINK_SNR]
    x = snr / share
    log = math.log1p(x)
    per_bit = LN2 / (share * constants.uplink_hz * log)
    per_bit_slope = -per_bit * (1.0 - x / ((1.0 + x) * log)) / share
    uplink = constants.activation_bits * per_bit
    uplink_slope = constants.activation_bits * per_bit_slope
    if constants.retransmit:
        repeats = math.exp(constants.waterfall / x)
        uplink *= repeats
        uplink_slope = uplink_slope * repeats + uplink * constants.waterfall / snr
    upload_slope = constants.update_bits * per_bit_slope
    downlink = constants.gradient_bits / (share * summary[DOWNLINK_RATE])
    downlink_slope = -downlink / share
    fill = constants.steps / constants.micro_batches
    delay_slope = fill * (uplink_slope + downlink_slope) + upload_slope
    if uplink > summary[FORWARD_S]:
        delay_slope += (constants.steps - fill) * uplink_slope
    if downlink > summary[BACKWARD_S]:
        delay_slope += (constants.steps - fill) * downlink_slope
    cost_slope = (
        summary[UPLINK_PRICE] * (constants.steps * uplink_slope + upload_slope)
        + constants.loss_price * constants.waterfall / snr
    )
    return delay_slope, cost_slope


@compiled
def share_for_deadline(
    deadline: float, start: float, summary: FloatArray, constants: RoundConstants
) -> float:
    """Least share with which a cluster meets a deadline, by a safeguarded Newton search.

    Args:
        deadline: Wanted ``T_n`` [s].
        start: First guess.
        summary: The cluster's summary (7,).
        constants: The scenario.

    Returns:
        The share, at least the floor; 2 where the whole band is not enough.
    """
    low, high = constants.share_floor, 1.0
    if delay_and_cost(low, summary, constants)[0] <= deadline:
        return low
    if delay_and_cost(high, summary, constants)[0] > deadline:
        return 2.0
    share = min(max(start, low), high)
    for _ in range(60):
        late = delay_and_cost(share, summary, constants)[0] - deadline
        if late > 0.0:
            low = share
        else:
            high = share
        if abs(late) <= 1e-11 * deadline or high - low <= 1e-13:
            break
        # The delay is nearly a straight line in 1 / share: a Newton step in that variable.
        slope = slopes(share, summary, constants)[0]
        inverse = 1.0 / share + late / (share * share * slope)
        share = 1.0 / inverse if inverse > 0.0 and low < 1.0 / inverse < high else 0.5 * (low + high)
    return high


@compiled
def share_for_price(price: float, least: float, summary: FloatArray, constants: RoundConstants) -> float:
    """Share, at least ``least``, from which on more band saves less energy cost than ``price``.

    Args:
        price: Price of the whole band.
        least: Smallest share allowed.
        summary: The cluster's summary (7,).
        constants: The scenario.
    """
    if -slopes(least, summary, constants)[1] <= price:
        return least
    low, high = least, 1.0
    for _ in range(40):
        share = math.sqrt(low * high)
        if -slopes(share, summary, constants)[1] > price:
            low = share
        else:
            high = share
        if high - low <= 1e-6 * high:
            break
    return high


@compiled
def earliest_deadline(summary: FloatArray, constants: RoundConstants, share: FloatArray) -> float:
    """Earliest common deadline and the shares that just meet it.

    Args:
        summary: Summaries (N, 7).
        constants: The scenario.
        share: First guess with sum 1 (N,); receives the shares, with sum 1.

    Returns:
        The deadline [s].
    """
    clusters = share.shape[0]
    if clusters == 1:
        share[0] = 1.0
        return delay_and_cost(1.0, summary[0], constants)[0]
    low, high = 0.0, 0.0
    most = 1.0 - (clusters - 1) * constants.share_floor
    for n in range(clusters):
        low = max(low, delay_and_cost(most, summary[n], constants)[0])
        high = max(high, delay_and_cost(share[n], summary[n], constants)[0])
    trial = share.copy()
    deadline = high
    for iteration in range(60):
        excess, slope = -1.0, 0.0
        for n in range(clusters):
            trial[n] = share_for_deadline(deadline, trial[n], summary[n], constants)
            excess += trial[n]
            if trial[n] > constants.share_floor:
                slope += 1.0 / slopes(min(trial[n], 1.0), summary[n], constants)[0]
        if excess > 0.0:
            low = deadline
        else:
            high = deadline
            share[:] = trial
            if excess >= -1e-9:
                break
        if high - low <= 1e-10 * high:
            break
        # The needed band is convex in the deadline, so Newton's steps approach from below; the hair
        # beyond brings the last one to the feasible side.
        step = deadline - excess / slope * (1.0 + 1e-6) if slope < 0.0 else low
        deadline = step if low < step < high and iteration < 30 else 0.5 * (low + high)
    share *= 1.0 / share.sum()
    return high


@compiled
def put_off_deadline(
    earliest: float, summary: FloatArray, constants: RoundConstants, share: FloatArray, weight: FloatArray
) -> None:
    """Shares and weights where some cluster's energy is worth more band than the earliest deadline leaves.

    Bisection of the deadline until the weights sum to ``V``; for every deadline the band beyond what the
    deadlines need goes where it saves most energy cost (bisection of its price).

    Args:
        earliest: Earliest common deadline [s].
        summary: Summaries (N, 7).
        constants: The scenario.
        share: The shares at the earliest deadline (N,); receives the new ones.
        weight: Receives the weights (N,).
    """
    clusters = share.shape[0]
    least = np.empty(clusters)
    low, high = 0.0, math.log(4.0)
    for _ in range(16):
        middle = 0.5 * (low + high)
        deadline = earliest * math.exp(middle)
        for n in range(clusters):
            least[n] = share_for_deadline(deadline, share[n], summary[n], constants)
        cheapest, dearest = np.inf, 0.0
        for n in range(clusters):
            cheapest = min(cheapest, -slopes(1.0, summary[n], constants)[1])
            dearest = max(dearest, -slopes(least[n], summary[n], constants)[1])
        cheapest, dearest = max(cheapest, 1e-12), max(dearest, 1e-9)
        for _ in range(30):
            price = math.sqrt(cheapest * dearest)
            total = 0.0
            for n in range(clusters):
                share[n] = share_for_price(price, least[n], summary[n], constants)
                total += share[n]
            if total > 1.0:
                cheapest = price
            else:
                dearest = price
            if dearest <= cheapest * (1.0 + 1e-5):
                break
        # The dearer side of the bracket: the shares fit into the band.
        for n in range(clusters):
            share[n] = share_for_price(dearest, least[n], summary[n], constants)
        worth = 0.0
        for n in range(clusters):
            weight[n] = 0.0
            if share[n] <= least[n] * (1.0 + 1e-9) and least[n] > constants.share_floor:
                delay_slope, cost_slope = slopes(share[n], summary[n], constants)
                weight[n] = max(0.0, (dearest + cost_slope) / -delay_slope)
                worth += weight[n]
        if worth > constants.tradeoff_v:
            low = middle
        else:
            high = middle
    share *= 1.0 / share.sum()
    weight *= constants.tradeoff_v / max(weight.sum(), 1e-300)


@compiled
def share_band(
    summary: FloatArray, constants: RoundConstants, share: FloatArray, weight: FloatArray, delay: FloatArray
) -> float:
    """Optimal shares, the weights of the clusters' delays and the objective.

    Args:
        summary: Summaries (N, 7).
        constants: The scenario.
        share: First guess with sum 1 (N,); receives the shares.
        weight: Receives ``w_n >= 0`` with sum ``V`` (N,) [1/s].
        delay: Receives ``T_n`` (N,) [s].

    Returns:
        ``V max_n T_n + sum_n C_n``.
    """
    clusters = share.shape[0]
    earliest = earliest_deadline(summary, constants, share)
    # Price of the band from sum w = V, then each w from its own stationarity condition.
    worth, inverse = constants.tradeoff_v, 0.0
    for n in range(clusters):
        weight[n] = 0.0
        if share[n] > constants.share_floor * (1.0 + 1e-6) or clusters == 1:
            delay_slope, cost_slope = slopes(share[n], summary[n], constants)
            worth += cost_slope / delay_slope
            inverse -= 1.0 / delay_slope
    band_price = worth / inverse if inverse > 0.0 else 0.0
    wanting = False
    for n in range(clusters):
        delay_slope, cost_slope = slopes(share[n], summary[n], constants)
        slack = (band_price + cost_slope) / -delay_slope
        if share[n] > constants.share_floor * (1.0 + 1e-6) or clusters == 1:
            weight[n] = slack
        if slack < 0.0:
            wanting = True
    objective = evaluate_shares(summary, constants, share, delay)
    if wanting and clusters > 1:
        other_share, other_weight = share.copy(), weight.copy()
        put_off_deadline(earliest, summary, constants, other_share, other_weight)
        other = evaluate_shares(summary, constants, other_share, delay)
        if other < objective:
            share[:] = other_share
            objective = other
        else:
            evaluate_shares(summary, constants, share, delay)
        weight[:] = other_weight
    return objective


@compiled
def evaluate_shares(
    summary: FloatArray, constants: RoundConstants, share: FloatArray, delay: FloatArray
) -> float:
    """``V max_n T_n + sum_n C_n`` for given shares.

    Args:
        summary: Summaries (N, 7).
        constants: The scenario.
        share: ``beta`` (N,).
        delay: Receives ``T_n`` (N,) [s].
    """
    total, longest = 0.0, 0.0
    for n in range(share.shape[0]):
        delay[n], cost = delay_and_cost(share[n], summary[n], constants)
        longest = max(longest, delay[n])
        total += cost
    return constants.tradeoff_v * longest + total
