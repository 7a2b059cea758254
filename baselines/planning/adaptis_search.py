"""AdaPtis's joint search of partition, placement and schedule, reconstructed ([R]; see ``adaptis.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.allocation import ScheduleName

from .chain_problem import ChainProblem, plan_times
from .schedule_search import (
    CapRule,
    Found,
    caps_of,
    next_numbers,
    quickest,
    rearranged,
    resized_devices,
    shifted_blocks,
    usable_devices,
    without,
)
from .scheduled_plan import ScheduledPlan

RULES: tuple[CapRule, ...] = ("ordinary", "link")
INTERLEAVED_CHUNKS = 2


def compute_load(problem: ChainProblem, draft: ScheduledPlan) -> FloatArray:
    """AdaPtis's ``C_d = sum over stages s on d of C_s + comm(s)``, for a mini-batch.

    ``C_s`` is the time of the stage's blocks, forward and backward, launches included. What ``comm(s)`` holds
    is not public; here it is what the stage's device sends: activations onward and gradients back ([X]). A
    device has one stage in this system (under ``interleaved`` its chunks together), so devices and stages
    coincide. Bubbles and overlap, the other terms of AdaPtis's ``T_d``, are left to the exact simulation.

    Args:
        draft: A completed plan.

    Returns:
        Seconds by stage (S,).
    """
    whole = draft._replace(schedule="1f1b", chunks=1)
    times = plan_times(problem, whole.arrays())
    S = len(draft.devices)
    load: FloatArray = times.forward[:S] + times.backward[:S] + times.link_forward[1 : S + 1]
    load += times.link_backward[:S]
    return draft.micro_batches * load


def start_drafts(problem: ChainProblem, options: Sequence[int]) -> list[ScheduledPlan]:
    """Balanced partition over all devices in index order under 1F1B, for every number of micro-batches.

    Args:
        options: Numbers of micro-batches, ascending.

    Raises:
        AllocationError: If no plan exists.
    """
    devices = usable_devices(problem, options[-1])
    caps = caps_of("ordinary", "1f1b", len(devices))
    return [ScheduledPlan(devices, (), "1f1b", caps, M) for M in reversed(options)]


def boundary_moves(draft: ScheduledPlan, stages: Sequence[int]) -> Iterator[ScheduledPlan]:
    """Give a block of one of these stages to the stage before or after it; an empty stage disappears."""
    for held in shifted_blocks(draft.held, stages):
        if min(held) > 0:
            yield draft._replace(held=held)
            continue
        s = held.index(0)
        if draft.schedule == "interleaved":  # its warm-up depends on the number of stages
            yield from rebuilt(draft, without(draft.devices, s))
        else:
            yield draft._replace(
                devices=without(draft.devices, s), held=without(held, s), caps=without(draft.caps, s)
            )


def partition_moves(problem: ChainProblem, draft: ScheduledPlan) -> Iterator[ScheduledPlan]:
    """AdaPtis's step: relieve the device with the largest ``C_d`` of a block at its boundary."""
    yield from boundary_moves(draft, [int(compute_load(problem, draft).argmax())])


def placement_moves(draft: ScheduledPlan, usable: Sequence[int]) -> Iterator[ScheduledPlan]:
    """Other devices for the stages: exchanged, left out or added; also linear or interleaved stages.

    Args:
        usable: Devices that can hold a block.
    """
    S = len(draft.devices)
    yield from rearranged(draft, usable)
    for devices in resized_devices(draft.devices, usable):
        yield from rebuilt(draft, devices)
    if draft.schedule == "interleaved":
        for rule in RULES:
            caps = caps_of(rule, "1f1b", S)
            yield draft._replace(schedule="1f1b", chunks=1, caps=caps)
    else:
        caps = caps_of("ordinary", "interleaved", S, INTERLEAVED_CHUNKS)
        yield draft._replace(held=(), schedule="interleaved", chunks=INTERLEAVED_CHUNKS, caps=caps)


def schedule_moves(draft: ScheduledPlan, options: Sequence[int]) -> Iterator[ScheduledPlan]:
    """Other orders, caps one up or down, and the next numbers of micro-batches.

    Backward before forward before weight gradients, AdaPtis's priority, is what 1F1B and ZB-H1 do.

    Args:
        options: Numbers of micro-batches, ascending.
    """
    S, caps = len(draft.devices), draft.caps
    orders: tuple[ScheduleName, ...] = ("1f1b", "zb-h1")
    for schedule in orders:
        for rule in RULES:
            yield draft._replace(schedule=schedule, chunks=1, caps=caps_of(rule, schedule, S))
    yield draft._replace(schedule="gpipe", chunks=1, caps=caps_of("ordinary", "gpipe", S))
    if draft.schedule != "gpipe":
        for step in (1, -1):
            yield draft._replace(caps=tuple(c + step for c in caps))
            if S > 1 and draft.schedule != "interleaved":  # whose caps must fall evenly
                for s in range(S):
                    yield draft._replace(caps=(*caps[:s], caps[s] + step, *caps[s + 1 :]))
    for M in next_numbers(options, draft.micro_batches):
        yield draft._replace(micro_batches=M)


def local_optimum(
    problem: ChainProblem, start: Found, options: Sequence[int], usable: Sequence[int]
) -> Found:
    """Improve a plan move by move until no single move makes it quicker.

    Partition, placement and schedule take turns; each takes the best of its moves.

    Args:
        start: Seconds and plan to begin with.
        options: Numbers of micro-batches, ascending.
        usable: Devices that can hold a block.

    Returns:
        Seconds and plan, not slower than the start.
    """
    best = start
    idle_steps, step = 0, 0
    while idle_steps < 3:
        plan, limit = best.plan, best.seconds
        # All stages may give blocks away if relieving the busiest does not help.
        groups = (
            (partition_moves(problem, plan), boundary_moves(plan, range(len(plan.devices)))),
            (placement_moves(plan, usable),),
            (schedule_moves(plan, options),),
        )
        idle_steps, step = idle_steps + 1, step + 1
        for moves in groups[(step - 1) % 3]:
            found = quickest(problem, list(moves), limit=limit)
            if found:
                best, idle_steps = found[0], 0
                break
    return best


def search(problem: ChainProblem, options: Sequence[int], restarts: int) -> Found:
    """The best local optimum from the usual start and from random ones.

    Args:
        options: Numbers of micro-batches, ascending.
        restarts: Random starts in addition to the usual one. They are drawn from a fixed seed, so the plan
            depends only on the cluster.

    Raises:
        AllocationError: If no plan exists.
    """
    usable = usable_devices(problem, options[-1])
    best = local_optimum(problem, quickest(problem, start_drafts(problem, options))[0], options, usable)
    for restart in range(restarts):
        rng = np.random.default_rng([restart, len(usable)])
        size = int(rng.integers(1, len(usable) + 1))
        devices = tuple(usable[i] for i in rng.permutation(len(usable))[:size])
        caps = caps_of("link", "1f1b", size)
        start = quickest(problem, [ScheduledPlan(devices, (), "1f1b", caps, options[-1])])
        if start:
            best = min(
                best, local_optimum(problem, start[0], options, usable), key=lambda found: found.seconds
            )
    return best


def rebuilt(draft: ScheduledPlan, devices: tuple[int, ...]) -> Iterator[ScheduledPlan]:
    """The plan on more or fewer devices: split anew, with the caps of each rule."""
    for rule in RULES:
        caps = caps_of(rule, draft.schedule, len(devices), draft.chunks)
        yield draft._replace(devices=devices, held=(), caps=caps)
        if draft.schedule == "gpipe":
            break
