"""Remaining plans and transfers of clusters in which a device failed, failure by failure ([X]).

The formulas are those of :mod:`collapipe_env.physics.recovery`. Arrays have a leading axis of ``F`` failures.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner
from collapipe_env.physics.packet_errors import d2d_seconds_per_bit
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import d2d_noise
from collapipe_env.physics.recovery import (
    FROZEN,
    fit_memory,
    light_segments,
    moving_time,
    remaining_holder,
    replay_messages,
    rescheduling_messages,
)


@compiled
def held_blocks(blocks: IntArray, stage: IntArray, depth: int) -> BoolArray:
    """Find the devices that hold each block (F, L, K), bool.

    Args:
        blocks: Blocks of each stage slot (F, K).
        stage: Slot of each device (F, K), -1 for none.
        depth: ``L``.
    """
    F, K = blocks.shape
    holders = np.zeros((F, depth, K), dtype=np.bool_)
    for f in range(F):
        for k in range(K):
            begin = 0
            for slot in range(stage[f, k]):
                begin += blocks[f, slot]
            for block in range(begin, begin + (blocks[f, stage[f, k]] if stage[f, k] >= 0 else 0)):
                holders[f, block, k] = True
    return holders


@compiled
def remaining_splits(
    blocks: IntArray,
    stage: IntArray,
    device: IntArray,
    idle: BoolArray,
    speed: FloatArray,
    room: IntArray,
    several: bool,
    splits: IntArray,
) -> IntArray:
    """Find splits of the blocks over the devices that remain.

    Idle devices join where every stage is one device: each takes a free slot.

    Args:
        blocks: Blocks of each stage slot before the failure (F, K).
        stage: Slot of each device (F, K), -1 for none; changed to the slots after the failure.
        device: Device that failed (F,).
        idle: Devices that may join, if they have no slot (F, K).
        speed: Speed of each device (F, K) [FLOP/s].
        room: Blocks that each device can hold (F, K).
        several: Whether splits over the fastest 1 to K devices are wanted. Otherwise, and in clusters with
            groups, it is the split over the old stages, or over all if those cannot hold the blocks.
        splits: Blocks of each slot in the splits that fit the memories (F, K, K), written.

    Returns:
        Number of splits (F,); 0 where the remaining devices lack memory.
    """
    F, K = blocks.shape
    found = np.zeros(F, dtype=np.int64)
    members, least = np.empty(K, dtype=np.int64), np.empty(K, dtype=np.int64)
    fastness, working = np.empty(K), np.empty(K, dtype=np.bool_)
    for f in range(F):
        stage[f, device[f]] = -1
        members[:] = 0
        alone = True
        for k in range(K):
            if stage[f, k] >= 0:
                members[stage[f, k]] += 1
                alone = alone and members[stage[f, k]] == 1
        free = 0
        for k in range(K):
            if alone and stage[f, k] < 0 and idle[f, k] and k != device[f]:
                while members[free] > 0:
                    free += 1
                stage[f, k], members[free] = free, 1
        fastness[:] = 0.0
        for k in range(K):
            slot = stage[f, k]
            if slot >= 0:
                least[slot] = room[f, k] if fastness[slot] == 0.0 else min(least[slot], room[f, k])
                fastness[slot] += speed[f, k]
        for slot in range(K):
            if fastness[slot] > 0.0 and least[slot] == 0:
                fastness[slot] = 0.0
        if several and alone:
            working[:] = False
            for _ in range(K):
                fastest = -1
                for slot in range(K):
                    if not working[slot] and (fastest < 0 or fastness[slot] > fastness[fastest]):
                        fastest = slot
                working[fastest] = True
                if fastness[fastest] > 0.0 and _split(
                    blocks[f], fastness, least, working, splits[f, found[f]]
                ):
                    found[f] += 1
            continue
        for slot in range(K):
            working[slot] = blocks[f, slot] > 0
        found[f] = _split(blocks[f], fastness, least, working, splits[f, 0])
        if found[f] == 0 and alone:
            # Devices without blocks help out where the others lack memory.
            working[:] = True
            found[f] = _split(blocks[f], fastness, least, working, splits[f, 0])
    return found


@compiled_inner
def _split(
    blocks: IntArray, fastness: FloatArray, least: IntArray, working: BoolArray, split: IntArray
) -> int:
    """Divide all blocks among the working slots (K,) with a speed, and return 1; 0 where they lack memory."""
    slots = np.flatnonzero(working & (fastness > 0.0))
    if len(slots) == 0:
        return 0
    segments = light_segments(blocks.sum(), fastness[slots])
    if not fit_memory(segments, least[slots]):
        return 0
    split[:] = 0
    for p in range(len(slots)):
        split[slots[p]] = segments[p]
    return 1


@compiled
def transfers(
    record: Any,
    bits: FloatArray,
    in_turn: bool,
    device: IntArray,
    host: IntArray,
    before: BoolArray,
    after: BoolArray,
    power: FloatArray,
    gain: FloatArray,
    interference: FloatArray,
) -> tuple[IntArray, IntArray, BoolArray, FloatArray, FloatArray]:
    """Find what nodes send each other before the replay, and how long it takes.

    Args:
        record: The parameters as a record (1,).
        bits: Bits of the parts of a block (4,).
        in_turn: Whether all is planned again and sent over the CU, message by message.
        device: Device that failed (F,).
        host: Node that keeps its replicas (F,), CU first; -1 for none.
        before: Holders of each block before the failure (F, L, K).
        after: Holders under the remaining plan (F, L, K).
        power: Transmit powers of the nodes (F, K+1) [W].
        gain: Gains from node to node (F, K+1, K+1).
        interference: Interference in the cluster (F,) [W].

    Returns:
        Messages (F, most, 4) and their number (F,); blocks whose moments start again from zero (F, L);
        ``T_move`` (F,) [s]; seconds that each node sends and receives (F, 2, K+1).
    """
    c: Numbers = record[0]
    F, L, K = before.shape
    count, lost = np.zeros(F, dtype=np.int64), np.zeros((F, L), dtype=np.bool_)
    move_s, airtime = np.zeros(F), np.zeros((F, 2, K + 1))
    # A block is sent at most twice over the CU and twice to each device.
    messages = np.empty((F, 2 * L * (K + 1), 4), dtype=np.int64)
    seconds = np.empty((K + 1, K + 1))
    for f in range(F):
        sent = messages[f]
        if in_turn:
            count[f] = rescheduling_messages(before[f], after[f], device[f], host[f], sent)
        else:
            count[f] = replay_messages(before[f], after[f], device[f], host[f], bits[FROZEN] > 0.0, sent)
        for block in range(L):
            alone = before[f, block, device[f]] and remaining_holder(before[f], device[f], block) < 0
            lost[f, block] = alone and host[f] < 0
        seconds[:] = 0.0
        for m in range(count[f]):
            source, target = sent[m, 0], sent[m, 1]
            if source != target:
                seconds[source, target] += bits[sent[m, 3]]
        noise = d2d_noise(c.noise_density, c.d2d_bandwidth_hz, interference[f])
        for i in range(K + 1):
            for j in range(K + 1):
                if seconds[i, j] > 0.0:
                    snr = power[f, i] / noise * gain[f, i, j]
                    seconds[i, j] *= d2d_seconds_per_bit(c.link, c.d2d_bandwidth_hz, snr)
                    airtime[f, 0, i] += seconds[i, j]
                    airtime[f, 1, j] += seconds[i, j]
        move_s[f] = moving_time(in_turn, seconds)
    return messages, count, lost, move_s, airtime
