"""Candidate plans as arrays: completed within the memories, bounded, and priced exactly. All compiled.

Ours ([X]): candidates are priced in the order of a lower bound that needs no simulation, until the bound
says that no other candidate can be better. The result is that of simulating all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.allocation import GPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled
from collapipe_env.physics.memory import fits
from collapipe_env.physics.schedules.orders import effective_caps
from collapipe_env.physics.schedules.storage import stored_by_stage

from .chain_problem import (
    ChainProblem,
    collection,
    fits_memory,
    full_duplex_seconds,
    plan_seconds,
    plan_times,
    stage_bytes,
)

LEAST_GAIN = 1e-9
"""Relative improvement below which one plan does not count as quicker than another."""


class Drafts(NamedTuple):
    """``R`` drafts as arrays, padded to the most stages.

    Attributes:
        stages: Number of stages ``S`` (R,); 0 once a draft has turned out to fit no memory.
        devices: (R, most stages).
        held: (R, most stages); a 0 in the first place asks for a balanced split.
        caps: (R, most stages).
        schedule: (R,).
        chunks: (R,).
        micro_batches: (R,).
    """

    stages: IntArray
    devices: IntArray
    held: IntArray
    caps: IntArray
    schedule: IntArray
    chunks: IntArray
    micro_batches: IntArray


@compiled
def balanced_split(
    problem: ChainProblem, devices: IntArray, schedule: int, caps: IntArray, chunks: int, micro_batches: int
) -> IntArray:
    """Blocks for given stages so that the slowest computes least, within the memories.

    Blocks are alike, so giving each one to the stage that then ends first is exact.

    Args:
        problem: The cluster.
        devices: Device of each stage (S,).
        schedule: Place in ``SCHEDULES``.
        caps: Caps (S,).
        chunks: ``v``; every stage gets a block for each of its chunks at least.
        micro_batches: ``M``.

    Returns:
        Blocks (S,); zeros if the memories do not hold all blocks or there are too few blocks.
    """
    S = len(devices)
    none = np.zeros(S, dtype=np.int64)
    if S * chunks > problem.numbers.blocks:
        return none
    # Under ZB-H1 a stage's own limit counts, under the others the least one before it.
    limits = caps if schedule == ZERO_BUBBLE else effective_caps(caps, micro_batches * chunks)
    held = np.zeros(S, dtype=np.int64)
    for given in range(problem.numbers.blocks):
        target, least = -1, np.inf
        for s in range(S):
            # The first blocks go to stages that are still short of one for each chunk.
            if given < S * chunks and held[s] >= chunks:
                continue
            k, count = devices[s], held[s : s + 1] + 1
            stored = stored_by_stage(
                schedule, limits[s : s + 1], count, chunks, micro_batches, int(problem.numbers.local_steps)
            )[0]
            needed = stage_bytes(problem, schedule, count[0], stored, micro_batches)
            length = count[0] * (problem.times.block_forward[k] + problem.times.block_backward[k])
            if fits(needed, problem.memory_bytes[k]) and length < least:
                target, least = s, length
        if target < 0:
            return none
        held[target] += 1
    return held


@compiled
def lower_caps(
    problem: ChainProblem, devices: IntArray, held: IntArray, caps: IntArray, micro_batches: int
) -> None:
    """Lower caps to the micro-batches that each device has memory for, in place.

    Args:
        problem: The cluster.
        devices: Device of each stage (S,).
        held: Blocks of each stage (S,).
        caps: Caps (S,), overwritten; below 1 where not even one micro-batch fits.
        micro_batches: ``M``.
    """
    activation = problem.numbers.batch_size / micro_batches * problem.numbers.activation_bytes
    for s in range(len(devices)):
        memory = problem.memory_bytes[devices[s]]
        room = int(max(memory / held[s] - problem.numbers.block_state_bytes, 0.0) / activation) + 1
        cap = min(caps[s], room, micro_batches)
        # By the rule of the memory itself, so that rounding cannot part the two.
        while cap >= 1 and not fits(stage_bytes(problem, ONE_F_ONE_B, held[s], cap, micro_batches), memory):
            cap -= 1
        caps[s] = cap


@compiled
def complete(problem: ChainProblem, drafts: Drafts) -> None:
    """Fill in open splits and lower caps to the memories, in place; drafts without a way get 0 stages.

    Args:
        problem: The cluster.
        drafts: The drafts, overwritten.
    """
    for r in range(len(drafts.stages)):
        S, schedule = drafts.stages[r], drafts.schedule[r]
        v, M = drafts.chunks[r], drafts.micro_batches[r]
        devices, held, caps = drafts.devices[r, :S], drafts.held[r, :S], drafts.caps[r, :S]
        can_lower = schedule in (ONE_F_ONE_B, ZERO_BUBBLE)
        if held[0] == 0:
            held[:] = balanced_split(problem, devices, schedule, caps, v, M)
            if held[0] == 0 and can_lower:
                # The largest limit on all caps with which the memories hold the blocks.
                low, high = 0, int(caps.max())
                while high - low > 1:
                    limit = (low + high) // 2
                    split = balanced_split(problem, devices, schedule, np.minimum(caps, limit), v, M)
                    if split[0] > 0:
                        low = limit
                        held[:] = split
                    else:
                        high = limit
                if low > 0:
                    caps[:] = np.minimum(caps, low)
            if held[0] == 0:
                drafts.stages[r] = 0
                continue
        if can_lower:
            lower_caps(problem, devices, held, caps, M)
            if schedule == ONE_F_ONE_B:
                caps[:] = effective_caps(caps, M)
            if caps.min() < 1:
                drafts.stages[r] = 0
                continue
        # Chunks go round the devices in groups of S micro-batches.
        unequal = schedule == INTERLEAVED and (S == 1 or M % S != 0)
        if unequal or held.min() < v or not fits_memory(problem, devices, held, schedule, caps, v, M):
            drafts.stages[r] = 0


@compiled
def lower_bound(
    problem: ChainProblem,
    devices: IntArray,
    held: IntArray,
    schedule: int,
    caps: IntArray,
    chunks: int,
    micro_batches: int,
) -> float:
    """A time below which no order of the operations can bring a plan, without simulating it.

    Each resource serves ``M`` micro-batches after the first one has reached it and before the last one's
    way back; a stage with cap ``K`` waits ``ceil(M / K)`` times for a micro-batch to go on and return. Exact
    for GPipe. Half-duplex links, whose simulation is costly, are bounded by full-duplex ones as well.

    Args:
        problem: The cluster.
        devices: Device of each stage (S,).
        held: Blocks of each stage (S,).
        schedule: Place in ``SCHEDULES``, not ``async``.
        caps: Caps (S,).
        chunks: ``v``.
        micro_batches: ``M``.

    Returns:
        Seconds, comparable with :func:`~.chain_problem.plan_seconds`.
    """
    S, M = len(devices), micro_batches
    split = schedule == ZERO_BUBBLE
    times = plan_times(problem, devices, held, split, chunks, M)
    F, B, W = times.forward, times.backward, times.weight
    there, back = times.link_forward, times.link_backward
    up, down = there[S + 2], back[S + 2]
    # Inner hops are used by every chunk, the wrap between chunks only with several of them.
    inner = chunks * (there[1:S].sum() + back[1:S].sum()) + (chunks - 1) * (there[S + 1] + back[S + 1])
    path = F.sum() + B.sum() + there[0] + back[0] + there[S] + back[S] + inner + up + down
    slowest_f, slowest_b = max(F.max(), up), max(B.max(), down)
    for link in range(S + 1):
        uses = chunks if 0 < link < S else 1
        slowest_f, slowest_b = max(slowest_f, uses * there[link]), max(slowest_b, uses * back[link])
    if schedule == GPIPE:
        step = path + (M - 1) * (slowest_f + slowest_b)
    elif schedule == INTERLEAVED:
        step = max(path, M * max(slowest_f, slowest_b))
        for s in range(S):
            step = max(step, there[0] + M * (F[s] + B[s]) + back[0])
    else:
        step = path + (M - 1) * max(slowest_f, slowest_b)
        before, reached, least = 0.0, 0.0, M
        for s in range(S):
            if problem.numbers.half_duplex:
                step = max(step, before + M * (there[s] + back[s]))
            before += there[s] + back[s]
            reached += there[s]
            least = min(least, caps[s])
            wait = path - before
            step = max(step, before + -(-M // least) * wait)
            step = max(step, before + M * (F[s] + B[s]))
            if split:
                step = max(step, reached + M * (F[s] + B[s] + W[s]))
            before += F[s] + B[s]
            reached += F[s]
        if problem.numbers.half_duplex:
            step = max(step, before + M * (there[S] + back[S]))
        step = max(step, before + there[S] + back[S] + up + down + M * (F[S] + B[S]))
    if problem.numbers.half_duplex and schedule in (ONE_F_ONE_B, ZERO_BUBBLE):
        ordered = full_duplex_seconds(problem, devices, held, schedule, caps, M)
    else:
        ordered = 0.0
    return max(ordered, float(step * problem.numbers.local_steps + collection(problem, devices, held)))


@compiled
def price(problem: ChainProblem, drafts: Drafts, keep: int, limit: float) -> FloatArray:
    """Complete drafts and find the quickest ones.

    Args:
        problem: The cluster.
        drafts: The drafts, completed in place.
        keep: How many are wanted.
        limit: Only quicker ones are wanted [s].

    Returns:
        Seconds (R,); infinite for those that fit no memory or are surely not among the wanted.
    """
    complete(problem, drafts)
    R = len(drafts.stages)
    seconds, bound = np.full(R, np.inf), np.full(R, np.inf)
    for r in range(R):
        S = drafts.stages[r]
        if S > 0:
            bound[r] = lower_bound(
                problem,
                drafts.devices[r, :S],
                drafts.held[r, :S],
                drafts.schedule[r],
                drafts.caps[r, :S],
                drafts.chunks[r],
                drafts.micro_batches[r],
            )
    best = np.full(keep, limit)  # ascending
    for r in np.argsort(bound, kind="mergesort"):
        if not bound[r] < best[keep - 1] * (1.0 - LEAST_GAIN):
            break
        S = drafts.stages[r]
        seconds[r] = plan_seconds(
            problem,
            drafts.devices[r, :S],
            drafts.held[r, :S],
            drafts.schedule[r],
            drafts.caps[r, :S],
            drafts.chunks[r],
            drafts.micro_batches[r],
        )
        if seconds[r] < best[keep - 1]:
            best[keep - 1] = seconds[r]
            best.sort()
    return seconds
