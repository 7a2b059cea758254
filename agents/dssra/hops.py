"""One device-to-device link: airtime and failures of a bit, for pipeline messages and moments alike."""

from __future__ import annotations

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.compiled import compiled_leaf
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import d2d_rate, failure_exponent, loss_exponent, seconds_per_bit


@compiled_leaf
def hop_of(snr: float, parameters: Numbers) -> tuple[float, float]:
    """Airtime of one bit on a device-to-device link, repeats included [s], and its loss exponent."""
    exponent = failure_exponent(snr, parameters.waterfall_threshold)
    rate = d2d_rate(parameters, snr)
    R = parameters.transmissions
    return seconds_per_bit(rate, exponent, R), loss_exponent(exponent, R)
