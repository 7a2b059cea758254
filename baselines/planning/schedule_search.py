"""Parts of every search over partition, placement and schedule: drafts, caps by rule, moves ([X])."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import SCHEDULES, ScheduleName
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.parameters import Parameters
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES, nearest_choice
from collapipe_env.simulator.state import SystemState

from .chain_problem import ChainProblem, block_room, chain_problems
from .draft_pricing import LEAST_GAIN, Drafts, price
from .scheduled_plan import ScheduledPlan, link_aware_caps, ordinary_caps

Result = TypeVar("Result")

LARGEST = 3
"""Choices of micro-batches that are tried, the largest ones, where more of them cost nothing."""

_SCHEDULE_PLACES = {name: place for place, name in enumerate(SCHEDULES)}

CapRule = Literal["ordinary", "link", "room"]
"""Ways of setting caps: as in data centres, with links counted as stages, or by the memories alone."""


@lru_cache(maxsize=4096)
def caps_of(
    rule: CapRule | int, schedule: ScheduleName, stages: int, chunks: int = 1, micro_batches: int = 1
) -> tuple[int, ...]:
    """Caps by rule for ``S`` device stages and the server after them.

    Args:
        rule: ``ordinary``: the schedule's own warm-up; ``link``: about twice that, so that each link has a
            micro-batch on it (``algorithms.md`` 5.3); ``room``: ``M``, so that only memories limit them; a
            number: the same for all stages.
        stages: ``S``.
        chunks: ``v``.
        micro_batches: ``M``, read under ``room``.

    Returns:
        Caps (S,); ones for GPipe, which does not read them.
    """
    S, link = stages, rule == "link"
    if schedule == "gpipe":
        return (1,) * S
    if isinstance(rule, int) or rule == "room":
        return (rule if isinstance(rule, int) else micro_batches,) * S
    if schedule == "zb-h1":  # limits on what is stored: the same for all stages
        return (2 * S + 1 if link else S + 1,) * S
    if schedule == "interleaved":  # Megatron's warm-up and one more; the server adds nothing to wait for
        extra = (chunks - 1) * S + 1 + (S + 1 if link else 0)
        return tuple(2 * (S - s - 1) + extra for s in range(S))
    return tuple((link_aware_caps(S) if link else ordinary_caps(S)).tolist())


def micro_batch_options(parameters: Parameters, wanted: int | None) -> tuple[int, ...]:
    """Numbers of micro-batches worth trying, ascending: all that are allowed where passes and messages cost.

    Without overheads and latencies more micro-batches shorten fill and drain at no cost, so small numbers do
    not win: the largest few and the even split's are enough.

    Args:
        wanted: Use only the allowed number nearest to this one; ``None`` for a choice.
    """
    choices = parameters.micro_batch_choices
    if wanted is not None:
        return (nearest_choice(choices, wanted),)
    if parameters.overheads != NO_OVERHEADS:
        return choices
    return tuple(sorted({nearest_choice(choices, REFERENCE_MICRO_BATCHES), *choices[-LARGEST:]}))


def searched(
    parameters: Parameters, state: SystemState, search: Callable[[ChainProblem], Result]
) -> dict[tuple[int, int], Result]:
    """Result of a search for every environment and cluster.

    Args:
        state: The system before the round (E, ...).
        search: Searches one cluster.

    Raises:
        AllocationError: If no plan fits the memories of some cluster; names it.
    """
    found = {}
    for at, problem in chain_problems(parameters, state).items():
        try:
            found[at] = search(problem)
        except AllocationError as error:
            raise AllocationError(f"environment {at[0]}, cluster {at[1]}: {error}") from None
    return found


def usable_devices(problem: ChainProblem, micro_batches: int) -> tuple[int, ...]:
    """Devices in index order that can hold a block and one micro-batch; at most ``L``, the fastest.

    Args:
        micro_batches: Largest ``M`` allowed.

    Raises:
        AllocationError: Together they do not hold the encoder, however it is scheduled.
    """
    room, blocks = block_room(problem, 1, micro_batches), problem.numbers.blocks
    if room.sum() < blocks:
        raise AllocationError(
            f"its devices can hold only {room.sum()} blocks with one micro-batch in flight, but the encoder "
            f"has {blocks}: no plan exists"
        )
    able = np.flatnonzero(room)
    fastest = able[np.argsort(problem.times.block_forward[able], kind="stable")][:blocks]
    return tuple(sorted(fastest.tolist()))


class Found(NamedTuple):
    """A priced plan.

    Attributes:
        seconds: Part of the cluster's delay that the plan decides [s].
        plan: The plan, completed.
        place: Place among the candidates.
    """

    seconds: float
    plan: ScheduledPlan
    place: int


def quickest(
    problem: ChainProblem, drafts: Sequence[ScheduledPlan], *, keep: int = 1, limit: float = np.inf
) -> list[Found]:
    """The quickest of some drafts, exact.

    Args:
        drafts: Candidates; those that fit no memory are skipped.
        keep: Most plans to return, all different; drafts that complete to the same plan count separately.
        limit: Only plans quicker than this [s], by more than ``LEAST_GAIN``.

    Returns:
        The quickest first; equally quick ones in the given order.
    """
    if not drafts:
        return []
    # Column by column: the rows of NumPy's arrays are slow to write one by one.
    all_devices, all_held, schedules, all_caps, numbers, chunks = zip(*drafts, strict=True)
    sizes = [len(row) for row in all_devices]
    stages = np.array(sizes)
    place = np.arange(max(sizes))
    filled = place < stages[:, None]
    devices, held, caps = np.zeros((3, *filled.shape), dtype=np.int64)
    devices[filled] = list(chain.from_iterable(all_devices))
    caps[filled] = list(chain.from_iterable(all_caps))
    held[place < np.array([len(row) for row in all_held])[:, None]] = list(chain.from_iterable(all_held))
    schedule = np.array([_SCHEDULE_PLACES[name] for name in schedules])
    packed = Drafts(stages, devices, held, schedule, caps, np.array(chunks), np.array(numbers))
    seconds = price(problem, packed, keep, limit)
    found: dict[ScheduledPlan, Found] = {}
    for r in np.argsort(seconds, kind="stable").tolist():
        if not seconds[r] < limit * (1.0 - LEAST_GAIN) or len(found) == keep:
            break
        size = stages[r]
        plan = drafts[r]._replace(held=tuple(held[r, :size].tolist()), caps=tuple(caps[r, :size].tolist()))
        found.setdefault(plan, Found(float(seconds[r]), plan, r))
    return list(found.values())


def rearranged(plan: ScheduledPlan, usable: Sequence[int]) -> Iterator[ScheduledPlan]:
    """The plan with devices exchanged; the blocks stay with the stages or go with the devices."""
    own, held, name, caps, M, v = plan
    with_device = dict(zip(own, held, strict=True))
    own_set = set(own)
    for devices in exchanged_devices(own, usable):
        yield ScheduledPlan(devices, held, name, caps, M, v)
        if own_set.issuperset(devices):
            yield ScheduledPlan(devices, tuple([with_device[k] for k in devices]), name, caps, M, v)


def next_numbers(options: Sequence[int], micro_batches: int) -> list[int]:
    """Numbers of micro-batches next to one of the options, which are ascending."""
    place = list(options).index(micro_batches)
    return [M for M in options[max(place - 1, 0) : place + 2] if micro_batches != M]


def exchanged_devices(devices: tuple[int, ...], usable: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Two stages' devices swapped, or a device exchanged for an idle one.

    Args:
        devices: Device of each stage (S,).
        usable: All that can hold a block.
    """
    S = len(devices)
    for s in range(S):
        for t in range(s + 1, S):
            swapped = list(devices)
            swapped[s], swapped[t] = devices[t], devices[s]
            yield tuple(swapped)
        yield from ((*devices[:s], k, *devices[s + 1 :]) for k in usable if k not in devices)


def resized_devices(devices: tuple[int, ...], usable: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """A stage left out, or an idle device added at any place.

    Args:
        devices: Device of each stage (S,).
        usable: All that can hold a block.
    """
    S = len(devices)
    if S > 1:
        yield from (without(devices, s) for s in range(S))
    for k in usable:
        if k not in devices:
            yield from ((*devices[:s], k, *devices[s:]) for s in range(S + 1))


def shifted_blocks(held: tuple[int, ...], stages: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """A block of one of these stages given to the stage before or after it.

    Args:
        held: Blocks of each stage (S,).
        stages: Stages that may give a block.

    Yields:
        Blocks (S,), one of them possibly 0.
    """
    for s in stages:
        for t in (s - 1, s + 1):
            if 0 <= t < len(held):
                moved = list(held)
                moved[s] -= 1
                moved[t] += 1
                yield tuple(moved)


def without(values: tuple[int, ...], place: int) -> tuple[int, ...]:
    """All values but one."""
    return (*values[:place], *values[place + 1 :])
