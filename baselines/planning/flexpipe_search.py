"""Beam search over schedules as tuples and over partitions ([X]; see ``flexpipe.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from collapipe_env.errors import AllocationError
from collapipe_env.physics.overheads import NO_OVERHEADS

from .chain_problem import ChainProblem
from .schedule_search import (
    next_numbers,
    quickest,
    rearranged,
    resized_devices,
    shifted_blocks,
    usable_devices,
    without,
)
from .schedule_tuple import ScheduleTuple, placed
from .scheduled_plan import ScheduledPlan


class Space(NamedTuple):
    """Space that is searched.

    Attributes:
        schedules: Schedules; what they leave open is searched, what they fix stays.
        micro_batches: Numbers of micro-batches for those that leave ``m`` open, ascending.
    """

    schedules: tuple[ScheduleTuple, ...]
    micro_batches: tuple[int, ...]


class Point(NamedTuple):
    """A plan on its way through the search.

    Attributes:
        seconds: Part of the cluster's delay that the plan decides [s].
        schedule: The schedule, nothing left open.
        plan: It, completed: with the partition and the caps that the memories allow.
        origin: Place in the space of the schedule that it is an instance of.
    """

    seconds: float
    schedule: ScheduleTuple
    plan: ScheduledPlan
    origin: int


Candidate = tuple[ScheduleTuple, tuple[int, ...], int]
"""A schedule with nothing open, blocks of each stage (empty for a balanced split), and its origin."""


def priced(
    problem: ChainProblem, candidates: Sequence[Candidate], width: int, limit: float = float("inf")
) -> list[Point]:
    """The best candidates, quickest first; those that fit no memory are pruned."""
    drafts = [schedule.plan(held) for schedule, held, _ in candidates]
    found = quickest(problem, drafts, keep=width, limit=limit)
    return [Point(f.seconds, candidates[f.place][0], f.plan, candidates[f.place][2]) for f in found]


def device_sets(
    problem: ChainProblem, usable: tuple[int, ...], numbers: Sequence[int], width: int
) -> list[tuple[int, ...]]:
    """Promising sets of devices in index order.

    From all devices down: the best sets of each size are those that the best sets of the next larger size
    give by leaving one device out. They are priced with a balanced partition under 1F1B and the caps that
    links want.

    Args:
        problem: The cluster.
        usable: All devices that can hold a block.
        numbers: Numbers of micro-batches, of which each set is priced with its best.
        width: How many sets of each size go on, and how many are returned in all.

    Returns:
        The best first, and the set of all devices in any case.
    """
    probe = ScheduleTuple(caps="link")
    sets: list[tuple[int, ...]] = [usable]
    kept: list[Point] = []
    while sets:
        # So many that there are enough sets among them, each with its best number first.
        keep = (width - 1) * len(numbers) + 1
        found = priced(problem, [(placed(probe, M, d), (), 0) for d in sets for M in numbers], keep)
        best: dict[tuple[int, ...], Point] = {}
        for point in found:
            best.setdefault(point.plan.devices, point)
        points = list(best.values())[:width]
        kept += points
        # Where a set is too small for the memories its parts are, too.
        smaller = (without(p.plan.devices, s) for p in points for s in range(len(p.plan.devices)))
        sets = [devices for devices in dict.fromkeys(smaller) if devices]
    kept.sort(key=lambda point: point.seconds)
    return list(dict.fromkeys((*(point.plan.devices for point in kept[:width]), usable)))


def roomiest_sets(problem: ChainProblem, usable: Sequence[int]) -> list[tuple[int, ...]]:
    """For each number of devices those with the most memory: what fits at all fits there."""
    by_memory = sorted(usable, key=lambda k: -problem.memory_bytes[k])
    return [tuple(sorted(by_memory[:size])) for size in range(1, len(by_memory) + 1)]


def first_candidates(space: Space, sets: Sequence[tuple[int, ...]]) -> Iterator[Candidate]:
    """Every schedule of the space with every number of micro-batches on every set of devices.

    Args:
        space: The space.
        sets: Sets of devices, in pipeline order.
    """
    for origin, schedule in enumerate(space.schedules):
        numbers = space.micro_batches if schedule.micro_batches is None else (schedule.micro_batches,)
        for M in numbers:
            for devices in sets if schedule.devices is None else [schedule.devices]:
                yield placed(schedule, M, devices), (), origin


def neighbours(point: Point, space: Space, usable: Sequence[int]) -> Iterator[Candidate]:
    """Plans that differ in one part: a boundary, a device, the schedule or the number of micro-batches.

    Args:
        point: The plan.
        space: The space.
        usable: Devices that can hold a block.
    """
    own, devices, held, origin = point.schedule, point.plan.devices, point.plan.held, point.origin
    template = space.schedules[origin]
    for shifted in shifted_blocks(held, range(len(held))):
        if min(shifted) > 0:
            yield own, shifted, origin
    if template.devices is None:
        for plan in rearranged(point.plan, usable):
            yield replace(own, devices=plan.devices), plan.held, origin
        for other in resized_devices(devices, usable):
            yield replace(own, devices=other), (), origin
    if template.micro_batches is None:
        for M in next_numbers(space.micro_batches, point.plan.micro_batches):
            yield replace(own, micro_batches=M), held, origin
    for other_origin, schedule in enumerate(space.schedules):
        if other_origin == origin:
            continue
        instance = placed(schedule, point.plan.micro_batches, devices)
        if schedule.micro_batches is None and instance.micro_batches not in space.micro_batches:
            continue
        fits_chunks = instance.devices == devices and min(held) >= schedule.chunks
        yield instance, held if fits_chunks else (), other_origin


def search(problem: ChainProblem, space: Space, width: int) -> Point:
    """Beam search: sets of devices, then schedules on them, then all parts one at a time.

    Args:
        problem: The cluster.
        space: The space.
        width: Plans that are followed at a time.

    Returns:
        The best plan; no neighbour of it is quicker.

    Raises:
        AllocationError: No plan in the space fits the memories.
    """
    numbers = [s.micro_batches for s in space.schedules if s.micro_batches is not None]
    most = max((*space.micro_batches, *numbers))
    usable = usable_devices(problem, most)
    # Where more micro-batches cost nothing the largest number stands for all.
    free = problem.numbers.overheads == NO_OVERHEADS
    sets = device_sets(problem, usable, (most,) if free else sorted({*space.micro_batches, *numbers}), width)
    beam = priced(problem, list(first_candidates(space, sets)), width)
    if not beam:
        beam = priced(problem, list(first_candidates(space, roomiest_sets(problem, usable))), width)
    if not beam:
        texts = ", ".join(repr(str(schedule)) for schedule in space.schedules)
        raise AllocationError(
            f"its devices have no memory for any plan among {texts}: allow another schedule"
        )
    expanded: set[tuple[ScheduleTuple, ScheduledPlan]] = set()
    while True:
        best = beam[0].seconds
        candidates: list[Candidate] = []
        for point in beam:
            if (point.schedule, point.plan) not in expanded:
                expanded.add((point.schedule, point.plan))
                candidates += neighbours(point, space, usable)
        limit = beam[-1].seconds if len(beam) == width else float("inf")
        merged = {point.plan: point for point in priced(problem, candidates, width, limit)}
        merged.update((point.plan, point) for point in beam)
        beam = sorted(merged.values(), key=lambda point: point.seconds)[:width]
        if not beam[0].seconds < best:
            return beam[0]
