"""A cluster's delay and energy cost as curves of its uplink share, and their inverses.

Both fall with the share and are convex, with one exception: where lost packets are sent again (``arq``), a
wider band lowers the SNR, and in deep fades the repeats outgrow the rate.

``summary`` is the cluster's summary (SUMMARY + K + 1,).
"""

from __future__ import annotations

import math

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_leaf
from collapipe_env.kernels.cluster_chain import (
    BACKWARD_MAX,
    FORWARD_MAX,
    LOSS_PRICE,
    MICRO_BATCHES,
    UPLINK_PRICE,
    UPLINK_SNR,
    delay_of,
    edge_times,
)
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import expected_transmissions

_STEEPEST = 0.75
"""Failure exponent up to which ``x (1 - dy/dx)``, the rise of the repeats, grows for any ``R``."""
_TRIES = 24
"""Shares tried in search of one from which on the delay rises."""


@compiled_leaf
def delay_and_slopes(share: float, summary: FloatArray, parameters: Numbers) -> tuple[float, float, float]:
    """A cluster's delay [s], and the derivatives of its delay and cost with respect to its share.

    The loss exponent ``y`` has the slope ``R q^(R-1) (1 - q) / (1 - q^R)`` in the failure exponent ``x``, and
    the logarithm of the expected transmissions, ``x - y``, has 1 less this.
    """
    uplink, upload, downlink, _ = edge_times(parameters, share, summary)
    x, R = summary[UPLINK_SNR] / share, parameters.transmissions
    exponent, lost_slope = parameters.waterfall_threshold / x, 1.0
    if R > 1.0:
        tries = expected_transmissions(exponent, R)
        lost_slope = R * (-math.expm1(-exponent)) ** (R - 1.0) / tries
    # Of the logarithms of times: less time per bit, but more repeats.
    faster = (x / ((1.0 + x) * math.log1p(x)) - 1.0) / share
    messages = summary[MICRO_BATCHES] * parameters.overheads.edge_message_s
    uplink_slope = (uplink - messages) * (faster + (1.0 - lost_slope) * exponent / share)
    upload_slope, downlink_slope = upload * faster, (messages - downlink) / share
    step_slope, further = uplink_slope + downlink_slope, summary[MICRO_BATCHES] - 1.0
    if uplink > summary[FORWARD_MAX]:
        step_slope += further * uplink_slope
    if downlink > summary[BACKWARD_MAX]:
        step_slope += further * downlink_slope
    delay_slope = parameters.local_steps * step_slope / summary[MICRO_BATCHES] + upload_slope
    cost_slope = (
        summary[UPLINK_PRICE] * (parameters.local_steps * uplink_slope + upload_slope)
        + summary[LOSS_PRICE] * lost_slope * exponent / share
    )
    return delay_of(uplink, upload, downlink, summary), delay_slope, cost_slope


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
        delay, slope, _ = delay_and_slopes(share, summary, parameters)
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

    On logarithmic scales the marginal saving is nearly a straight line in the share, so a safeguarded secant
    finds it.

    Args:
        price: Price of the whole band, > 0.
        start: First guess.
        most: Largest share that helps.
    """
    floor = parameters.bandwidth_floor
    if -delay_and_slopes(floor, summary, parameters)[2] <= price:
        return floor
    low, high = math.log(floor), math.log(most)
    x = min(max(math.log(start), low), high)
    before_x, before, steepness = x, 0.0, -2.0
    for iteration in range(40):
        saving = -delay_and_slopes(math.exp(x), summary, parameters)[2]
        above = math.log(max(saving, 1e-300) / price)
        if above > 0.0:
            low = x
        else:
            high = x
        if abs(above) <= 1e-7 or high - low <= 1e-7:
            break
        if iteration > 0 and x != before_x:
            steepness = (above - before) / (x - before_x)
        before_x, before = x, above
        step = x - above / steepness if steepness < 0.0 else low
        x = step if low < step < high else 0.5 * (low + high)
    return math.exp(x)


@compiled_leaf
def most_useful_share(most: float, summary: FloatArray, parameters: Numbers) -> float:
    """Share, at most ``most``, beyond which more band prolongs a cluster's delay.

    Without repeats more band always helps. With repeats it lowers the SNR, and in deep fades the repeats
    outgrow the rate, until nearly all are made. The delay may then fall again, by little.
    """
    if parameters.transmissions == 1.0:
        return most
    low, high = parameters.bandwidth_floor, most
    tries = 0
    while delay_and_slopes(high, summary, parameters)[1] <= 0.0:
        # The delay rises from a lower share on, if at all; below this exponent the repeats grow ever faster.
        exponent = parameters.waterfall_threshold * high / summary[UPLINK_SNR]
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
    total, willing, surplus = 0.0, 0.0, 0.0
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
