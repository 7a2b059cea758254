"""Radio: interference, noise and signal to noise ratios (`system_model.md` section 3, [R]).

Node 0 of a cluster is its control unit (CU), nodes 1..K its devices. Gains are linear power gains.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.ground.arrays import Array, exp, namespace


class Sharing(NamedTuple):
    """How the nodes of a cluster share time and band between devices ([X]).

    Attributes:
        duty: Share of the time that a hop has: 1/2 where the one radio of a node serves both neighbours.
        channels: Sub-channels of the cluster's band, one a node; 0 where every hop has one of its own.
    """

    duty: float
    channels: float


OWN_CHANNELS = Sharing(1.0, 0.0)
"""Every hop has a sub-channel of its own, and a radio at both ends."""


def db_to_linear(decibel: float) -> float:
    """Power ratio of a value in dB."""
    return float(10.0 ** (decibel / 10.0))


def gain_of(decibel: Array) -> Array:
    """Gains ``10^(x / 10)`` of an array in dB, computed with ``exp`` in a fifth of the time of a power.

    Args:
        decibel: ``x``, any shape [dB].
    """
    return exp((math.log(10.0) / 10.0) * decibel)


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


def mean_active_power(power: Array, active: Array, sharing: Sharing = OWN_CHANNELS) -> Array:
    """Mean power that a cluster radiates in a sub-channel.

    It is the mean over its active nodes (its CU and the devices that hold a segment), or over all
    sub-channels where there is one for each node, for the part of the time in which a hop may be used.

    Args:
        power: Transmit powers (..., N, K+1), node 0 the CU [W].
        active: Devices that hold a segment (..., N, K), bool.
        sharing: How nodes share time and band.

    Returns:
        ``pbar`` (..., N) [W].
    """
    xp = namespace(power, active)
    weight = xp.astype(active, power.dtype)
    total = power[..., 0] + xp.sum(power[..., 1:] * weight, axis=-1)
    return power_in_a_channel(total, 1.0 + xp.sum(weight, axis=-1), sharing)


def power_in_a_channel(total: Array, active: Array, sharing: Sharing) -> Array:
    """Mean power in a sub-channel, of the sum over a cluster's active nodes [W].

    Args:
        total: Sum of their transmit powers [W].
        active: Their number, > 0.
    """
    return sharing.duty * total / (sharing.channels if sharing.channels > 0.0 else active)


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
