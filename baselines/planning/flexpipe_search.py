"""Beam search over schedules as tuples and over partitions ([X]; see ``flexpipe.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.overheads import NO_OVERHEADS

from .chain_problem import ChainProblem
from .schedule_search import (
    caps_of,
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
        schedules: Schedules; the search decides what they leave open and keeps what they fix.
        micro_batches: Numbers of micro-batches for those that leave ``m`` open, ascending.
    """

    schedules: tuple[ScheduleTuple, ...]
    micro_batches: tuple[int, ...]


class Point(NamedTuple):
    """A plan on its way through the search.

    Attributes:
        seconds: Part of the cluster's delay that the plan decides [s].
        schedule: The schedule, with nothing left open.
        plan: The completed plan, with the partition and the caps that the memories allow.
        origin: Place in the space of the schedule from which it comes.
    """

    seconds: float
    schedule: ScheduleTuple
    plan: ScheduledPlan
    origin: int


Candidate = tuple[ScheduledPlan, int]
"""A draft of a schedule with nothing open (without blocks: for a balanced split), and its origin."""


def draft_of(
    schedule: ScheduleTuple, micro_batches: int, devices: tuple[int, ...], held: tuple[int, ...] = ()
) -> ScheduledPlan:
    """The plan ``placed(schedule, micro_batches, devices).plan(held)``, without the tuple in between."""
    M, own = schedule.micro_batches or micro_batches, schedule.devices or devices
    name, v = schedule.schedule, schedule.chunks
    return ScheduledPlan(own, held, name, caps_of(schedule.caps or "ordinary", name, len(own), v, M), M, v)


def priced(
    problem: ChainProblem,
    space: Sequence[ScheduleTuple],
    candidates: Sequence[Candidate],
    width: int,
    limit: float = float("inf"),
) -> list[Point]:
    """The best candidates, quickest first; those that fit no memory are pruned.

    Args:
        space: The schedules; candidates' origins are places in it.
        width: Most points to return.
        limit: Only quicker candidates are wanted [s].
    """
    found = quickest(problem, [draft for draft, _ in candidates], keep=width, limit=limit)
    points = []
    for seconds, plan, place in found:
        origin = candidates[place][1]
        schedule = placed(space[origin], plan.micro_batches, plan.devices)
        points.append(Point(seconds, schedule, plan, origin))
    return points


def device_sets(
    problem: ChainProblem, usable: tuple[int, ...], numbers: Sequence[int], width: int
) -> list[tuple[int, ...]]:
    """Promising sets of devices in index order.

    The search begins with all devices; sets of each size are the best sets of the next larger size with one
    device left out. They are priced with a balanced partition under 1F1B and caps that count the links.

    Args:
        usable: All devices that can hold a block.
        numbers: Numbers of micro-batches; each set is priced with its best number.
        width: Number of sets of each size that are kept, and of sets returned.

    Returns:
        The best sets first; the set of all devices is always included.
    """
    probe = ScheduleTuple(caps="link")
    sets: list[tuple[int, ...]] = [usable]
    kept: list[Point] = []
    while sets:
        # Enough points to hold the wanted number of sets, each with its best number first.
        keep = (width - 1) * len(numbers) + 1
        found = priced(problem, [probe], [(draft_of(probe, M, d), 0) for d in sets for M in numbers], keep)
        best: dict[tuple[int, ...], Point] = {}
        for point in found:
            best.setdefault(point.plan.devices, point)
        points = list(best.values())[:width]
        kept += points
        # Where a set has too little memory, so do its subsets.
        smaller = (without(p.plan.devices, s) for p in points for s in range(len(p.plan.devices)))
        sets = [devices for devices in dict.fromkeys(smaller) if devices]
    kept.sort(key=lambda point: point.seconds)
    return list(dict.fromkeys((*(point.plan.devices for point in kept[:width]), usable)))


def roomiest_sets(problem: ChainProblem, usable: Sequence[int]) -> list[tuple[int, ...]]:
    """For each number of devices the set with the most memory: what fits any such set fits this one."""
    by_memory = sorted(usable, key=lambda k: -problem.memory_bytes[k])
    return [tuple(sorted(by_memory[:size])) for size in range(1, len(by_memory) + 1)]


def first_candidates(space: Space, sets: Sequence[tuple[int, ...]]) -> Iterator[Candidate]:
    """Every schedule of the space with every number of micro-batches on every set of devices.

    Args:
        sets: Sets of devices, in pipeline order.
    """
    for origin, schedule in enumerate(space.schedules):
        numbers = space.micro_batches if schedule.micro_batches is None else (schedule.micro_batches,)
        for M in numbers:
            for devices in sets if schedule.devices is None else [schedule.devices]:
                yield draft_of(schedule, M, devices), origin


def neighbours(point: Point, space: Space, usable: Sequence[int]) -> Iterator[Candidate]:
    """Plans that differ in one part: a boundary, a device, the schedule or the number of micro-batches.

    Args:
        point: The plan.
        usable: Devices that can hold a block.
    """
    plan, origin = point.plan, point.origin
    devices, held, M = plan.devices, plan.held, plan.micro_batches
    template = space.schedules[origin]
    # The plan's own caps may have been lowered to its memories; a neighbour's begin with the rule again.
    own = draft_of(template, M, devices, held)
    _, _, name, caps, _, v = own
    for shifted in shifted_blocks(held, range(len(held))):
        if min(shifted) > 0:
            yield ScheduledPlan(devices, shifted, name, caps, M, v), origin
    if template.devices is None:
        for plan in rearranged(own, usable):
            yield plan, origin
        for other in resized_devices(devices, usable):
            yield draft_of(template, M, other), origin
    if template.micro_batches is None:
        for number in next_numbers(space.micro_batches, M):
            yield draft_of(template, number, devices, held), origin
    for other_origin, schedule in enumerate(space.schedules):
        if other_origin == origin:
            continue
        instance = draft_of(schedule, M, devices)
        if schedule.micro_batches is None and M not in space.micro_batches:
            continue
        fits_chunks = instance.devices == devices and min(held) >= schedule.chunks
        yield instance._replace(held=held) if fits_chunks else instance, other_origin


def search(problem: ChainProblem, space: Space, width: int) -> Point:
    """Beam search: sets of devices, then schedules on them, then all parts one at a time.

    Args:
        width: Plans that the search follows at a time.

    Returns:
        The best plan; no neighbour of it is quicker.

    Raises:
        AllocationError: If no plan in the space fits the memories.
    """
    numbers = [s.micro_batches for s in space.schedules if s.micro_batches is not None]
    most = max((*space.micro_batches, *numbers))
    usable = usable_devices(problem, most)
    # Where more micro-batches cost nothing the largest number stands for all.
    free = problem.numbers.overheads == NO_OVERHEADS
    sets = device_sets(problem, usable, (most,) if free else sorted({*space.micro_batches, *numbers}), width)
    beam = priced(problem, space.schedules, list(first_candidates(space, sets)), width)
    if not beam:
        beam = priced(
            problem, space.schedules, list(first_candidates(space, roomiest_sets(problem, usable))), width
        )
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
        merged = {point.plan: point for point in priced(problem, space.schedules, candidates, width, limit)}
        merged.update((point.plan, point) for point in beam)
        beam = sorted(merged.values(), key=lambda point: point.seconds)[:width]
        if not beam[0].seconds < best:
            return beam[0]
