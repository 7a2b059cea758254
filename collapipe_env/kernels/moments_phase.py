"""Phase in which moments of moved blocks travel, cluster by cluster; only hops that carry any are priced."""

from __future__ import annotations

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.radio import d2d_noise, failure_exponent, seconds_per_bit, shannon_rate, usable_snr


@compiled
def phase_rows(
    radio: tuple[float, float, float, float],
    transmissions: float,
    block_bits: float,
    through_cu: bool,
    power: FloatArray,
    gain: FloatArray,
    cross_gain: FloatArray,
    moved: FloatArray,
    leaving: FloatArray,
    involved: BoolArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Price the phase; see :func:`collapipe_env.physics.moves.moving_times`.

    Args:
        radio: Noise density [W/Hz], bandwidth of a hop [Hz], largest usable SNR and waterfall threshold.
        transmissions: Most transmissions of a packet ``R``.
        block_bits: Both moments of one block [bit].
        through_cu: Whether all moments go over the CU.
        power: Transmit powers (E, N, K+1) [W].
        gain: ``G`` (E, N, K+1, K+1).
        cross_gain: ``X`` (E, N, N).
        moved: Blocks from device to device (E, N, K, K).
        leaving: Blocks that leave a device (E, N, K).
        involved: Devices that held or hold a block (E, N, K).

    Returns:
        The three arrays of ``PhaseTimes``.
    """
    noise_density, bandwidth_hz, snr_cap, threshold = radio
    E, N, nodes = power.shape
    duration, sent, received = np.empty((E, N)), np.zeros((E, N, nodes)), np.zeros((E, N, nodes))
    mean = np.empty(N)
    for e in range(E):
        for n in range(N):
            together, count = power[e, n, 0], 1.0
            for k in range(1, nodes):
                if involved[e, n, k - 1]:
                    together += power[e, n, k]
                    count += 1.0
            mean[n] = together / count
        for n in range(N):
            disturbance = 0.0
            for m in range(N):
                disturbance += cross_gain[e, m, n] * mean[m]
            noise = d2d_noise(noise_density, bandwidth_hz, disturbance)
            for i in range(nodes):
                for j in range(nodes):
                    blocks = 0.0
                    if not through_cu and i > 0 and j > 0:
                        blocks = moved[e, n, i - 1, j - 1]
                    elif through_cu and j == 0 and i > 0:
                        blocks = leaving[e, n, i - 1]
                    elif through_cu and i == 0 and j > 0:
                        for sender in range(nodes - 1):
                            blocks += moved[e, n, sender, j - 1]
                    if blocks > 0.0:
                        snr = power[e, n, i] / noise * gain[e, n, i, j]
                        rate = shannon_rate(usable_snr(snr, snr_cap), bandwidth_hz)
                        exponent = failure_exponent(snr, threshold)
                        bit_s = seconds_per_bit(rate, exponent, transmissions)
                        airtime = blocks * (block_bits * bit_s)
                        sent[e, n, i] += airtime
                        received[e, n, j] += airtime
            # The busiest sender or receiver; over the CU, the CU.
            duration[e, n] = max(sent[e, n, 0], received[e, n, 0])
            if not through_cu:
                for k in range(1, nodes):
                    duration[e, n] = max(duration[e, n], max(sent[e, n, k], received[e, n, k]))
    return duration, sent, received
