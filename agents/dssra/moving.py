"""Moments of moved blocks in DSSRA's costs: the price of a change from the previous round's plan ([X]).

``inputs.held`` says which device held which block; it has no blocks where a change of plan costs nothing. The
formulas are those of ``collapipe_env.physics.moves`` for one plan of one cluster, in loops that allocate
no arrays; the tests compare the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_leaf
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.packet_errors import d2d_seconds_per_bit
from collapipe_env.physics.parameters import Numbers

from .round_input import RoundInput

FIRST: Any = np.int64(0)
"""Index of the first block, and of the CU's node. For a plain 0, Numba would compile callees once more."""


@compiled_leaf
def moments_airtime(
    n: int, sender: int, receiver: int, power: FloatArray, inputs: RoundInput, parameters: Numbers
) -> float:
    """Airtime of one block's moments between two nodes of a cluster [s].

    Args:
        sender: Node that sends, 0 for the CU.
        receiver: Another node.
        power: Powers of the CU and the devices (K+1,) [W].
        inputs: The environment, with the noise of this phase.
    """
    snr = power[sender] * inputs.system.d2d_gain[n, sender, receiver] / inputs.moving_noise[n]
    seconds: float = parameters.moment_bits * d2d_seconds_per_bit(
        parameters.link, parameters.d2d_bandwidth_hz, snr
    )
    return seconds


@compiled_leaf
def lead_of(n: int, block: int, device: int, inputs: RoundInput) -> int:
    """Device that sends a block's moments to another, or -1 if nothing has to be sent.

    Args:
        device: The device that holds it now.
    """
    return -1 if inputs.held[n, block, device] > 0 else int(inputs.lead[n, block])


@compiled_leaf
def moving_costs(
    n: int,
    segments: IntArray,
    power: FloatArray,
    inputs: RoundInput,
    parameters: Numbers,
    energy: FloatArray,
) -> float:
    """Duration of the phase in which moments move [s]; adds the energies of the phase to ``energy``.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        energy: Energies of the nodes (K+1,) [J], added to.
    """
    if inputs.held.shape[1] == 0:
        return 0.0
    radio, duration, through_cu = parameters.radio_power, 0.0, parameters.through_cu
    at_cu, from_cu = 0.0, 0.0
    for device in range(segments.shape[0]):
        # What the device sends and receives: one walk over the blocks for each device needs no array.
        sent, received, block = 0.0, 0.0, FIRST
        for k in range(segments.shape[0]):
            for _ in range(segments[k]):
                lead = lead_of(n, block, k, inputs)
                block += 1
                if lead == device:
                    sent += moments_airtime(
                        n, lead + 1, 0 if through_cu else k + 1, power, inputs, parameters
                    )
                if lead >= 0 and k == device:
                    sender = 0 if through_cu else lead + 1
                    received += moments_airtime(n, sender, k + 1, power, inputs, parameters)
        duration = max(duration, max(sent, received))
        at_cu, from_cu = at_cu + sent, from_cu + received
        drawn = radio_power(power[device + 1], radio.d2d_circuit_w, radio.efficiency)
        energy[device + 1] += drawn * sent + radio.receive_w * received
    if through_cu:
        duration = max(at_cu, from_cu)
        drawn = radio_power(power[0], radio.d2d_circuit_w, radio.efficiency)
        energy[0] += drawn * from_cu + radio.receive_w * at_cu
    return duration


@compiled_leaf
def sends_moments(n: int, device: int, segments: IntArray, inputs: RoundInput) -> bool:
    """Whether a device sends moments of blocks under a plan.

    Args:
        segments: Blocks of each device (K,).
        inputs: The environment, in which changes of plan cost something.
    """
    block = FIRST
    for k in range(segments.shape[0]):
        for _ in range(segments[k]):
            if lead_of(n, block, k, inputs) == device:
                return True
            block += 1
    return False
