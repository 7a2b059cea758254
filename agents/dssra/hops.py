"""One device-to-device link: airtime and failures of a bit, for pipeline messages and moments alike."""

from __future__ import annotations

import math

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.compiled import compiled_leaf, inlined
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.radio import (
    expected_transmissions,
    failure_exponent,
    loss_exponent,
    seconds_per_bit,
    shannon_rate,
    usable_snr,
)


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
def hop_of(snr: float, parameters: Parameters) -> tuple[float, float]:
    """Airtime of one bit on a device-to-device link, repeats included [s], and its loss exponent."""
    exponent = failure_exponent(snr, parameters.waterfall_threshold)
    rate = shannon_rate(usable_snr(snr, parameters.d2d_snr_cap), parameters.d2d_bandwidth_hz)
    R = parameters.transmissions
    return seconds_per_bit(rate, exponent, R), loss_exponent(exponent, R)
