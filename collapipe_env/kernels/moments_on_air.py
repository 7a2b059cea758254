"""Optimiser moments that follow their blocks, row by row, under plans of one device a stage.

The meaning is that of :mod:`collapipe_env.physics.moves`; only hops that carry moments are priced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, inlined
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.moves import LOST, TRAVEL
from collapipe_env.physics.packet_errors import d2d_seconds_per_bit
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import d2d_noise


@compiled
def held_rows(
    blocks: IntArray, plays: BoolArray, old_blocks: IntArray, old_holders: BoolArray
) -> tuple[IntArray, BoolArray]:
    """Return the blocks (R, N, K) and holders (R, N, L, K+1) after a round.

    Args:
        blocks: Consecutive blocks of each device under the plan (R, N, K); the server holds those after them.
        plays: Clusters that took part (R, N); the others keep what they held.
        old_blocks: Before the round (R, N, K).
        old_holders: Before the round (R, N, L, K+1).
    """
    R, N, L, _ = old_holders.shape
    K = blocks.shape[2]
    found, holders = old_blocks.copy(), old_holders.copy()
    for r in range(R):
        for n in range(N):
            if plays[r, n]:
                end = 0
                for k in range(K):
                    first, end = end, end + blocks[r, n, k]
                    found[r, n, k] = blocks[r, n, k]
                    for block in range(L):
                        holders[r, n, block, k + 1] = first <= block < end
                for block in range(L):
                    holders[r, n, block, 0] = block >= end
    return found, holders


@compiled
def migration_rows(
    record: Any,
    blocks: IntArray,
    plays: BoolArray,
    cu_power: FloatArray,
    device_power: FloatArray,
    before: BoolArray,
    present: BoolArray,
    gain: FloatArray,
    cross_gain: FloatArray,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Price the moments that a plan moves; see :func:`collapipe_env.dynamics.migration.migration_terms`.

    Args:
        record: The parameters as a record (1,).
        blocks: Consecutive blocks of each device under the plan (R, N, K).
        plays: Clusters that take part (R, N).
        cu_power: (R, N) [W].
        device_power: (R, N, K) [W].
        before: Holders in the round before (R, N, L, K+1).
        present: Present devices (R, N, K).
        gain: ``G`` (R, N, K+1, K+1).
        cross_gain: ``X`` (R, N, N).

    Returns:
        Fates of the moments (R, N, L), duration of the phase (R, N) [s], energy of each node (R, N, K+1) [J].
    """
    c: Numbers = record[0]
    radio = c.radio_power
    R, N, L, nodes = before.shape
    moments = np.zeros((R, N, L), dtype=np.int64)
    duration, joules = np.zeros((R, N)), np.zeros((R, N, nodes))
    moved, mean = np.empty((N, nodes, nodes)), np.empty(N)
    sent, received = np.empty(nodes), np.empty(nodes)
    for r in range(R):
        moved[:] = 0.0
        for n in range(N):
            mean[n] = 0.0
            if plays[r, n]:
                held = before[r, n], present[r, n], blocks[r, n]
                _hand_over(c.moment_bits > 0.0, c.through_cu, *held, moments[r, n], moved[n])
                mean[n] = _total_power(cu_power[r, n], device_power[r, n], *held) / c.sharing.channels
        for n in range(N):
            disturbance = 0.0
            for m in range(N):
                disturbance += cross_gain[r, m, n] * mean[m]
            noise = d2d_noise(c.noise_density, c.d2d_bandwidth_hz, disturbance)
            sent[:], received[:] = 0.0, 0.0
            for i in range(nodes):
                power = device_power[r, n, i - 1] if i else cu_power[r, n]
                for j in range(nodes):
                    if moved[n, i, j] > 0.0:
                        snr = power / noise * gain[r, n, i, j]
                        airtime = moved[n, i, j] * (
                            c.moment_bits * d2d_seconds_per_bit(c.link, c.d2d_bandwidth_hz, snr)
                        )
                        sent[i] += airtime
                        received[j] += airtime
                drawn = radio_power(power, radio.d2d_circuit_w, radio.efficiency)
                joules[r, n, i] = drawn * sent[i]
            for node in range(nodes):
                joules[r, n, node] += radio.receive_w * received[node]
                # The busiest sender or receiver; over the CU, the CU.
                if node == 0 or not c.through_cu:
                    duration[r, n] = max(duration[r, n], max(sent[node], received[node]))
    return moments, duration, joules


@inlined
def _hand_over(
    travel: bool,
    through_cu: bool,
    before: BoolArray,
    present: BoolArray,
    blocks: IntArray,
    moments: IntArray,
    moved: FloatArray,
) -> None:
    """Count the blocks whose moments go from node to node in a cluster, and write the fates of moments."""
    L, nodes = before.shape
    node, end = 1, 0
    for block in range(L):
        # Its holder now; the server's blocks come after those of the devices.
        while node < nodes and block >= end + blocks[node - 1]:
            end += blocks[node - 1]
            node += 1
        holder = node if node < nodes else 0
        if before[block, holder] and (holder == 0 or present[holder - 1]):
            continue
        lead, started = 0, before[block, 0]
        for k in range(nodes - 1, 0, -1):
            if before[block, k]:
                started = True
                lead = k if present[k - 1] else lead
        if not started:
            continue
        if travel and lead > 0 and holder > 0:
            moments[block] = TRAVEL
            if through_cu:
                moved[lead, 0] += 1.0
                moved[0, holder] += 1.0
            else:
                moved[lead, holder] += 1.0
        else:
            moments[block] = LOST


@inlined
def _total_power(
    cu_power: float, device_power: FloatArray, before: BoolArray, present: BoolArray, blocks: IntArray
) -> float:
    """Return the sum of the powers of a cluster's CU and of the devices that held or hold a block [W]."""
    together = cu_power
    for k in range(len(blocks)):
        involved = blocks[k] > 0
        if present[k] and not involved:
            for block in range(before.shape[0]):
                involved = involved or before[block, k + 1]
        if involved:
            together += device_power[k]
    return together
