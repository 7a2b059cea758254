"""Packet errors: how often a packet is sent, and whether it arrives (`system_model.md` section 7).

Two laws give the probability ``q = 1 - exp(-x)`` that one transmission fails, by its exponent ``x``. The
paper's form is ``x = m / SNR`` with a waterfall threshold ``m`` [R]. With link adaptation [X] the sender
chooses its format for a target error rate; below the SNR of the most robust format the exponent grows with
the eighth power. Block error curves are as steep: at a target of 0.1, 2 dB below it one packet in a hundred
arrives.
"""

from __future__ import annotations

from collapipe_env.ground.arrays import Array, at_least, at_most, exp, expm1, log, log1p, where
from collapipe_env.physics.rates import LinkLaw, link_rate

LEAST_EXPONENT, MOST_EXPONENT = 1e-7, 80.0
"""Exponents up to which two transmissions never fail, and beyond which nothing ever arrives.

To fourteen digits; between them logarithms and exponentials are finite, also in single precision.
"""

MOST_BELOW = 10.0
"""Ratio of the floor to an SNR beyond which the exponent of an adapted link no longer grows."""


def failure_exponent(link: LinkLaw, snr: Array) -> Array:
    """Exponent ``x`` of a transmission's success probability ``1 - q = exp(-x)``, of the shape of ``snr``.

    Args:
        link: ``m / SNR``, or ``-log(1 - target) max(1, floor / SNR)^8`` where the link adapts.
        snr: Signal to noise-plus-interference ratio, > 0.
    """
    if link.adapted_exponent == 0.0:
        return link.waterfall_threshold / snr
    below = at_most(at_least(link.snr_floor / snr, 1.0), MOST_BELOW)
    square = below * below
    fourth = square * square
    return link.adapted_exponent * (fourth * fourth)


def failure_steepness(link: LinkLaw, snr: float) -> float:
    """``-d log x / d log SNR`` of :func:`failure_exponent`: 1, or 8 or 0 on links that adapt."""
    if link.adapted_exponent == 0.0:
        return 1.0
    return 8.0 if snr < link.snr_floor < MOST_BELOW * snr else 0.0


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


def d2d_seconds_per_bit(link: LinkLaw, bandwidth_hz: float, snr: Array) -> Array:
    """Mean airtime of a bit on a device-to-device hop [s], of the shape of ``snr``.

    Args:
        bandwidth_hz: ``W_d`` [Hz].
        snr: Signal to noise-plus-interference ratio, > 0.
    """
    rate = link_rate(link, bandwidth_hz, snr)
    return seconds_per_bit(rate, failure_exponent(link, snr), link.transmissions)


def survival(loss_exponent: Array) -> Array:
    """Probability that a micro-batch survives a local step, ``prod (1 - q^R) = exp(-sum y)``.

    Args:
        loss_exponent: Sum over the links that the micro-batch crosses, any shape, >= 0.
    """
    return exp(-loss_exponent)
