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
        channels: Sub-channels of the cluster's band, one a node.
    """

    duty: float
    channels: float


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


def active_power(power: Array, active: Array) -> Array:
    """Sum of the transmit powers of each cluster's active nodes, its CU among them (..., N) [W].

    Args:
        power: Transmit powers (..., N, K+1), node 0 the CU [W].
        active: Active devices, those that hold a segment (..., N, K), bool.
    """
    xp = namespace(power, active)
    return power[..., 0] + xp.sum(power[..., 1:] * xp.astype(active, power.dtype), axis=-1)


def power_in_a_channel(total: Array, sharing: Sharing) -> Array:
    """Mean power ``pbar`` that a cluster radiates in a sub-channel [W].

    Args:
        total: Sum of the transmit powers of its active nodes [W].
        sharing: How nodes share time and band.
    """
    return sharing.duty * total / sharing.channels


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
