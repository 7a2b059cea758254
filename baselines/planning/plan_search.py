"""One neighbourhood search over partition, placement and schedule, with exact makespans ([X]).

AdaPtis, FlexPipe and OptPipe's starts differ in where they begin and in their moves: functions from a plan to
drafts of its neighbours. XPipe only compares its first drafts. ``usable`` are the devices that can hold a
block, ``options`` and ``numbers`` are numbers of micro-batches in ascending order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.parameters import Parameters
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES, nearest_choice
from collapipe_env.simulator.state import SystemState

from .chain_problem import ChainProblem, block_room, chain_problems
from .draft_pricing import LEAST_GAIN, price
from .scheduled_plan import ScheduledPlan, allocation_of

Result = TypeVar("Result")

LARGEST = 3
"""Choices of micro-batches that are tried, the largest ones, where more of them cost nothing."""
EXHAUSTIVE = 10
"""Largest number of devices of a cluster of which all sets are tried."""

Moves = Callable[[ScheduledPlan], Iterable[ScheduledPlan]]


class PlanSearch(StateScheduler):
    """A scheduler that plans each cluster by itself, at equal bandwidth and full power; no queues."""

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; refused where no plan fits the memories of some cluster."""
        return allocation_of(self.parameters, state, self.plans(state))

    def plans(self, state: SystemState) -> dict[tuple[int, int], ScheduledPlan]:
        """The plan of every environment and cluster; arguments and errors as for :meth:`act`."""
        problems = chain_problems(self.parameters, state)
        return {at: self.named(at, self.search, problem) for at, problem in problems.items()}

    def named(
        self, at: tuple[int, int], plan: Callable[[ChainProblem], Result], problem: ChainProblem
    ) -> Result:
        """Result of planning one cluster; a refusal names its environment and itself."""
        try:
            return plan(problem)
        except AllocationError as error:
            raise self.refusal(*at, str(error)) from None

    @abstractmethod
    def search(self, problem: ChainProblem) -> ScheduledPlan:
        """Plan one cluster.

        Raises:
            AllocationError: If no plan fits the memories.
        """


class Found(NamedTuple):
    """A completed plan, and the part of the cluster's delay that it decides [s]."""

    seconds: float
    plan: ScheduledPlan


def best_plan(
    problem: ChainProblem,
    starts: Sequence[ScheduledPlan],
    moves: Sequence[Sequence[Moves]],
    width: int = 1,
) -> Found | None:
    """Beam search: kinds of moves take turns until none of them leads to a quicker plan.

    Args:
        starts: Drafts to begin with.
        moves: The kinds. Of each kind the second function is tried where the first does not help, and so on.
        width: Plans that the search follows at a time; 1 is a local search, which takes the best move.

    Returns:
        A plan no slower than the starts, none of whose neighbours is quicker; ``None`` if no start fits.
    """
    beam = quickest(problem, starts, keep=width)
    seen: set[tuple[int, int, ScheduledPlan]] = set()
    turn = idle = 0
    while beam and idle < len(moves):
        best, kind = beam[0].seconds, turn % len(moves)
        turn, idle = turn + 1, idle + 1
        for place, neighbours in enumerate(moves[kind]):
            new = [found.plan for found in beam if (kind, place, found.plan) not in seen]
            seen.update((kind, place, plan) for plan in new)
            drafts = [draft for plan in new for draft in neighbours(plan)]
            limit = beam[-1].seconds if len(beam) == width else np.inf
            merged = {found.plan[:-1]: found for found in quickest(problem, drafts, keep=width, limit=limit)}
            merged.update((found.plan[:-1], found) for found in beam)
            beam = sorted(merged.values(), key=lambda found: found.seconds)[:width]
            if beam[0].seconds < best:
                idle = 0
                break
    return beam[0] if beam else None


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
    width = max(len(draft.devices) for draft in drafts)
    rows = np.array([draft.row(width) for draft in drafts])
    seconds = price(problem, rows, keep, limit)
    found: dict[tuple[object, ...], Found] = {}
    for r in np.argsort(seconds, kind="stable").tolist():
        if not seconds[r] < limit * (1.0 - LEAST_GAIN) or len(found) == keep:
            break
        size, _, held, caps = len(drafts[r].devices), *rows[r, 4:].reshape(3, width).tolist()
        plan = drafts[r]._replace(held=tuple(held[:size]), caps=tuple(caps[:size]))
        found.setdefault(plan[:-1], Found(float(seconds[r]), plan))
    return list(found.values())


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


def usable_devices(problem: ChainProblem, micro_batches: int) -> tuple[int, ...]:
    """Devices in index order that can hold a block and one of ``M`` micro-batches: the ``L`` fastest at most.

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


def device_sets(problem: ChainProblem, devices: Sequence[int]) -> list[tuple[int, ...]]:
    """Sets of devices to try, each in index order.

    All sets, where there are at most ``EXHAUSTIVE`` devices. Otherwise all sets of so many fastest ones, and
    for every size the set of the fastest and the set of the roomiest devices; one of the latter fits if any
    set fits with one micro-batch in flight.
    """
    fastest = sorted(devices, key=lambda k: problem.times.block_forward[k])
    few = fastest[:EXHAUSTIVE]
    sets = [[k for i, k in enumerate(few) if code >> i & 1] for code in range(1, 1 << len(few))]
    if len(fastest) > EXHAUSTIVE:
        roomiest = sorted(devices, key=lambda k: -problem.memory_bytes[k])
        sets += [order[:size] for order in (fastest, roomiest) for size in range(1, len(order) + 1)]
    return [tuple(sorted(each)) for each in sets]


def rearranged(plan: ScheduledPlan, usable: Sequence[int]) -> Iterator[ScheduledPlan]:
    """Two stages' devices swapped, or one exchanged for an idle one.

    The blocks stay with the stages; where no device is new, also with the devices.
    """
    own, S = plan.devices, len(plan.devices)
    for s in range(S):
        for t in range(s + 1, S):
            order = list(range(S))
            order[s], order[t] = t, s
            swapped = plan._replace(devices=tuple([own[i] for i in order]))
            yield swapped
            yield swapped._replace(held=tuple([plan.held[i] for i in order]))
        for k in usable:
            if k not in own:
                yield plan._replace(devices=(*own[:s], k, *own[s + 1 :]))


def resized_devices(devices: tuple[int, ...], usable: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """A stage left out, or an idle device added at any place."""
    S = len(devices)
    if S > 1:
        yield from (without(devices, s) for s in range(S))
    for k in usable:
        if k not in devices:
            yield from ((*devices[:s], k, *devices[s:]) for s in range(S + 1))


def shifted_blocks(held: tuple[int, ...], stages: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """A block of one of these stages given to the stage before or after it; one may be left with none."""
    for s in stages:
        for t in (s - 1, s + 1):
            if 0 <= t < len(held):
                moved = list(held)
                moved[s] -= 1
                moved[t] += 1
                yield tuple(moved)


def next_numbers(options: Sequence[int], micro_batches: int) -> list[int]:
    """Numbers of micro-batches next to one of the options."""
    place = list(options).index(micro_batches)
    return [M for M in options[max(place - 1, 0) : place + 2] if micro_batches != M]


def without(values: tuple[int, ...], place: int) -> tuple[int, ...]:
    """All values but one."""
    return (*values[:place], *values[place + 1 :])
