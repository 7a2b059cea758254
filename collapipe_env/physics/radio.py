"""Radio: path loss, interference, Shannon rates and packet errors (`system_model.md` sections 3 and 7, [R]).

Node 0 of a cluster is its control unit (CU), nodes 1..K its devices. Gains are linear power gains.
"""

from __future__ import annotations

import math
from typing import Any

from collapipe_env.ground.arrays import Array, at_least, at_most, exp, expm1, log, log1p, namespace, where

LN2 = math.log(2.0)
GAIN_AT_1_KM = 10.0**-14.8
"""Gain between two devices 1 km apart."""

LEAST_EXPONENT, MOST_EXPONENT = 1e-7, 80.0
"""Exponents up to which two transmissions never fail, and beyond which nothing ever arrives.

To fourteen digits; between them logarithms and exponentials are finite, also in single precision.
"""


def db_to_linear(decibel: float) -> float:
    """Power ratio of a value in dB."""
    return float(10.0 ** (decibel / 10.0))


def gain_of(decibel: Array) -> Array:
    """Gains ``10^(x / 10)`` of an array in dB, computed with ``exp`` in a fifth of the time of a power.

    Args:
        decibel: ``x``, any shape [dB].
    """
    return exp((math.log(10.0) / 10.0) * decibel)


def path_gain_d2e(distance_m: Array) -> Array:
    """Gain CU to base station, path loss ``128.1 + 37.6 log10(distance_km)`` dB.

    Args:
        distance_m: Distances of any shape, > 0 [m].
    """
    xp = namespace(distance_m)
    return 10.0 ** (-(128.1 + 37.6 * xp.log10(distance_m / 1000.0)) / 10.0)


def path_gain_d2d(distance_m: Array) -> Array:
    """Gain between two devices, of the path loss ``148 + 40 log10(distance_km)`` dB: a fourth power.

    Args:
        distance_m: Distances of any shape, > 0 [m].
    """
    inverse_km = 1000.0 / distance_m
    square = inverse_km * inverse_km
    return GAIN_AT_1_KM * (square * square)


def interference(cross_gain: Array, mean_power: Array) -> Array:
    """Interference at each cluster from the other clusters' device-to-device links.

    ``I_n = sum_{m != n} X_{mn} pbar_m``.

    Args:
        cross_gain: ``X`` (..., N, N), gain between cluster centres, zero diagonal.
        mean_power: ``pbar`` (..., N), mean transmit power of each cluster's active nodes [W].

    Returns:
        ``I`` (..., N) [W].
    """
    xp = namespace(cross_gain, mean_power)
    return xp.sum(cross_gain * mean_power[..., :, None], axis=-2)


def mean_active_power(power: Array, active: Array) -> Array:
    """Mean transmit power of a cluster's active nodes (its CU and the devices that hold a segment).

    Args:
        power: Transmit powers (..., N, K+1), node 0 the CU [W].
        active: Devices that hold a segment (..., N, K), bool.

    Returns:
        ``pbar`` (..., N) [W].
    """
    xp = namespace(power, active)
    weight = xp.astype(active, power.dtype)
    total = power[..., 0] + xp.sum(power[..., 1:] * weight, axis=-1)
    return total / (1.0 + xp.sum(weight, axis=-1))


def d2d_noise(noise_density: float, bandwidth_hz: float, interference_w: Array) -> Array:
    """Noise plus interference in a device-to-device sub-channel, ``N0 W_d + I_n`` [W]."""
    return noise_density * bandwidth_hz + interference_w


def d2d_snr(power: Array, gain: Array, noise_w: Array) -> Array:
    """Signal to noise-plus-interference ratio of every link, ``p_i G_ij / (N0 W_d + I_n)``.

    Args:
        power: Transmit powers (..., N, K+1) [W].
        gain: ``G`` (..., N, K+1, K+1).
        noise_w: Noise plus interference (..., N) [W].

    Returns:
        Linear ratios (..., N, K+1, K+1), sender on the second-last axis.
    """
    return (power / noise_w[..., None])[..., None] * gain


def usable_snr(snr: Array, cap: float) -> Array:
    """SNR that a rate can use, limited by the modulation and coding ([X]).

    Args:
        snr: Signal to noise-plus-interference ratio of any shape.
        cap: The largest usable ratio; infinite for none.
    """
    return at_most(snr, cap)


def shannon_rate(snr: Array, bandwidth_hz: float) -> Array:
    """Shannon rate ``W log2(1 + SNR)`` [bit/s], of the shape of ``snr``."""
    return (bandwidth_hz / LN2) * log1p(snr)


def d2d_rate(link: Any, snr: Array) -> Array:
    """Rate of a device-to-device link [bit/s], of the shape of ``snr``.

    Args:
        link: A scenario's parameters or their numbers, with the band of a sub-channel and the usable SNR.
        snr: Signal to noise-plus-interference ratio.
    """
    return shannon_rate(usable_snr(snr, link.d2d_snr_cap), link.d2d_bandwidth_hz)


def uplink_rate(
    bandwidth_share: Array, power: Array, gain: Array, noise_w: float, bandwidth_hz: float
) -> Array:
    """OFDMA uplink rate ``beta W log2(1 + P h / (beta (N0 W + I_ext)))``, with the whole power in the share.

    Args:
        bandwidth_share: ``beta`` (..., N), in (0, 1].
        power: CU powers (..., N) [W].
        gain: ``h`` (..., N).
        noise_w: ``N0 W_up + I_ext`` over the whole band [W].
        bandwidth_hz: ``W_up`` [Hz].

    Returns:
        Rates (..., N) [bit/s].
    """
    return bandwidth_share * (bandwidth_hz / LN2) * log1p(power * gain / (bandwidth_share * noise_w))


def downlink_rate(
    bandwidth_share: Array, bs_power: float, gain: Array, noise_w: float, bandwidth_hz: float
) -> Array:
    """Downlink rate ``beta W_dl log2(1 + P_bs h / (N0 W_dl + I_ext))``, with the power spread over the band.

    Args:
        bandwidth_share: ``beta`` (..., N), in (0, 1].
        bs_power: ``P_bs`` [W].
        gain: ``h`` (..., N).
        noise_w: ``N0 W_dl + I_ext`` [W].
        bandwidth_hz: ``W_dl`` [Hz].

    Returns:
        Rates (..., N) [bit/s].
    """
    return bandwidth_share * (bandwidth_hz / LN2) * log1p((bs_power / noise_w) * gain)


def full_band_rate(bs_power: float, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
    """Downlink rate with the whole band, ``W_dl log2(1 + P_bs h / (N0 W_dl + I_ext))`` [bit/s].

    Args:
        bs_power: ``P_bs`` [W].
        gain: ``h`` of any shape; for a broadcast that of the weakest CU.
        noise_w: ``N0 W_dl + I_ext`` [W].
        bandwidth_hz: ``W_dl`` [Hz].
    """
    return shannon_rate((bs_power / noise_w) * gain, bandwidth_hz)


def failure_exponent(snr: Array, threshold: float) -> Array:
    """Exponent ``m / SNR`` of a hop's success probability ``1 - q = exp(-m / SNR)``, of the shape of ``snr``.

    Args:
        snr: Signal to noise-plus-interference ratio, > 0.
        threshold: Waterfall threshold ``m`` (linear).
    """
    return threshold / snr


def uplink_failure_exponent(
    bandwidth_share: Array, power: Array, gain: Array, noise_w: float, threshold: float
) -> Array:
    """Exponent ``m / SNR`` of the uplink's success probability ``1 - q = exp(-exponent)``.

    The exponents of the hops that a packet crosses add up, which keeps products over many hops exact.

    Args:
        bandwidth_share: ``beta`` (..., N); the noise in the share is ``beta (N0 W_up + I_ext)``.
        power: CU powers (..., N) [W].
        gain: ``h`` (..., N).
        noise_w: ``N0 W_up + I_ext`` over the whole band [W].
        threshold: Waterfall threshold ``m`` (linear).
    """
    return threshold * noise_w * bandwidth_share / (power * gain)


def loss_exponent(failure_exponent: Array, transmissions: float) -> Array:
    """Exponent ``y`` of the probability that a packet arrives, ``1 - q^R = exp(-y)``.

    A link sends a packet until it arrives, at most ``R`` times; ``y = m / SNR`` where it is sent once.

    Args:
        failure_exponent: ``x = m / SNR`` of any shape, >= 0, with ``q = 1 - exp(-x)``.
        transmissions: ``R``, >= 1.
    """
    if transmissions == 1.0:
        return failure_exponent
    x = at_least(at_most(failure_exponent, MOST_EXPONENT), LEAST_EXPONENT)
    y = -log(-expm1(transmissions * log1p(-exp(-x))))
    return where(failure_exponent > LEAST_EXPONENT, y, 0.0)


def expected_transmissions(failure_exponent: Array, transmissions: float) -> Array:
    """Mean number of transmissions of a packet, ``(1 - q^R) / (1 - q) = exp(x - y)`` (mode ``arq``).

    It is at most ``R``.

    Args:
        failure_exponent: ``x = m / SNR`` of any shape, >= 0.
        transmissions: ``R``, >= 1.
    """
    x = at_most(failure_exponent, MOST_EXPONENT)
    return exp(x - loss_exponent(x, transmissions))


def seconds_per_bit(rate: Array, failure_exponent: Array, transmissions: float) -> Array:
    """Mean airtime of a bit on a hop [s]: ``1 / r`` times the expected transmissions.

    Args:
        rate: Rate [bit/s], > 0; infinite where nothing is sent.
        failure_exponent: ``m / SNR``, >= 0, of that shape.
        transmissions: Most transmissions of a packet ``R``, 1 unless lost ones are sent again (``arq``).
    """
    seconds = 1.0 / rate
    if transmissions > 1.0:
        seconds = seconds * expected_transmissions(failure_exponent, transmissions)
    return seconds


def d2d_seconds_per_bit(link: Any, snr: Array) -> Array:
    """Mean airtime of a bit on a device-to-device hop [s], of the shape of ``snr``.

    Args:
        link: A scenario's parameters or their numbers.
        snr: Signal to noise-plus-interference ratio, > 0.
    """
    exponent = failure_exponent(snr, link.waterfall_threshold)
    return seconds_per_bit(d2d_rate(link, snr), exponent, link.transmissions)


def survival(loss_exponent: Array) -> Array:
    """Probability that a micro-batch survives a local step, ``prod (1 - q^R) = exp(-sum y)``.

    Args:
        loss_exponent: Sum over the links that the micro-batch crosses, any shape, >= 0.
    """
    return exp(-loss_exponent)
