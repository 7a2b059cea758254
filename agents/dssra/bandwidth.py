"""Uplink shares of all clusters for given segments and powers: a common deadline (`algorithms.md` 1.5d, [R]).

``T_n(beta)`` holds the upload and, inside every micro-batch, uplink and downlink elements; the CU's energy
depends on the share as well. Both fall with the share and are convex, so the problem

    min V max_n T_n(beta_n) + sum_n C_n(beta_n),  sum beta = 1,  beta >= floor

is convex, with one exception: where lost packets are sent again (``arq``), a wider band lowers the SNR, and
in deep fades the repeats outgrow the rate. Where energy matters little every cluster just meets the earliest
common deadline: each share is found by monotone inversion and the deadline by a safeguarded Newton search.
The multipliers of the deadline tell how much each cluster's own delay is worth, ``w_n`` with ``sum w_n = V``.
If a multiplier would be negative, the energy of that cluster is worth more band than its deadline needs. Then
such clusters get band until it saves them less than the band's price, and the others meet the earliest
deadline with the rest. The price is the one at which the others' multipliers sum to ``V``.

Arrays by cluster: ``summary`` (N, SUMMARY + K + 1), the shares ``share``, their least and most useful ones
``least`` and ``most``, ``weight`` ``w_n`` [1/s] and ``delay`` ``T_n`` [s], all (N,). Functions write what
they find into ``share``, which holds a first guess with sum 1, ``weight`` and ``delay``.
"""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.kernels.cluster_chain import (
    BACKWARD_MAX,
    CU_LEAST,
    CU_RISE,
    CU_START,
    DELAY_PRICE,
    FORWARD_MAX,
    LOSS_PRICE,
    MICRO_BATCHES,
    UPLINK_SNR,
    delay_of,
    edge_times_at,
    link_joules,
)
from collapipe_env.physics.packet_errors import expected_transmissions, failure_exponent, failure_steepness
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.rates import efficiency_and_slope

from .cluster_costs import delay_and_cost

_STEEPEST = 0.75
"""Failure exponent up to which ``x (1 - dy/dx)``, the rise of the repeats, grows for any ``R``."""
_STEEPNESS, _MARGIN, _SETTLED = -16.0, 0.05, 1e-4
"""Of the search for the band's price: slope and first step to begin with, and an error of its logarithm."""
_TRIES = 24
"""Shares tried in search of one from which on the delay rises."""


@compiled_leaf
def delay_and_slopes(
    share: float, summary: FloatArray, parameters: Numbers
) -> tuple[float, float, float, float]:
    """A cluster's delay [s], the slopes of its delay and cost in its share, and a curvature.

    The last number is the slope of ``-dC/dbeta`` in ``1 / beta``, for times that are straight lines in it.
    The price of the CU's energy is that of its queue after the round with this share. The loss exponent ``y``
    has the slope ``R q^(R-1) (1 - q) / (1 - q^R)`` in the failure exponent ``x``, and the logarithm of the
    expected transmissions, ``x - y``, has 1 less this.
    """
    link, snr, lost_slope = parameters.link, summary[UPLINK_SNR] / share, 1.0
    efficiency, efficiency_slope = efficiency_and_slope(link, snr)
    uplink, upload, downlink, _ = edge_times_at(parameters, share, efficiency, summary)
    R, exponent = link.transmissions, failure_exponent(link, snr)
    worse = failure_steepness(link, snr) * exponent / share  # slope of the failure exponent
    if R > 1.0 and worse > 0.0:
        tries = expected_transmissions(exponent, R)
        lost_slope = R * (-math.expm1(-exponent)) ** (R - 1.0) / tries
    # Of the logarithms of times: less time per bit, but more repeats.
    faster = (efficiency_slope / efficiency - 1.0) / share
    messages = summary[MICRO_BATCHES] * parameters.overheads.edge_message_s
    uplink_slope = (uplink - messages) * (faster + (1.0 - lost_slope) * worse)
    upload_slope, downlink_slope = upload * faster, (messages - downlink) / share
    step_slope, further = uplink_slope + downlink_slope, summary[MICRO_BATCHES] - 1.0
    if uplink > summary[FORWARD_MAX]:
        step_slope += further * uplink_slope
    if downlink > summary[BACKWARD_MAX]:
        step_slope += further * downlink_slope
    delay_slope = parameters.local_steps * step_slope / summary[MICRO_BATCHES] + upload_slope
    joules = link_joules(parameters, uplink, upload, downlink, summary)
    joules_slope = link_joules(parameters, uplink_slope, upload_slope, downlink_slope, summary)
    of_queue = max(summary[CU_START] + summary[CU_RISE] * joules, 0.0)
    price, rise = summary[CU_LEAST] + of_queue, summary[CU_RISE] if of_queue > 0.0 else 0.0
    cost_slope = price * joules_slope + summary[LOSS_PRICE] * lost_slope * worse
    curvature = share * (rise * share * joules_slope * joules_slope - 2.0 * price * joules_slope)
    return delay_of(uplink, upload, downlink, summary), delay_slope, cost_slope, curvature


@compiled_leaf
def share_for_deadline(
    deadline: float, start: float, least: float, most: float, summary: FloatArray, parameters: Numbers
) -> tuple[float, float]:
    """Share with which a cluster just meets a deadline, by a safeguarded Newton search.

    Args:
        deadline: Wanted ``T_n`` [s], between the delays with the largest and the least share.
        start: First guess.
        least: Least share.
        most: Largest share that helps.

    Returns:
        The share, and the delay's slope there.
    """
    low, high = least, most
    share, slope = min(max(start, low), high), 0.0
    for _ in range(60):
        delay, slope, _, _ = delay_and_slopes(share, summary, parameters)
        late = delay - deadline
        if late > 0.0:
            low = share
        else:
            high = share
        if abs(late) <= 1e-10 * deadline or high - low <= 1e-13:
            break
        # The delay is nearly a straight line in 1 / share: a Newton step in that variable.
        inverse = 1.0 / share + late / (share * share * slope)
        share = 1.0 / inverse if inverse > 0.0 and low < 1.0 / inverse < high else 0.5 * (low + high)
    return share, slope


@compiled_leaf
def share_for_price(
    price: float, start: float, most: float, summary: FloatArray, parameters: Numbers
) -> float:
    """Share, from the floor to ``most``, above which more band saves less energy cost than ``price``.

    The times are nearly straight lines in ``u = 1 / share``, and the price of energy rises with them: the
    marginal saving is a convex function of ``u``. Newton's steps therefore do not pass the solution from the
    side of small shares.

    Args:
        price: Price of the whole band, > 0.
        start: First guess.
        most: Largest share that helps.
    """
    floor, above_floor = parameters.bandwidth_floor, False
    low, high = floor, most
    share = min(max(start, low), high)
    for _ in range(60):
        _, _, cost_slope, rise = delay_and_slopes(share, summary, parameters)
        above = -cost_slope - price
        if above > 0.0:
            low = share
        elif above_floor or (share > floor and -delay_and_slopes(floor, summary, parameters)[2] > price):
            high = share
        else:
            return floor
        above_floor = True
        if abs(above) <= 1e-7 * price or high - low <= 1e-7 * high:
            break
        inverse = 1.0 / share - above / rise if rise > 0.0 else 0.0
        share = 1.0 / inverse if inverse > 0.0 and low < 1.0 / inverse < high else math.sqrt(low * high)
    return share


@compiled_leaf
def most_useful_share(most: float, summary: FloatArray, parameters: Numbers) -> float:
    """Share, at most ``most``, beyond which more band prolongs a cluster's delay.

    Without repeats more band always helps. With repeats it lowers the SNR, and in deep fades the repeats
    outgrow the rate, until nearly all are made. The delay may then fall again, by little.
    """
    if parameters.link.transmissions == 1.0:
        return most
    low, high = parameters.bandwidth_floor, most
    tries = 0
    while delay_and_slopes(high, summary, parameters)[1] <= 0.0:
        # The delay rises from a lower share on, if at all; below this exponent the repeats grow ever faster.
        exponent = failure_exponent(parameters.link, summary[UPLINK_SNR] / high)
        if tries == _TRIES or exponent < _STEEPEST:
            return most
        tries += 1
        high = most * (low / most) ** (tries / (_TRIES + 1.0))
    while high > low * (1.0 + 1e-6):
        share = math.sqrt(low * high)
        if delay_and_slopes(share, summary, parameters)[1] < 0.0:
            low = share
        else:
            high = share
    longest = delay_and_slopes(most, summary, parameters)[0]
    return low if delay_and_slopes(low, summary, parameters)[0] <= longest else most


@compiled_leaf
def fill_band(share: FloatArray, least: FloatArray, most: FloatArray) -> None:
    """Make shares sum to 1 in place: cut a surplus above the least, or give a rest to those that it helps.

    Args:
        share: Shares (N,), each at least the least.
        least: Least shares (N,), with a sum below 1.
        most: Shares beyond which more band does harm (N,).
    """
    for _ in range(share.shape[0]):  # once, unless that leads some share beyond its most
        total, willing, surplus, beyond = 0.0, 0.0, 0.0, False
        for n in range(share.shape[0]):
            total += share[n]
            surplus += share[n] - least[n]
            if share[n] < most[n] * (1.0 - 1e-9):
                willing += share[n]
        for n in range(share.shape[0]):
            if total > 1.0:
                share[n] -= (total - 1.0) * (share[n] - least[n]) / surplus
            elif willing == 0.0:
                share[n] /= total
            elif share[n] < most[n] * (1.0 - 1e-9):
                share[n] += (1.0 - total) * share[n] / willing
                if share[n] > most[n] * (1.0 + 1e-9):
                    share[n], beyond = most[n], True
        if not beyond:
            break


@compiled_inner
def earliest_deadline(
    summary: FloatArray, parameters: Numbers, share: FloatArray, least: FloatArray, most: FloatArray
) -> None:
    """Find the shares that just meet the earliest common deadline, and write their limits."""
    clusters, floor = share.shape[0], parameters.bandwidth_floor
    for n in range(clusters):
        least[n] = floor
        most[n] = most_useful_share(1.0 - (clusters - 1) * floor, summary[n], parameters)
    _meet_deadline(summary, parameters, share, least, most)


@compiled_inner
def _meet_deadline(
    summary: FloatArray, parameters: Numbers, share: FloatArray, least: FloatArray, most: FloatArray
) -> None:
    """The same for any least shares, from a first guess that keeps to them."""
    clusters = share.shape[0]
    low, high, slowest = 0.0, 0.0, np.empty(clusters)
    for n in range(clusters):
        low = max(low, delay_and_cost(most[n], summary[n], parameters)[0])
        high = max(high, delay_and_cost(share[n], summary[n], parameters)[0])
        slowest[n] = delay_and_cost(least[n], summary[n], parameters)[0]
    deadline, trial = high, share.copy()
    for iteration in range(60):
        excess, slope = -1.0, 0.0
        for n in range(clusters):
            delay_slope = 0.0
            if slowest[n] <= deadline:
                trial[n] = least[n]
            else:
                trial[n], delay_slope = share_for_deadline(
                    deadline, trial[n], least[n], most[n], summary[n], parameters
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
    fill_band(share, least, most)


@compiled_inner
def weigh_delays(
    summary: FloatArray, parameters: Numbers, share: FloatArray, least: FloatArray, weight: FloatArray
) -> tuple[float, bool]:
    """Weights of the clusters' delays, with sum ``V``, at shares that meet a common deadline.

    Clusters with no more than their least share have time to spare and the weight 0.

    Returns:
        The price of the whole band, and whether some cluster's energy is worth more band than that, so that
        these shares are not the best.
    """
    clusters = share.shape[0]
    # Price of the band from sum w = V, then each w from its own stationarity condition.
    worth, inverse = summary[0, DELAY_PRICE], 0.0
    delay_slope, cost_slope = np.empty(clusters), np.empty(clusters)
    for n in range(clusters):
        delay, delay_slope[n], cost_slope[n], _ = delay_and_slopes(share[n], summary[n], parameters)
        # With the most useful share the delay is flat.
        delay_slope[n] = min(delay_slope[n], -1e-9 * delay)
        if share[n] > least[n] * (1.0 + 1e-6) or clusters == 1:
            worth += cost_slope[n] / delay_slope[n]
            inverse -= 1.0 / delay_slope[n]
    price, wanting = worth / inverse if inverse > 0.0 else 0.0, False
    for n in range(clusters):
        slack = (price + cost_slope[n]) / -delay_slope[n]
        weight[n] = slack if share[n] > least[n] * (1.0 + 1e-6) or clusters == 1 else 0.0
        wanting = wanting or slack < 0.0
    return price, wanting and clusters > 1


@compiled_inner
def later_shares(
    price: float,
    most: FloatArray,
    summary: FloatArray,
    parameters: Numbers,
    share: FloatArray,
    weight: FloatArray,
) -> None:
    """Find better shares than the earliest deadline's, where :func:`weigh_delays` says that they exist.

    Where the problem is not convex they may be worse.

    Args:
        price: First guess of the band's price.
    """
    clusters = share.shape[0]
    least, other, low, high = share.copy(), share.copy(), np.inf, price
    for n in range(clusters):
        low = min(low, -delay_and_slopes(1.0, summary[n], parameters)[2])
        high = max(high, -delay_and_slopes(share[n], summary[n], parameters)[2])
    low, high = math.log(max(low, 1e-12)), math.log(max(high, 1e-9))
    x = min(max(math.log(max(price, 1e-12)), low), high)
    before_x, before, steepness, wider = x, 0.0, _STEEPNESS, 1.0
    for _ in range(40):
        together = 0.0
        for n in range(clusters):
            least[n] = share_for_price(math.exp(x), least[n] * wider, most[n], summary[n], parameters)
            together += least[n]
        last = x
        if together < 1.0 - 1e-6:
            for n in range(clusters):
                other[n] = max(other[n], least[n])
            fill_band(other, least, most)
            _meet_deadline(summary, parameters, other, least, most)
            # The price at which these clusters' weights would sum to V: the higher this one, the lower that.
            wanted = weigh_delays(summary, parameters, other, least, weight)[0]
            above = math.log(max(wanted, 1e-300)) - x
            if above > 0.0:
                low = x
            else:
                high = x
            if abs(above) <= _SETTLED or high - low <= 1e-7:
                break
            if before != 0.0:
                steepness = (above - before) / (x - before_x)
            before_x, before = x, above
            step = x - above / steepness if steepness < 0.0 else low
        else:  # too cheap: at twice the shares a marginal saving is about a quarter
            low = x
            step = x + 2.0 * math.log(together) + _MARGIN
            if high - low <= 1e-7:
                break
        x = step if low < step < high else 0.5 * (low + high)
        wider = math.exp(0.5 * (last - x))
    together = 0.0
    for n in range(clusters):
        weight[n] = max(weight[n], 0.0)
        together += weight[n]
    for n in range(clusters):
        weight[n] *= summary[0, DELAY_PRICE] / max(together, 1e-300)
        share[n] = other[n]


@compiled_inner
def share_band(
    summary: FloatArray, parameters: Numbers, share: FloatArray, weight: FloatArray, delay: FloatArray
) -> float:
    """Find optimal shares, and return ``V max_n T_n + sum_n C_n``."""
    least, most = np.empty(share.shape[0]), np.empty(share.shape[0])
    earliest_deadline(summary, parameters, share, least, most)
    price, wanting = weigh_delays(summary, parameters, share, least, weight)
    if wanting:
        earliest, before = share.copy(), evaluate_shares(summary, parameters, share, delay)
        later_shares(price, most, summary, parameters, share, weight)
        value = evaluate_shares(summary, parameters, share, delay)
        if value < before:
            return value
        for n in range(share.shape[0]):
            share[n] = earliest[n]
    return evaluate_shares(summary, parameters, share, delay)


@compiled_leaf
def evaluate_shares(summary: FloatArray, parameters: Numbers, share: FloatArray, delay: FloatArray) -> float:
    """``V max_n T_n + sum_n C_n`` for given shares."""
    total, longest = 0.0, 0.0
    for n in range(share.shape[0]):
        delay[n], cost = delay_and_cost(share[n], summary[n], parameters)
        longest = max(longest, delay[n])
        total += cost
    return float(summary[0, DELAY_PRICE] * longest + total)
