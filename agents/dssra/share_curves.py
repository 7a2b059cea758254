"""A cluster's delay and energy cost as curves of its uplink share, and their inverses.

Both fall with the share and are convex, with one exception: where lost packets are sent again (``arq``), a
wider band lowers the SNR, and in deep fades the repeats outgrow the rate.
"""

from __future__ import annotations

import math

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_leaf, inlined
from collapipe_env.kernels.cluster_chain import (
    BACKWARD_MAX,
    DOWNLINK_RATE,
    FORWARD_MAX,
    LOSS_PRICE,
    MICRO_BATCHES,
    UPDATE_BITS,
    UPLINK_PRICE,
    UPLINK_SNR,
    delay_of,
)
from collapipe_env.physics.delay import message_time
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import LN2, expected_transmissions

_STEEPEST = 0.75
"""Failure exponent up to which ``x (1 - dy/dx)``, the rise of the repeats, grows for any ``R``."""
_TRIES = 24
"""Shares tried in search of one from which on the delay rises."""


@inlined
def loss_slope(failure_exponent: float, transmissions: float) -> float:
    """Slope of the loss exponent ``y`` in the failure exponent ``x``, ``R q^(R-1) (1 - q) / (1 - q^R)``.

    That of the logarithm of the expected transmissions, ``x - y``, is 1 less this.

    Args:
        failure_exponent: ``x = m / SNR``, >= 0.
        transmissions: Most transmissions of a packet ``R``.
    """
    if transmissions == 1.0:
        return 1.0
    q = -math.expm1(-failure_exponent)
    tries: float = expected_transmissions(failure_exponent, transmissions)
    slope: float = transmissions * q ** (transmissions - 1.0) / tries
    return slope


@compiled_leaf
def delay_and_slopes(share: float, summary: FloatArray, parameters: Numbers) -> tuple[float, float, float]:
    """A cluster's delay [s], and the derivatives of its delay and cost with respect to its share.

    Args:
        share: ``beta_n``.
        summary: The cluster's summary (SUMMARY + K + 1,).
    """
    snr = summary[UPLINK_SNR]
    x = snr / share
    log = math.log1p(x)
    per_bit = LN2 / (share * parameters.uplink_bandwidth_hz * log)
    per_bit_slope = -per_bit * (1.0 - x / ((1.0 + x) * log)) / share
    uplink = parameters.batch_size * parameters.activation_bits * per_bit
    uplink_slope = parameters.batch_size * parameters.activation_bits * per_bit_slope
    R, exponent = parameters.transmissions, parameters.waterfall_threshold / x
    lost_slope = loss_slope(exponent, R)
    if R > 1.0:
        repeats = expected_transmissions(exponent, R)
        uplink *= repeats
        uplink_slope = uplink_slope * repeats + uplink * (1.0 - lost_slope) * exponent / share
    messages = summary[MICRO_BATCHES] * parameters.overheads.edge_message_s
    uplink += messages
    upload, upload_slope = summary[UPDATE_BITS] * per_bit, summary[UPDATE_BITS] * per_bit_slope
    downlink = message_time(parameters.batch_size * parameters.gradient_bits, share * summary[DOWNLINK_RATE])
    downlink_slope = -downlink / share
    downlink += messages
    M, further = summary[MICRO_BATCHES], summary[MICRO_BATCHES] - 1.0
    delay = delay_of(uplink, upload, downlink, summary)
    step_slope = uplink_slope + downlink_slope
    if uplink > summary[FORWARD_MAX]:
        step_slope += further * uplink_slope
    if downlink > summary[BACKWARD_MAX]:
        step_slope += further * downlink_slope
    delay_slope = parameters.local_steps * step_slope / M + upload_slope
    cost_slope = (
        summary[UPLINK_PRICE] * (parameters.local_steps * uplink_slope + upload_slope)
        + summary[LOSS_PRICE] * lost_slope * exponent / share
    )
    return delay, delay_slope, cost_slope


@compiled_leaf
def share_for_deadline(
    deadline: float,
    start: float,
    most: float,
    slowest: float,
    summary: FloatArray,
    parameters: Numbers,
) -> tuple[float, float]:
    """Least share with which a cluster meets a deadline, by a safeguarded Newton search.

    Args:
        deadline: Wanted ``T_n`` [s], at least the delay with the largest share.
        start: First guess.
        most: Largest share that helps.
        slowest: The cluster's delay with the least share [s].
        summary: The cluster's summary (SUMMARY + K + 1,).

    Returns:
        The share, at least the floor, and the delay's slope there (0 at the floor).
    """
    low, high = parameters.bandwidth_floor, most
    if slowest <= deadline:
        return low, 0.0
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
    price: float,
    least: float,
    most_saved: float,
    start: float,
    summary: FloatArray,
    parameters: Numbers,
) -> float:
    """Share, at least ``least``, above which more band saves less energy cost than ``price``.

    On logarithmic scales the marginal saving is nearly a straight line in the share, so a safeguarded secant
    finds it.

    Args:
        price: Price of the whole band, > 0.
        least: Smallest share allowed.
        most_saved: Marginal saving at that share.
        start: First guess.
        summary: The cluster's summary (SUMMARY + K + 1,).
    """
    if most_saved <= price:
        return least
    low, high = math.log(least), 0.0
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

    Args:
        most: Largest share.
        summary: The cluster's summary (SUMMARY + K + 1,).
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
def fill_band(share: FloatArray, most: FloatArray, floor: float) -> None:
    """Make shares sum to 1 in place: cut a surplus above the floor, or give a rest to those that it helps.

    Args:
        share: Shares (N,), each at least the floor.
        most: Shares beyond which more band does harm (N,).
        floor: Least share.
    """
    total = 0.0
    for n in range(share.shape[0]):
        total += share[n]
    if total > 1.0:
        least = share.shape[0] * floor
        kept = (1.0 - least) / (total - least)
        for n in range(share.shape[0]):
            share[n] = floor + (share[n] - floor) * kept
        return
    willing = 0.0
    for n in range(share.shape[0]):
        if share[n] < most[n] * (1.0 - 1e-9):
            willing += share[n]
    for n in range(share.shape[0]):
        if willing == 0.0:
            share[n] /= total
        elif share[n] < most[n] * (1.0 - 1e-9):
            share[n] += (1.0 - total) * share[n] / willing
