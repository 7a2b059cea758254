"""Decoding of actions to allocations, row by row; see :class:`~collapipe_env.simulator.codec.ActionCodec`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, inlined


class DecodeLimits(NamedTuple):
    """The scalars of an action codec, as :class:`~collapipe_env.simulator.codec.ActionCodec` names them."""

    power_min_w: float
    power_max_w: float
    bandwidth_floor: float


@compiled
def decode_rows(
    record: Any, choices: IntArray, actions: FloatArray, memory_cap: IntArray, totals: IntArray
) -> tuple[bool, IntArray, IntArray, FloatArray, FloatArray]:
    """Decode actions (E, N, 2K + 3); the memory caps are (E, N, K).

    Args:
        record: :class:`DecodeLimits` as a record (1,).
        choices: Allowed numbers of micro-batches, ascending.
        actions: Clipped to [-1, 1] here.
        memory_cap: Blocks that each device can hold.
        totals: Blocks that the devices of each cluster hold together (E, N).

    Returns:
        Whether all actions are finite numbers, as the arrays are useless otherwise; blocks (E, N, K);
        micro-batches (E, N); bandwidth (E, N); logarithms of the powers in W, whose exponential the caller
        takes at once (E N (K + 1),): those of all devices (E, N, K), then those of the CUs (E, N).
    """
    limits: DecodeLimits = record[0]
    E, N, K = memory_cap.shape
    blocks, micro_batches = np.empty((E, N, K), dtype=np.int64), np.empty((E, N), dtype=np.int64)
    bandwidth, powers = np.empty((E, N)), np.empty(E * N * (K + 1))
    device_power = powers[: E * N * K].reshape(E, N, K)
    cu_power = powers[E * N * K :].reshape(E, N)
    width = 2 * K + 3
    lowest = math.log(limits.power_min_w)
    span = math.log(limits.power_max_w / limits.power_min_w)
    free = 1.0 - N * limits.bandwidth_floor
    weight, room, handed, remainder, spill = np.empty(K), np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    for e in range(E):
        total = 0.0
        for n in range(N):
            finite = True
            for i in range(width):
                finite &= abs(actions[e, n, i]) < math.inf
            if not finite:
                return False, blocks, micro_batches, bandwidth, powers
            index = int(_unit(actions[e, n, 2 * K + 1]) * (len(choices) - 1) + 0.5)
            micro_batches[e, n] = choices[index]
            for k in range(K):
                weight[k] = _unit(actions[e, n, k])
                room[k] = memory_cap[e, n, k]
                device_power[e, n, k] = lowest + span * _unit(actions[e, n, K + k])
            cu_power[e, n] = lowest + span * _unit(actions[e, n, 2 * K])
            _apportion(float(totals[e, n]), weight, room, handed, remainder, spill)
            for k in range(K):
                blocks[e, n, k] = int(handed[k])
            bandwidth[e, n] = _unit(actions[e, n, 2 * K + 2])
            total += bandwidth[e, n]
        for n in range(N):
            share = bandwidth[e, n] / total if total > 0.0 else 1.0 / N
            bandwidth[e, n] = limits.bandwidth_floor + free * share
    return True, blocks, micro_batches, bandwidth, powers


@inlined
def _unit(action: float) -> float:
    """Map [-1, 1] to [0, 1], clipped."""
    low = -1.0 if action < -1.0 else action
    return 0.5 * ((1.0 if low > 1.0 else low) + 1.0)


@inlined
def _apportion(
    total: float,
    weight: FloatArray,
    room: FloatArray,
    handed: FloatArray,
    remainder: FloatArray,
    spill: FloatArray,
) -> None:
    """Apportion one row, with the same result as :func:`collapipe_env.physics.apportionment.apportion`.

    Args:
        total: Blocks to hand out.
        weight: Non-negative weights (K,); overwritten.
        room: Caps (K,), whole numbers; only read.
        handed: (K,), written: whole numbers.
        remainder: Workspace (K,).
        spill: Workspace (K,).
    """
    K = len(weight)
    preferred = wanted = 0.0
    for k in range(K):
        weight[k] = weight[k] if room[k] > 0.0 else 0.0
        preferred += weight[k]
    for k in range(K):
        # Without any preference the split is even.
        if preferred <= 0.0 and room[k] > 0.0:
            weight[k] = 1.0
        wanted += room[k] if weight[k] > 0.0 else 0.0
    first = min(wanted, total)
    _apportion_within(first, weight, room, handed, remainder)
    if first < total:
        # The preferred devices cannot hold everything: the rest goes evenly to the others that have room.
        # These hold nothing yet, since all preferred devices are full.
        for k in range(K):
            weight[k] = 1.0 if handed[k] == 0.0 and room[k] > 0.0 else 0.0
        _apportion_within(total - first, weight, room, spill, remainder)
        for k in range(K):
            handed[k] += spill[k]


@inlined
def _apportion_within(
    total: float, weight: FloatArray, room: FloatArray, handed: FloatArray, remainder: FloatArray
) -> None:
    """Apportion among the devices of positive weight, which can hold the total."""
    K = len(weight)
    # Water-filling: a device that would get more than fits is full, and the others share the rest.
    for k in range(K):
        handed[k] = 0.0 if weight[k] > 0.0 else -1.0
    level, filling = 0.0, True
    while filling:
        filling = False
        left, open_weight = total, 0.0
        for k in range(K):
            left -= room[k] if handed[k] > 0.0 else 0.0
            open_weight += weight[k] if handed[k] == 0.0 else 0.0
        if open_weight > 0.0:
            level = left / open_weight
            for k in range(K):
                if handed[k] == 0.0 and level * weight[k] > room[k]:
                    handed[k] = room[k]
                    filling = True
    # Choices between two numbers rather than branches, which would be mispredicted half of the time.
    over, tie = total, 1.0 / (K + 1.0)
    for k in range(K):
        quota = room[k] if handed[k] > 0.0 else level * weight[k]
        down, nearest = np.floor(quota), np.floor(quota + 0.5)
        # A quota that is whole apart from rounding is whole: encoded allocations decode to themselves.
        exact = abs(quota - nearest) < 1e-4
        # Remainders that differ by rounding only are ties: the lower index wins.
        part = 0.0 if exact else np.rint((quota - down) * 1e6)
        whole = nearest if exact else down
        open_ = handed[k] >= 0.0 and whole < room[k]
        remainder[k] = (part if open_ else -1.0) + tie * (K - k)
        handed[k] = whole
        over -= whole
    if over > 0.0:
        for k in range(K):
            # Counting who comes before is quicker than looking for the largest again and again.
            mine, before = remainder[k], 0
            for j in range(K):
                before += remainder[j] > mine
            handed[k] += 1.0 if before < over else 0.0
