"""Closed forms of the per-round problem: transmit power and uplink bandwidth (`algorithms.md` 1.5, [R]).

Both rest on the two real branches of the Lambert W function, written out here because compiled code
cannot call SciPy's.
"""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf

_LN2 = math.log(2.0)
_INVERSE_E = math.exp(-1.0)


@compiled_leaf
def lambert_w0(x: float) -> float:
    """Principal branch ``W_0(x)``, the solution ``w >= -1`` of ``w e^w = x``.

    Args:
        x: At least ``-1/e``; smaller values (rounding) count as ``-1/e``.
    """
    distance = 2.0 * (1.0 + math.e * x)
    if distance <= 0.0:
        return -1.0
    if x < 0.5:
        root = math.sqrt(distance)
        w = -1.0 + root - root * root / 3.0 + 11.0 / 72.0 * root * root * root
        if x > -0.2:
            w = math.log1p(x)
    elif x < 3.0:
        w = math.log1p(x) * 0.8
    else:
        big = math.log(x)
        w = big - math.log(big) + math.log(big) / big
    return _halley(x, w)


@compiled_leaf
def lambert_w_minus_one(x: float) -> float:
    """Lower branch ``W_{-1}(x)``, the solution ``w <= -1`` of ``w e^w = x``.

    Args:
        x: In ``[-1/e, 0)``; smaller values (rounding) count as ``-1/e``.
    """
    distance = 2.0 * (1.0 + math.e * x)
    if distance <= 0.0:
        return -1.0
    if x < -0.2:
        root = -math.sqrt(distance)
        w = -1.0 + root - root * root / 3.0 + 11.0 / 72.0 * root * root * root
    else:
        big = math.log(-x)
        w = big - math.log(-big) + math.log(-big) / big
    return _halley(x, w)


@compiled_leaf
def _halley(x: float, w: float) -> float:
    for _ in range(40):
        power = math.exp(w)
        residual = w * power - x
        slope = power * (w + 1.0)
        if slope == 0.0:
            return w
        step = residual / (slope - (w + 2.0) * residual / (2.0 * w + 2.0))
        w -= step
        if abs(step) <= 1e-14 * (1.0 + abs(w)):
            break
    return w


@compiled_leaf
def optimal_power(
    delay_weight: float,
    energy_price: float,
    gain: float,
    noise_w: float,
    power_min_w: float,
    power_max_w: float,
) -> float:
    """Transmit power of one link that minimises ``(delay_weight + energy_price p) / rate(p)``.

    ``u = 1 + W_0((delay_weight gain / (energy_price noise) - 1) / e)``, ``p = (e^u - 1) noise / gain``,
    clipped to the limits. The payload and the bandwidth cancel.

    Args:
        delay_weight: Weight of the link's airtime in the objective [1/s], >= 0 (``V`` times the share of
            the airtime that delays the round).
        energy_price: Price of the sender's energy ``Q`` [1/J], >= 0; 0 gives full power.
        gain: Channel gain, > 0.
        noise_w: Noise plus interference in the link's band [W], > 0.
        power_min_w: Smallest power [W].
        power_max_w: Largest power [W].

    Returns:
        The power [W].
    """
    if energy_price <= 0.0:
        return power_max_w
    ratio = delay_weight * gain / (energy_price * noise_w)
    # Far beyond any real ratio, and short of overflow in the exponential below.
    if ratio > 1e250:
        return power_max_w
    u = 1.0 + lambert_w0((ratio - 1.0) * _INVERSE_E)
    return min(max(math.expm1(u) * noise_w / gain, power_min_w), power_max_w)


@compiled_leaf
def bandwidth_for_rate(rate: float, snr_hz: float) -> float:
    """Bandwidth at which ``B log2(1 + snr_hz / B)`` reaches a rate: the whole power in the band.

    With ``rho = rate ln 2 / snr_hz`` and ``x = -W_{-1}(-rho e^-rho) / rho - 1``, ``B = snr_hz / x``.

    Args:
        rate: Wanted rate [bit/s], >= 0.
        snr_hz: Power times gain over noise density, ``p g / N0`` [Hz], > 0.

    Returns:
        Bandwidth [Hz]; infinity where no bandwidth suffices (``rho >= 1``).
    """
    if rate <= 0.0:
        return 0.0
    rho = rate * _LN2 / snr_hz
    if rho >= 1.0:
        return math.inf
    x = -lambert_w_minus_one(-rho * math.exp(-rho)) / rho - 1.0
    if x <= 0.0:
        return math.inf
    return snr_hz / x


@compiled_inner
def minmax_upload(payload_bits: FloatArray, snr_hz: FloatArray, bandwidth_hz: float) -> FloatArray:
    """Shares of a band that let several senders finish their uploads at the same, earliest time.

    Bisection of the common deadline; every sender's bandwidth for a deadline is closed-form.

    Args:
        payload_bits: Bits of each sender (N,), > 0.
        snr_hz: Each sender's ``p g / N0`` (N,) [Hz], > 0.
        bandwidth_hz: The band to share [Hz].

    Returns:
        Shares (N,), summing to one.
    """
    senders = payload_bits.shape[0]
    # The deadline lies between the slowest upload over the whole band and the slowest over an equal part.
    low, high = 0.0, 0.0
    for n in range(senders):
        alone = bandwidth_hz * math.log1p(snr_hz[n] / bandwidth_hz) / _LN2
        part = bandwidth_hz / senders
        equal = part * math.log1p(snr_hz[n] / part) / _LN2
        low = max(low, payload_bits[n] / alone)
        high = max(high, payload_bits[n] / equal)
    share = np.empty(senders)
    for _ in range(50):
        deadline = 0.5 * (low + high)
        total = 0.0
        for n in range(senders):
            share[n] = bandwidth_for_rate(payload_bits[n] / deadline, snr_hz[n]) / bandwidth_hz
            total += share[n]
        if total > 1.0:
            low = deadline
        else:
            high = deadline
        if high - low <= 1e-12 * high:
            break
    total = 0.0
    for n in range(senders):
        share[n] = bandwidth_for_rate(payload_bits[n] / high, snr_hz[n]) / bandwidth_hz
        total += share[n]
    for n in range(senders):
        share[n] /= total
    return share
