"""Candidate plans as arrays: completed within the memories, bounded, and priced exactly. All compiled.

Ours ([X]): candidates are priced in the order of a lower bound that needs no simulation, until the bound
says that no other candidate can be better. The result is the same as after simulating all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_leaf
from collapipe_env.physics.allocation import ASYNC, GPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.physics.delay import gpipe_step
from collapipe_env.physics.memory import fits, samples_beside
from collapipe_env.physics.schedules.orders import effective_caps
from collapipe_env.physics.schedules.recurrence import ordered_step
from collapipe_env.physics.schedules.storage import stored_in_stage

from .chain_problem import (
    ChainProblem,
    PlanArrays,
    fits_memory,
    plan_seconds,
    plan_times,
    round_seconds,
    stage_bytes,
)

LEAST_GAIN = 1e-9
"""Relative improvement below which one plan does not count as quicker than another."""


class Drafts(NamedTuple):
    """``R`` drafts as arrays, padded to the most stages; otherwise as :class:`~.chain_problem.PlanArrays`.

    Attributes:
        stages: Number of stages ``S`` (R,).
        devices: (R, most stages).
        held: (R, most stages); a 0 in the first place asks for a balanced split.
        schedule: (R,).
        caps: (R, most stages).
        chunks: (R,).
        micro_batches: (R,).
    """

    stages: IntArray
    devices: IntArray
    held: IntArray
    schedule: IntArray
    caps: IntArray
    chunks: IntArray
    micro_batches: IntArray


@compiled
def draft_row(drafts: Drafts, r: int) -> PlanArrays:
    """One draft; its arrays are views."""
    S = drafts.stages[r]
    return PlanArrays(
        drafts.devices[r, :S],
        drafts.held[r, :S],
        drafts.schedule[r],
        drafts.caps[r, :S],
        drafts.chunks[r],
        drafts.micro_batches[r],
    )


@compiled_leaf
def _with_one_more(problem: ChainProblem, plan: PlanArrays, s: int, held: int, limit: int) -> float:
    """Compute time of a stage's blocks and one more, infinite if the memory does not hold them [s]."""
    k, count, M, schedule = plan.devices[s], held + 1, plan.micro_batches, plan.schedule
    stored = stored_in_stage(schedule, limit, count, plan.chunks, M, int(problem.numbers.local_steps))
    if not fits(stage_bytes(problem, schedule, count, stored, M), problem.memory_bytes[k]):
        return np.inf
    launches = M * ((1.0 + problem.numbers.backward_over_forward) * problem.times.block_launch[k])
    passes = problem.times.block_forward[k] + problem.times.block_backward[k] + launches
    length: float = count * passes
    return length


@compiled
def balanced_split(problem: ChainProblem, plan: PlanArrays, ceiling: int) -> IntArray:
    """Blocks for given stages so that the slowest computes least, within the memories.

    Blocks are alike, so giving each one to the stage that then ends first is exact.

    Args:
        plan: The plan; its blocks are ignored. Every stage gets at least one block for each of its chunks.
        ceiling: Largest cap of any stage.

    Returns:
        Blocks (S,); zeros if the memories do not hold all blocks or there are too few blocks.
    """
    S, v, M, schedule = len(plan.devices), plan.chunks, plan.micro_batches, plan.schedule
    steps = int(problem.numbers.local_steps)
    held = np.zeros(S, dtype=np.int64)
    if S * v > problem.numbers.blocks:
        return held
    limits = np.minimum(plan.caps, ceiling)
    # Under ZB-H1 a stage's own limit applies, under the other schedules the least limit up to it.
    if schedule != ZERO_BUBBLE:
        limits = effective_caps(limits, M * v * steps)
    # Time of each stage with one block more; infinite where its memory has no room for that.
    longer = np.empty(S)
    for s in range(S):
        longer[s] = _with_one_more(problem, plan, s, 0, limits[s])
    for given in range(problem.numbers.blocks):
        target, least = -1, np.inf
        for s in range(S):
            # The first blocks go to stages that are still short of one for each chunk.
            if given < S * v and held[s] >= v:
                continue
            if longer[s] < least:
                target, least = s, longer[s]
        if target < 0:
            held[:] = 0
            return held
        held[target] += 1
        longer[target] = _with_one_more(problem, plan, target, held[target], limits[target])
    return held


@compiled
def lower_caps(problem: ChainProblem, plan: PlanArrays) -> None:
    """Lower a plan's caps, in place, to the micro-batches that fit each device's memory; 0 if none fits."""
    M, c = plan.micro_batches, problem.numbers
    kind = ZERO_BUBBLE if plan.schedule == ZERO_BUBBLE else ONE_F_ONE_B
    for s in range(len(plan.devices)):
        memory, held = problem.memory_bytes[plan.devices[s]], plan.held[s]
        room = memory - c.batch_size / M * c.working_bytes
        most = samples_beside(room, held, c.block_state_bytes, c.activation_bytes) * M / c.batch_size
        cap = min(plan.caps[s], int(max(most, 0.0)) + 1, M)
        # Decided by the memory check itself, so that rounding cannot make the two differ.
        while cap >= 1 and not fits(stage_bytes(problem, kind, held, cap, M), memory):
            cap -= 1
        plan.caps[s] = cap


@compiled
def complete(problem: ChainProblem, plan: PlanArrays) -> bool:
    """Fill in an open split and lower caps to the memories, in place; tells whether the plan then fits."""
    S, schedule, held, caps = len(plan.devices), plan.schedule, plan.held, plan.caps
    can_lower = schedule in (ONE_F_ONE_B, ZERO_BUBBLE)
    if held[0] == 0:
        high = int(caps.max())
        held[:] = balanced_split(problem, plan, high)
        if held[0] == 0 and can_lower:
            # The largest limit on all caps with which the memories hold the blocks.
            low = 0
            while high - low > 1:
                limit = (low + high) // 2
                split = balanced_split(problem, plan, limit)
                if split[0] > 0:
                    low = limit
                    held[:] = split
                else:
                    high = limit
            if low > 0:
                caps[:] = np.minimum(caps, low)
        if held[0] == 0:
            return False
    if can_lower:
        lower_caps(problem, plan)
        if schedule == ONE_F_ONE_B:
            caps[:] = effective_caps(caps, plan.micro_batches)
        if caps.min() < 1:
            return False
    # Chunks go round the devices in groups of S micro-batches.
    unequal = schedule == INTERLEAVED and (S == 1 or plan.micro_batches % S != 0)
    return not unequal and held.min() >= plan.chunks and fits_memory(problem, plan)


@compiled
def lower_bound(problem: ChainProblem, plan: PlanArrays) -> float:
    """A lower bound on a plan's time over all orders of its operations, without simulation.

    Each resource serves ``M`` micro-batches after the first one has reached it and before the last one's
    way back; a stage with cap ``K`` waits ``ceil(M / K)`` times for a micro-batch to go on and return (not
    counted under ``async``, whose mini-batches follow without a flush). Latencies lengthen ways and occupy no
    resource. Exact for GPipe. Half-duplex links, whose simulation is costly, are also bounded by full-duplex
    ones: without weight gradients, every order that half duplex allows is possible under full duplex, and the
    recurrence runs it as early as possible.

    Returns:
        Seconds, comparable with :func:`~.chain_problem.plan_seconds`.
    """
    S, M, chunks, schedule = len(plan.devices), plan.micro_batches, plan.chunks, plan.schedule
    half_duplex, times = problem.numbers.half_duplex, plan_times(problem, plan)
    F, B, W = times.forward, times.backward, times.weight
    there, back, latency = times.link_forward, times.link_backward, times.latency
    up, down = there[S + 2], back[S + 2]
    # Inner hops are used by every chunk, the wrap between chunks only with several of them.
    inner = chunks * (there[1:S].sum() + back[1:S].sum()) + (chunks - 1) * (there[S + 1] + back[S + 1])
    path = F.sum() + B.sum() + there[0] + back[0] + there[S] + back[S] + inner + up + down
    late = latency[0] + chunks * latency[1:S].sum() + (chunks - 1) * latency[S + 1] + latency[S]
    path += 2.0 * (late + latency[S + 2])
    slowest_f, slowest_b = max(F.max(), up), max(B.max(), down)
    for link in range(S + 1):
        uses = chunks if 0 < link < S else 1
        slowest_f, slowest_b = max(slowest_f, uses * there[link]), max(slowest_b, uses * back[link])
    if schedule == GPIPE:
        step = gpipe_step(path, slowest_f, 0.0, slowest_b, M)
    elif schedule == ASYNC:
        steps = problem.numbers.local_steps
        step = steps * M * (F[S] + B[S]) + there[S] + back[S] + up + down
        step += 2.0 * (latency[S] + latency[S + 2])
        for s in range(S - 1, -1, -1):
            work = F[s] + B[s]
            step = there[s] + back[s] + 2.0 * latency[s] + max(steps * M * work, work + step)
        step /= steps
    elif schedule == INTERLEAVED:
        step = max(path, M * max(slowest_f, slowest_b))
        for s in range(S):
            step = max(step, there[0] + M * (F[s] + B[s]) + back[0] + 2.0 * latency[0])
    else:
        step = path + (M - 1) * max(slowest_f, slowest_b)
        before, reached, least = 0.0, 0.0, M
        for s in range(S):
            if half_duplex:
                step = max(step, before + M * (there[s] + back[s]))
            before += there[s] + back[s] + 2.0 * latency[s]
            reached += there[s] + latency[s]
            least = min(least, plan.caps[s])
            wait = path - before
            step = max(step, before + -(-M // least) * wait)
            step = max(step, before + M * (F[s] + B[s]))
            if schedule == ZERO_BUBBLE:
                step = max(step, reached + M * (F[s] + B[s] + W[s]))
            before += F[s] + B[s]
            reached += F[s]
        if half_duplex:
            step = max(step, before + M * (there[S] + back[S]))
            step = max(step, ordered_step(times, schedule, plan.caps, False, M))
        before += 2.0 * (latency[S] + latency[S + 2])
        step = max(step, before + there[S] + back[S] + up + down + M * (F[S] + B[S]))
    return round_seconds(problem, plan, float(step))


@compiled
def price(problem: ChainProblem, drafts: Drafts, keep: int, limit: float) -> FloatArray:
    """Complete drafts and find the quickest ones.

    Args:
        drafts: The drafts, completed in place.
        keep: Number of plans wanted.
        limit: Only quicker plans are wanted [s].

    Returns:
        Seconds (R,); infinite for drafts that fit no memory or cannot be among the wanted plans.
    """
    R = len(drafts.stages)
    seconds, bound = np.full(R, np.inf), np.full(R, np.inf)
    for r in range(R):
        plan = draft_row(drafts, r)
        if complete(problem, plan):
            bound[r] = lower_bound(problem, plan)
    best = np.full(keep, limit)  # ascending
    for r in np.argsort(bound, kind="mergesort"):
        if not bound[r] < best[keep - 1] * (1.0 - LEAST_GAIN):
            break
        seconds[r] = plan_seconds(problem, draft_row(drafts, r))
        if seconds[r] < best[keep - 1]:
            best[keep - 1] = seconds[r]
            best.sort()
    return seconds
