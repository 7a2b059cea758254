"""AdaPtis's joint search of partition, placement and schedule, reconstructed ([R]; see ``adaptis.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collapipe_env.allocation import GPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.arrays import FloatArray

from .chain_problem import ChainProblem, plan_times
from .schedule_search import (
    CapRule,
    Draft,
    Found,
    caps_of,
    exchanged_devices,
    quickest,
    resized_devices,
    shifted_blocks,
    usable_devices,
    without,
)

RULES: tuple[CapRule, ...] = ("ordinary", "link")
INTERLEAVED_CHUNKS = 2


def compute_load(problem: ChainProblem, draft: Draft) -> FloatArray:
    """AdaPtis's ``C_d = sum over stages s on d of C_s + comm(s)``, for a mini-batch.

    ``C_s`` is the time of the stage's blocks, forward and backward. What ``comm(s)`` holds is not public;
    here it is what the stage's device sends: activations onward and gradients back ([X]). A device has one
    stage in this system (under ``interleaved`` its chunks together), so devices and stages coincide. Bubbles
    and overlap, the other terms of AdaPtis's ``T_d``, are left to the exact simulation.

    Args:
        problem: The cluster.
        draft: A completed plan.

    Returns:
        Seconds by stage (S,).
    """
    times = plan_times(problem, np.array(draft.devices), np.array(draft.held), False, 1, 1)
    S = len(draft.devices)
    load: FloatArray = times.forward[:S] + times.backward[:S] + times.link_forward[1 : S + 1]
    load += times.link_backward[:S]
    return load


def start_drafts(problem: ChainProblem, options: Sequence[int]) -> list[Draft]:
    """Balanced partition over all devices in index order under 1F1B, for every number of micro-batches.

    Args:
        problem: The cluster.
        options: Numbers of micro-batches, ascending.

    Raises:
        AllocationError: No plan exists.
    """
    devices = usable_devices(problem, options[-1])
    caps = caps_of("ordinary", ONE_F_ONE_B, len(devices))
    return [Draft(devices, (), ONE_F_ONE_B, caps, M) for M in reversed(options)]


def boundary_moves(draft: Draft, stages: Sequence[int]) -> Iterator[Draft]:
    """Give a block of one of these stages to the stage before or after it; an empty stage disappears."""
    for held in shifted_blocks(draft.held, stages):
        if min(held) > 0:
            yield draft._replace(held=held)
            continue
        s = held.index(0)
        if draft.schedule == INTERLEAVED:  # its warm-up depends on the number of stages
            yield from rebuilt(draft, without(draft.devices, s))
        else:
            yield draft._replace(
                devices=without(draft.devices, s), held=without(held, s), caps=without(draft.caps, s)
            )


def partition_moves(problem: ChainProblem, draft: Draft) -> Iterator[Draft]:
    """AdaPtis's step: relieve the device with the largest ``C_d`` of a block at its boundary."""
    yield from boundary_moves(draft, [int(compute_load(problem, draft).argmax())])


def placement_moves(draft: Draft, usable: Sequence[int]) -> Iterator[Draft]:
    """Other devices for the stages: exchanged, left out, taken in; and linear against interleaved.

    Args:
        draft: The plan.
        usable: Devices that can hold a block.
    """
    S = len(draft.devices)
    for devices in exchanged_devices(draft.devices, usable):
        # The blocks stay with the stages or go with the devices.
        yield draft._replace(devices=devices)
        held = dict(zip(draft.devices, draft.held, strict=True))
        if set(devices) == set(draft.devices):
            yield draft._replace(devices=devices, held=tuple(held[k] for k in devices))
    for devices in resized_devices(draft.devices, usable):
        yield from rebuilt(draft, devices)
    if draft.schedule == INTERLEAVED:
        for rule in RULES:
            caps = caps_of(rule, ONE_F_ONE_B, S)
            yield draft._replace(schedule=ONE_F_ONE_B, chunks=1, caps=caps)
    else:
        caps = caps_of("ordinary", INTERLEAVED, S, INTERLEAVED_CHUNKS)
        yield draft._replace(held=(), schedule=INTERLEAVED, chunks=INTERLEAVED_CHUNKS, caps=caps)


def schedule_moves(draft: Draft, options: Sequence[int]) -> Iterator[Draft]:
    """Other orders, caps one up or down, and the next numbers of micro-batches.

    Backward before forward before weight gradients, AdaPtis's priority, is what 1F1B and ZB-H1 do.

    Args:
        draft: The plan.
        options: Numbers of micro-batches, ascending.
    """
    S, caps = len(draft.devices), draft.caps
    for schedule in (ONE_F_ONE_B, ZERO_BUBBLE):
        for rule in RULES:
            yield draft._replace(schedule=schedule, chunks=1, caps=caps_of(rule, schedule, S))
    yield draft._replace(schedule=GPIPE, chunks=1, caps=caps_of("ordinary", GPIPE, S))
    if draft.schedule != GPIPE:
        for step in (1, -1):
            yield draft._replace(caps=tuple(c + step for c in caps))
            if S > 1 and draft.schedule != INTERLEAVED:  # whose caps must fall evenly
                for s in range(S):
                    yield draft._replace(caps=(*caps[:s], caps[s] + step, *caps[s + 1 :]))
    place = list(options).index(draft.micro_batches)
    for M in options[max(place - 1, 0) : place + 2]:
        if draft.micro_batches != M:
            yield draft._replace(micro_batches=M)


def local_optimum(
    problem: ChainProblem, start: Found, options: Sequence[int], usable: Sequence[int]
) -> Found:
    """Improve a plan move by move until no single move makes it quicker.

    Partition, placement and schedule take turns; each takes the best of its moves.

    Args:
        problem: The cluster.
        start: Seconds and plan to begin with.
        options: Numbers of micro-batches, ascending.
        usable: Devices that can hold a block.

    Returns:
        Seconds and plan, not slower than the start.
    """
    best = start
    idle_steps, step = 0, 0
    while idle_steps < 3:
        draft, limit = best.draft, best.seconds
        if step == 0:
            found = quickest(problem, list(partition_moves(problem, draft)), limit=limit)
            if not found:
                every = range(len(draft.devices))
                found = quickest(problem, list(boundary_moves(draft, every)), limit=limit)
        elif step == 1:
            found = quickest(problem, list(placement_moves(draft, usable)), limit=limit)
        else:
            found = quickest(problem, list(schedule_moves(draft, options)), limit=limit)
        if found:
            best = found[0]
            idle_steps = 0
        else:
            idle_steps += 1
        step = (step + 1) % 3
    return best


def search(problem: ChainProblem, options: Sequence[int], restarts: int) -> Found:
    """The best local optimum from the usual start and from random ones.

    Args:
        problem: The cluster.
        options: Numbers of micro-batches, ascending.
        restarts: Random starts besides the usual one. They are drawn from a fixed seed, so that the plan
            follows from the cluster alone.

    Raises:
        AllocationError: No plan exists.
    """
    usable = usable_devices(problem, options[-1])
    best = local_optimum(problem, quickest(problem, start_drafts(problem, options))[0], options, usable)
    for restart in range(restarts):
        rng = np.random.default_rng([restart, len(usable)])
        size = int(rng.integers(1, len(usable) + 1))
        devices = tuple(usable[i] for i in rng.permutation(len(usable))[:size])
        caps = caps_of("link", ONE_F_ONE_B, size)
        start = quickest(problem, [Draft(devices, (), ONE_F_ONE_B, caps, options[-1])])
        if start:
            best = min(
                best, local_optimum(problem, start[0], options, usable), key=lambda found: found.seconds
            )
    return best


def rebuilt(draft: Draft, devices: tuple[int, ...]) -> Iterator[Draft]:
    """The plan on more or fewer devices: split anew, with the caps of each rule."""
    for rule in RULES:
        caps = caps_of(rule, draft.schedule, len(devices), draft.chunks)
        yield draft._replace(devices=devices, held=(), caps=caps)
        if draft.schedule == GPIPE:
            break
