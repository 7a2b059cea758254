"""Noise plus interference of the device-to-device links under a plan, which couples the clusters' radios."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.physics.parameters import Numbers

from .cluster_costs import mean_active_power
from .round_input import RoundInput


@compiled_inner
def noise_of(segments: IntArray, power: FloatArray, inputs: RoundInput, parameters: Numbers) -> FloatArray:
    """Noise plus interference of every cluster's device-to-device links (N,) [W].

    Args:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
    """
    clusters = segments.shape[0]
    noise, mean = np.empty(clusters), np.empty(clusters)
    for m in range(clusters):
        mean[m] = mean_active_power(segments[m], power[m])
    _add_interference(mean, inputs, parameters, noise)
    return noise


@compiled_inner
def set_moving_noise(segments: IntArray, power: FloatArray, inputs: RoundInput, parameters: Numbers) -> None:
    """Set the noise plus interference of the phase in which moments move, under a plan.

    In this phase the CUs and the old and new owners of all clusters disturb each other.

    Args:
        segments: Blocks (N, K).
        power: Powers of CUs and devices (N, K+1) [W].
        inputs: The environment; receives the noise (N,) [W].
    """
    clusters, devices = segments.shape
    blocks = inputs.held.shape[1]
    if blocks == 0:
        return
    mean = np.empty(clusters)
    for m in range(clusters):
        total, active = power[m, 0], 1
        for k in range(devices):
            involved = segments[m, k] > 0
            for block in range(blocks):
                involved = involved or inputs.held[m, block, k] > 0
            if involved:
                total += power[m, k + 1]
                active += 1
        mean[m] = total / active
    _add_interference(mean, inputs, parameters, inputs.moving_noise)


@compiled_leaf
def _add_interference(
    mean_power: FloatArray, inputs: RoundInput, parameters: Numbers, noise: FloatArray
) -> None:
    """Write noise plus interference (N,) [W] for the clusters' mean powers (N,) [W]."""
    clusters = noise.shape[0]
    for n in range(clusters):
        noise[n] = parameters.noise_density * parameters.d2d_bandwidth_hz
    for m in range(clusters):
        for n in range(clusters):
            if n != m:
                noise[n] += inputs.system.cross_gain[m, n] * mean_power[m]
