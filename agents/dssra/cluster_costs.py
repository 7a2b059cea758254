"""One cluster's round in scalars: the physics of ``round_costs`` for compiled search loops.

Times are those of the whole mini-batch: with ``M`` micro-batches an element lasts ``1 / M`` of them, so
that a local step is ``(sum a + sum c) / M + (1 - 1 / M) (max a + max c)`` and energies do not depend on
``M``. Only plans with one device in a stage are covered. The tests hold these formulas against
``round_costs``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.compiled import compiled_leaf
from collapipe_env.physics.radio import expected_transmissions

from .round_input import RoundConstants, RoundInput

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LN2 = math.log(2.0)


# Columns of a cluster's summary, from which its delay and cost follow for any share of the uplink.
FIXED_S = 0  # delay without uplink, downlink, slowest elements and upload [s]
FORWARD_S = 1  # slowest forward element except the uplink [s]
BACKWARD_S = 2  # slowest backward element except the downlink [s]
FIXED_COST = 3  # priced energy (and failures) without the uplink
UPLINK_SNR = 4  # signal to noise ratio of the uplink if it had the whole band
DOWNLINK_RATE = 5  # downlink rate with the whole band [bit/s]
UPLINK_PRICE = 6  # price of a second on the uplink [1/s]
FILL = 7  # local steps over micro-batches: how often the sum of a mini-batch's times counts
LOSS_PRICE = 8  # price of a unit of the failure exponent
SUMMARY = 9


@compiled_leaf
def packet_seconds_per_bit(snr: float, constants: RoundConstants) -> float:
    """Airtime of one bit of activations or gradients on a device-to-device link [s]."""
    seconds = LN2 / (constants.d2d_hz * math.log1p(snr))
    if constants.retransmit:
        seconds *= expected_transmissions(constants.waterfall / snr)
    return seconds


@compiled_leaf
def summarise_cluster(
    n: int,
    segments: IntArray,
    power: FloatArray,
    noise_w: float,
    inputs: RoundInput,
    constants: RoundConstants,
    summary: FloatArray,
) -> None:
    """Everything about a cluster's round that does not depend on its share of the uplink.

    Args:
        n: The cluster.
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        noise_w: Noise plus interference of its device-to-device links [W].
        inputs: The environment.
        constants: The scenario.
        summary: Receives the columns above (SUMMARY,).
    """
    devices = segments.shape[0]
    ratio = constants.backward_over_forward
    total = constants.server_s * (1.0 + ratio)
    forward_max, backward_max = constants.server_s, ratio * constants.server_s
    collect_max, cost, exponent = 0.0, 0.0, 0.0
    last = 0
    for step in range(1, devices + 2):
        node = step if step <= devices else 0
        if node > 0 and segments[node - 1] == 0:
            continue
        gain = inputs.gain[n, last, node]
        forward = constants.activation_bits * packet_seconds_per_bit(power[last] * gain / noise_w, constants)
        backward = constants.gradient_bits * packet_seconds_per_bit(power[node] * gain / noise_w, constants)
        total += forward + backward
        forward_max, backward_max = max(forward_max, forward), max(backward_max, backward)
        cost += constants.steps * inputs.price[n, last] * power[last] * forward
        cost += constants.steps * inputs.price[n, node] * power[node] * backward
        exponent += noise_w / gain * (1.0 / power[last] + 1.0 / power[node])
        if node > 0:
            blocks = segments[node - 1]
            compute = blocks * inputs.block_s[n, node - 1]
            total += compute * (1.0 + ratio)
            forward_max = max(forward_max, compute)
            backward_max = max(backward_max, ratio * compute)
            snr = power[node] * inputs.gain[n, node, 0] / noise_w
            collect = blocks * constants.collect_bits * LN2 / (constants.d2d_hz * math.log1p(snr))
            collect_max = max(collect_max, collect)
            cost += blocks * inputs.block_price[n, node - 1]
            cost += inputs.price[n, node] * power[node] * collect
        last = node
    summary[FIXED_S] = constants.steps * total / inputs.micro_batches[n] + collect_max
    summary[FORWARD_S] = forward_max
    summary[BACKWARD_S] = backward_max
    summary[FIXED_COST] = cost + inputs.loss_price[n] * constants.waterfall * exponent
    summary[UPLINK_SNR] = power[0] * inputs.uplink_gain[n] / constants.uplink_noise_w
    summary[DOWNLINK_RATE] = inputs.downlink_rate[n]
    summary[UPLINK_PRICE] = inputs.price[n, 0] * power[0]
    summary[FILL] = constants.steps / inputs.micro_batches[n]
    summary[LOSS_PRICE] = inputs.loss_price[n]


@compiled_leaf
def uplink_seconds(share: float, snr: float, constants: RoundConstants) -> tuple[float, float]:
    """Time of a mini-batch's activations and of the update on the uplink.

    Args:
        share: ``beta``.
        snr: Signal to noise ratio if the CU had the whole band.
        constants: The scenario.

    Returns:
        Activations of a mini-batch (repeats included), update [s].
    """
    per_bit = LN2 / (share * constants.uplink_hz * math.log1p(snr / share))
    repeats = expected_transmissions(constants.waterfall * share / snr) if constants.retransmit else 1.0
    return constants.activation_bits * per_bit * repeats, constants.update_bits * per_bit


@compiled_leaf
def delay_and_cost(share: float, summary: FloatArray, constants: RoundConstants) -> tuple[float, float]:
    """A cluster's delay ``T_n`` [s] and priced energy for a share of the uplink.

    Args:
        share: ``beta_n``.
        summary: The cluster's summary (SUMMARY,).
        constants: The scenario.
    """
    snr = summary[UPLINK_SNR]
    uplink, upload = uplink_seconds(share, snr, constants)
    downlink = constants.gradient_bits / (share * summary[DOWNLINK_RATE])
    fill = summary[FILL]
    delay = (
        summary[FIXED_S]
        + fill * (uplink + downlink)
        + (constants.steps - fill) * (max(summary[FORWARD_S], uplink) + max(summary[BACKWARD_S], downlink))
        + upload
    )
    cost = (
        summary[FIXED_COST]
        + summary[UPLINK_PRICE] * (constants.steps * uplink + upload)
        + summary[LOSS_PRICE] * constants.waterfall * share / snr
    )
    return delay, cost


@compiled_leaf
def mean_active_power(segments: IntArray, power: FloatArray) -> float:
    """Mean transmit power of a cluster's CU and used devices [W]: what disturbs the other clusters.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
    """
    total, active = float(power[0]), 1
    for k in range(segments.shape[0]):
        if segments[k] > 0:
            total += power[k + 1]
            active += 1
    return total / active
