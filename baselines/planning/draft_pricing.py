"""Candidate plans as arrays: completed within the memories, bounded, and priced exactly. All compiled.

Ours ([X]): candidates are priced in the order of a lower bound that needs no simulation, until the bound
says that no other candidate can be better. The result is the same as after simulating all of them.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_leaf
from collapipe_env.physics.allocation import ASYNC, GPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.physics.memory import fits
from collapipe_env.physics.schedules.orders import NO, effective_caps
from collapipe_env.physics.schedules.recurrence import ordered_step
from collapipe_env.physics.schedules.storage import stored_in_stage

from .chain_problem import (
    ChainProblem,
    PlanArrays,
    fits_memory,
    plan_of_row,
    plan_seconds,
    plan_times,
    round_seconds,
    stage_bytes,
)

LEAST_GAIN = 1e-9
"""Relative improvement below which one plan does not count as quicker than another."""


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
    """Blocks for a plan's stages (S,) so that the slowest computes least, within the memories.

    Blocks are alike, so giving each one to the stage that then ends first is exact. Every stage gets at least
    one for each of its chunks; all get none if the memories do not hold them or there are too few. The plan's
    own blocks are ignored, and its caps are cut at the ceiling.
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
    M = plan.micro_batches
    kind = ZERO_BUBBLE if plan.schedule == ZERO_BUBBLE else ONE_F_ONE_B
    for s in range(len(plan.devices)):
        cap, memory = min(plan.caps[s], M), problem.memory_bytes[plan.devices[s]]
        while cap >= 1 and not fits(stage_bytes(problem, kind, plan.held[s], cap, M), memory):
            cap -= 1
        plan.caps[s] = cap


@compiled
def complete(problem: ChainProblem, plan: PlanArrays) -> bool:
    """Fill in an open split and lower caps to the memories, in place; tells whether the plan then fits."""
    S, schedule, held, caps = len(plan.devices), plan.schedule, plan.held, plan.caps
    can_lower = schedule in (ONE_F_ONE_B, ZERO_BUBBLE)
    if held[0] == 0:
        # With the largest limit on all caps with which the memories hold the blocks.
        limit = int(caps.max())
        held[:] = balanced_split(problem, plan, limit)
        while held[0] == 0 and can_lower and limit > 1:
            limit = min(limit, plan.micro_batches + 1) - 1
            held[:] = balanced_split(problem, plan, limit)
        if held[0] == 0:
            return False
        caps[:] = np.minimum(caps, limit)
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
    """A lower bound on :func:`~.chain_problem.plan_seconds` over all orders, without simulating events [s].

    Each resource serves ``M`` micro-batches after the first one has reached it and before the last one's
    way back; a stage with cap ``K`` waits ``ceil(M / K)`` times for a micro-batch to go on and return. Exact
    for GPipe. Every order that half duplex allows is possible under full duplex, whose recurrence is cheap.
    """
    S, M, kind = len(plan.devices), plan.micro_batches, plan.schedule
    times = plan_times(problem, plan)
    F, B, W, there, back, latency, _ = times
    if kind == ASYNC:  # mini-batches follow without a flush
        return round_seconds(problem, plan, M * (F + B).max())
    hops = there + back + 2.0 * latency
    hops[S] += hops[S + 2]
    path = (F + B).sum() + hops[: S + 1].sum()
    there[S + 1] = back[S + 1] = 0.0
    forward, backward = max(F.max(), there.max()), max(B.max(), back.max())
    slowest = forward + backward if kind == GPIPE else max(forward, backward)
    # An interleaved stage begins with a part of its forward pass, before the path has come to the rest.
    step = max(path, M * slowest) if kind == INTERLEAVED else path + (M - 1) * slowest
    before, reached, least = 0.0, 0.0, M
    for s in range(S + 1):
        if problem.numbers.half_duplex:
            step = max(step, before + M * (there[s] + back[s]))
        before += hops[s]
        reached += there[s] + latency[s]
        if s < S and kind in (ONE_F_ONE_B, ZERO_BUBBLE):
            least = min(least, plan.caps[s])
            step = max(step, before - (-M // least) * (path - before))
        step = max(step, before + M * (F[s] + B[s]), reached + M * (F[s] + B[s] + W[s]))
        if kind != INTERLEAVED:
            before, reached = before + F[s] + B[s], reached + F[s]
    if problem.numbers.half_duplex and kind in (ONE_F_ONE_B, ZERO_BUBBLE):
        step = max(step, ordered_step(times, kind, plan.caps, NO, M))
    return round_seconds(problem, plan, step)


@compiled
def price(problem: ChainProblem, rows: IntArray, keep: int, limit: float) -> FloatArray:
    """Complete drafts and find the quickest ones.

    Args:
        rows: The drafts (R, 4 + 3 widths), see :func:`~.chain_problem.plan_of_row`; completed in place.
        keep: Number of plans wanted.
        limit: Only quicker plans are wanted [s].

    Returns:
        Seconds (R,); infinite for drafts that fit no memory or cannot be among the wanted plans.
    """
    seconds, bound = np.full(len(rows), np.inf), np.full(len(rows), np.inf)
    for r in range(len(rows)):
        plan = plan_of_row(rows[r])
        if complete(problem, plan):
            bound[r] = lower_bound(problem, plan)
    best = np.full(keep, limit)  # ascending
    for r in np.argsort(bound, kind="mergesort"):
        if not bound[r] < best[keep - 1] * (1.0 - LEAST_GAIN):
            break
        seconds[r] = plan_seconds(problem, plan_of_row(rows[r]))
        if seconds[r] < best[keep - 1]:
            best[keep - 1] = seconds[r]
            best.sort()
    return seconds
