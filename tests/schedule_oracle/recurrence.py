"""The universal recurrence of pipeline schedules: who runs what when, given each stage's order of operations.

A stage runs its operations one after the other in the given order; an operation starts when its predecessor
on the stage has ended and its input has arrived. A link serves transfers first come, first served: with full
duplex one queue per direction, with half duplex one queue for both. Source: `algorithms.md` section 5.1; the
longest-path model is standard, links as queues are reconstructed [R].
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from collapipe_env.ground.errors import AllocationError

OperationKind = Literal["F", "B", "W"]
Duplex = Literal["full", "half"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of a stage's list: forward (F), backward or input gradient (B), or weight gradient (W)."""

    kind: OperationKind
    micro_batch: int
    chunk: int = 0


Orders = Sequence[Sequence[Operation]]


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """One operation on a stage or its output's transfer over a link, from ``start_s`` to ``end_s``.

    Attributes:
        element: ``2 s`` for stage ``s``, ``2 s + 1`` for the link from stage ``s`` to ``s + 1`` (the last
            one's link wraps around to stage 0 and carries traffic only between chunks).
        kind: The operation; on a link, the one whose output travels (F forward, B backward).
        micro_batch: 0-based, running through all mini-batches where there are several.
        chunk: Chunk of the sending stage, 0 without interleaving.
        start_s: Start [s].
        end_s: End [s].
    """

    element: int
    kind: OperationKind
    micro_batch: int
    chunk: int
    start_s: float
    end_s: float

    @property
    def is_link(self) -> bool:
        """Whether a link did this rather than a stage."""
        return self.element % 2 == 1


@dataclass(frozen=True)
class StageTimes:
    """Times per micro-batch [s], all finite and >= 0.

    Attributes:
        forward: ``F_s`` (P,).
        backward: ``B_s`` (P,), without the weight gradient if ``weight`` is given, else with it.
        weight: ``W_s`` (P,) or ``None`` for an unsplit backward pass.
        link_forward: ``c^f_s`` of the link ``s -> s+1`` (P - 1,), or (P,) with the wrap-around link from the
            last stage to the first, which only interleaving uses. Empty stands for links of no length.
        link_backward: ``c^b_s`` of the gradients ``s+1 -> s``, shaped as ``link_forward``.

    Raises:
        AllocationError: No stage, lengths that do not belong together, or a time that is negative or not
            finite.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    weight: tuple[float, ...] | None = None
    link_forward: tuple[float, ...] = ()
    link_backward: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("forward", "backward", "weight", "link_forward", "link_backward"):
            given = getattr(self, name)
            if given is not None:  # arrays and lists are welcome, the value itself is hashable
                object.__setattr__(self, name, tuple(map(float, given)))
        if not self.forward:
            raise AllocationError("forward is empty; a pipeline has at least one stage")
        P = len(self.forward)
        links = sorted({0, P - 1, P})
        fields: list[tuple[str, Sequence[float], list[int]]] = [
            ("forward", self.forward, [P]),
            ("backward", self.backward, [P]),
            ("link_forward", self.link_forward, links),
            ("link_backward", self.link_backward, links),
        ]
        if self.weight is not None:
            fields.append(("weight", self.weight, [P]))
        for name, times, lengths in fields:
            if len(times) not in lengths:
                raise AllocationError(
                    f"{name} has {len(times)} entries, but {P} stages take {' or '.join(map(str, lengths))}"
                )
            for s, seconds in enumerate(times):
                if not (math.isfinite(seconds) and seconds >= 0.0):
                    raise AllocationError(
                        f"{name}[{s}] is {seconds!r}; "
                        "a pipeline time is finite and at least 0 s: is its rate or speed zero?"
                    )

    @property
    def stages(self) -> int:
        """Number of stages P."""
        return len(self.forward)

    @property
    def whole_backward(self) -> tuple[float, ...]:
        """Backward times with the weight gradient, (P,) [s]."""
        if self.weight is None:
            return self.backward
        return tuple(b + w for b, w in zip(self.backward, self.weight, strict=True))

    @property
    def inner_links(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Forward and backward times of the links between neighbours, (P - 1,) each [s]."""
        further = self.stages - 1
        zeros = (0.0,) * further
        return self.link_forward[:further] or zeros, self.link_backward[:further] or zeros


class FillPolicy(Protocol):
    """Decides how many waiting weight gradients a stage runs before its next operation."""

    def count(
        self, stage: int, kind: OperationKind, now: float, arrival: float, stored: int, pending: int
    ) -> int:
        """Number of W operations to insert.

        Args:
            stage: The stage.
            kind: Kind of its next operation.
            now: When the stage becomes free [s].
            arrival: When the next operation's input arrives [s].
            stored: Micro-batches with a forward but no weight gradient yet.
            pending: Those of them whose W could run.

        Returns:
            0 to ``pending``.
        """
        ...


class _Pipeline:
    """What both simulations share: durations, routes and the events so far."""

    def __init__(self, times: StageTimes, chunks: int) -> None:
        self.P = times.stages
        self.last = self.P * chunks - 1
        # A chunk is 1/v of its stage; its activations are as large as a whole stage's.
        self.duration: dict[OperationKind, list[float]] = {
            "F": [t / chunks for t in times.forward],
            "B": [t / chunks for t in times.backward],
            "W": [t / chunks for t in times.weight or (0.0,) * self.P],
        }
        self.link: dict[OperationKind, list[float]] = {"F": [0.0] * self.P, "B": [0.0] * self.P}
        self.link["F"][: len(times.link_forward)] = times.link_forward
        self.link["B"][: len(times.link_backward)] = times.link_backward
        self.arrivals: dict[tuple[OperationKind, int, int], float] = {}
        self.events: list[ScheduleEvent] = []

    def arrival(self, stage: int, x: Operation) -> float | None:
        """When the input of ``x`` is there, ``None`` if not yet known."""
        if x.kind == "F" and stage == 0 and x.chunk == 0:
            return 0.0
        return self.arrivals.get((x.kind, x.chunk * self.P + stage, x.micro_batch))

    def finish(self, stage: int, x: Operation, start: float) -> tuple[float, int | None, int]:
        """Record ``x``; return its end, the link its output takes (if any) and the chain position after."""
        end = start + self.duration[x.kind][stage]
        self.events.append(ScheduleEvent(2 * stage, x.kind, x.micro_batch, x.chunk, start, end))
        position = x.chunk * self.P + stage
        if x.kind == "B":
            self.arrivals["W", position, x.micro_batch] = end
        elif x.kind == "F" and position == self.last:
            self.arrivals["B", position, x.micro_batch] = end
        if x.kind == "F" and position < self.last:
            return end, (stage if self.P > 1 else None), position + 1
        if x.kind == "B" and position > 0:
            return end, ((stage - 1) % self.P if self.P > 1 else None), position - 1
        return end, None, position

    def transfer(self, link: int, x: Operation, start: float) -> float:
        """Record the transfer of the output of ``x`` and return its end."""
        end = start + self.link[x.kind][link]
        self.events.append(ScheduleEvent(2 * link + 1, x.kind, x.micro_batch, x.chunk, start, end))
        return end


def run_orders(
    orders: Orders,
    times: StageTimes,
    *,
    chunks: int = 1,
    duplex: Duplex = "full",
    fill: FillPolicy | None = None,
) -> list[ScheduleEvent]:
    """Run each stage's operations in the given order as early as possible.

    With full duplex every queue has one sender, hence its arrivals are in the sender's order and one pass
    over the operations suffices, O(P M). Half duplex merges two senders and needs a heap, O(P M log P).

    Args:
        orders: (P,) lists of operations.
        times: Stages and links; W operations take ``times.weight``.
        chunks: Chunks v per stage; an operation on a chunk takes 1/v of the stage's time.
        duplex: ``"full"`` or ``"half"``.
        fill: Inserts W operations into orders that have none (full duplex only); what remains runs last.

    Returns:
        The events of stages and links in order of completion.

    Raises:
        AllocationError: The orders wait for each other, their number is not P, or the duplex mode is unknown.
    """
    if len(orders) != times.stages:
        raise AllocationError(f"{len(orders)} orders for {times.stages} stages; pass one list per stage")
    if duplex not in ("full", "half"):
        raise AllocationError(f"duplex is {duplex!r}; it is 'full' or 'half'")
    if duplex == "half" and fill is not None:
        raise AllocationError("a fill policy makes orders with full duplex; run the orders it made instead")
    pipeline = _Pipeline(times, chunks)
    done = _run_full(pipeline, orders, fill) if duplex == "full" else _run_half(pipeline, orders)
    for stage, (count, order) in enumerate(zip(done, orders, strict=True)):
        if count < len(order):
            x = order[count]
            raise AllocationError(
                f"the orders wait for each other: stage {stage} never gets the input of {x.kind} "
                f"{x.micro_batch}; a stage may not wait for a backward that needs its own later forward"
            )
    # Stable, so an element's operations of no length keep their order.
    return sorted(pipeline.events, key=lambda event: event.end_s)


def _run_full(pipeline: _Pipeline, orders: Orders, fill: FillPolicy | None) -> list[int]:
    P = pipeline.P
    done = [0] * P
    free = [0.0] * P
    link_free: dict[OperationKind, list[float]] = {"F": [0.0] * P, "B": [0.0] * P}
    forwards, backwards, weights = [0] * P, [0] * P, [0] * P
    work = list(range(P - 1, -1, -1))
    while work:
        stage = work.pop()
        order = orders[stage]
        while done[stage] < len(order):
            x = order[done[stage]]
            arrival = pipeline.arrival(stage, x)
            if arrival is None:
                break
            if fill is not None:
                stored = forwards[stage] - weights[stage]
                pending = backwards[stage] - weights[stage]
                for _ in range(fill.count(stage, x.kind, free[stage], arrival, stored, pending)):
                    free[stage], _, _ = pipeline.finish(stage, Operation("W", weights[stage]), free[stage])
                    weights[stage] += 1
                forwards[stage] += x.kind == "F"
                backwards[stage] += x.kind == "B"
            end, link, target = pipeline.finish(stage, x, max(free[stage], arrival))
            free[stage] = end
            done[stage] += 1
            if link is not None:
                end = pipeline.transfer(link, x, max(end, link_free[x.kind][link]))
                link_free[x.kind][link] = end
            if target != x.chunk * P + stage:
                pipeline.arrivals[x.kind, target, x.micro_batch] = end
                if target % P != stage:
                    work.append(target % P)
    if fill is not None:
        for stage in range(P):
            for micro_batch in range(weights[stage], backwards[stage]):
                free[stage], _, _ = pipeline.finish(stage, Operation("W", micro_batch), free[stage])
    return done


def _run_half(pipeline: _Pipeline, orders: Orders) -> list[int]:
    P = pipeline.P
    done = [0] * P
    busy = [False] * P
    link_busy = [False] * P
    waiting: list[deque[tuple[Operation, int]]] = [deque() for _ in range(P)]
    # (time, running number, stage or -1, link or None, operation, chain position of the receiver)
    heap: list[tuple[float, int, int, int | None, Operation, int]] = []
    started = 0

    def push(time: float, stage: int, link: int | None, x: Operation, target: int) -> None:
        nonlocal started
        heapq.heappush(heap, (time, started, stage, link, x, target))
        started += 1

    def try_stage(stage: int, now: float) -> None:
        if busy[stage] or done[stage] == len(orders[stage]):
            return
        x = orders[stage][done[stage]]
        arrival = pipeline.arrival(stage, x)
        # An arrival is only entered when it happens, except that of an operation still running here.
        if arrival is None or arrival > now:
            return
        end, link, target = pipeline.finish(stage, x, now)
        done[stage] += 1
        busy[stage] = True
        push(end, stage, link, x, target)

    def try_link(link: int, now: float) -> None:
        if link_busy[link] or not waiting[link]:
            return
        x, target = waiting[link].popleft()
        link_busy[link] = True
        push(pipeline.transfer(link, x, now), -1, link, x, target)

    for stage in range(P):
        try_stage(stage, 0.0)
    while heap:
        now, _, stage, link, x, target = heapq.heappop(heap)
        if stage < 0:
            assert link is not None
            pipeline.arrivals[x.kind, target, x.micro_batch] = now
            link_busy[link] = False
            try_link(link, now)
            try_stage(target % P, now)
            continue
        busy[stage] = False
        if link is not None:
            waiting[link].append((x, target))
            try_link(link, now)
        elif target != x.chunk * P + stage:
            pipeline.arrivals[x.kind, target, x.micro_batch] = now
        try_stage(stage, now)
    return done
