"""Replay of a cluster's script: times of all operations, from the script alone ([X]).

Each stage runs its own list and each link serves its only sender first come, first served. An operation or
transfer starts when the one before on the same stage or link has ended and its input has arrived. So
processes that know their own part of the script and the arrival times of messages find the same times
without a common clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT, ClusterScript, StageScript
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.schedules.timeline import Direction, Event

_DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "weight")
_Arrivals: TypeAlias = dict[tuple[int, int, int], float]


@dataclass(slots=True)
class StageClock:
    """Virtual clock of one stage: its next operation, and its start.

    A stage's own process follows the same rule. Times count from the start of the local step.

    Attributes:
        script: The stage's script.
        free_s: End of its last operation [s].
    """

    script: StageScript
    free_s: float = 0.0
    _done: int = 0
    _stored: int = 0
    _weights_ready: list[int] = field(default_factory=list)
    _weights_done: int = 0

    @property
    def following(self) -> tuple[int, int, int] | None:
        """The next operation of the order; ``None`` after the last one."""
        order = self.script.order
        return order[self._done] if self._done < len(order) else None

    @property
    def finished(self) -> bool:
        """Whether all operations are done, weight gradients that fill gaps included."""
        waiting = self.script.weight_limit is not None and self._weights_done < len(self._weights_ready)
        return self.following is None and not waiting

    def start(self, arrived_s: float | None) -> tuple[tuple[int, int, int], float, float]:
        """Begin an operation and return it: the next of the order, or a weight gradient that fills a gap.

        Args:
            arrived_s: Time at which the input of ``following`` arrives [s]; not read if ``following`` is
                ``None`` or needs no input. It may lie ahead: nothing else can precede that operation in the
                order, so the caller may wait for the message first.

        Returns:
            The operation, its start and its end [s].

        Raises:
            AllocationError: If the stage is full and has no weight gradient to do.
        """
        operation, limit = self.following, self.script.weight_limit
        gap = limit is not None and self._weights_done < len(self._weights_ready)
        begin = self.free_s
        if operation is not None and operation[0] != WEIGHT:
            full = limit is not None and operation[0] == FORWARD and self._stored >= limit
            if full and not gap:
                raise AllocationError(
                    f"operation {operation} waits for room, but no weight gradient is left to make it: "
                    f"weight_limit {limit} is too low for this order"
                )
            assert arrived_s is not None, "the next operation has an input"
            late = full or arrived_s > self.free_s
            if gap and late:
                operation = None
            else:
                begin = max(self.free_s, arrived_s)
        if operation is None:
            assert gap, "a stage that has finished starts nothing"
            operation = (WEIGHT, self._weights_ready[self._weights_done], 0)
            self._weights_done += 1
        else:
            self._done += 1
        kind, m, chunk = operation
        self._stored += (kind == FORWARD) - (kind == WEIGHT)
        if kind == BACKWARD:
            self._weights_ready.append(m)
        self.free_s = begin + self.script.seconds(kind, chunk)
        return operation, begin, self.free_s


class _Links:
    """Links of a cluster: each serves its sender first come, first served; elements as in a timeline."""

    def __init__(self, script: ClusterScript, events: list[Event]) -> None:
        S = len(script.stages)
        self._events = events
        self._free: dict[tuple[int, int], float] = {}
        self.last_s = 0.0  # arrival of the last message
        hops = [(script.hop_forward_s[i], script.hop_backward_s[i], script.latency_s) for i in range(S + 1)]
        self._seconds = {2 * i: hop for i, hop in enumerate(hops)}
        self._seconds[2 * S + 1] = script.uplink_s, script.downlink_s, script.edge_latency_s
        self._seconds[2 * S + 3] = script.wrap_forward_s, script.wrap_backward_s, script.latency_s

    def send(self, element: int, kind: int, m: int, at_s: float) -> float:
        """Send a micro-batch that is ready; return the time at which it arrives [s]."""
        seconds = self._seconds[element]
        start = max(at_s, self._free.get((element, kind), 0.0))
        end = start + seconds[kind]
        self._free[element, kind] = end
        self._events.append(Event(element, m, _DIRECTIONS[kind], start, end))
        self.last_s = max(self.last_s, end + seconds[2])
        return end + seconds[2]


def replayed_step(script: ClusterScript) -> tuple[float, list[Event]]:
    """Replay one local step of a cluster, from its start to the end of the last operation or message.

    Args:
        script: Script of a cluster that plays.

    Returns:
        Its length [s], and the events in order of completion; elements as laid out by
        :func:`~collapipe_env.physics.schedules.timeline.chain_elements`.

    Raises:
        AllocationError: If the orders wait for each other.
    """
    S = len(script.stages)
    v = len(script.stages[0].chunk_share)
    events: list[Event] = []
    links = _Links(script, events)
    clocks = [StageClock(stage) for stage in (*script.stages, script.server)]
    # Arrival of each input, by stage, kind, micro-batch and chunk.
    arrived: list[_Arrivals] = [{} for _ in clocks]
    for m in range(script.micro_batches):
        arrived[0][FORWARD, m, 0] = links.send(0, FORWARD, m, 0.0)

    def passed_on(s: int, kind: int, m: int, chunk: int, end: float) -> None:
        """Send a stage's result to the stage that needs it next."""
        if s == S:
            if kind == FORWARD:
                arrived[S][BACKWARD, m, 0] = end  # the server turns round
            elif kind == BACKWARD:
                at_cu = links.send(2 * S + 1, BACKWARD, m, end)
                arrived[S - 1][BACKWARD, m, v - 1] = links.send(2 * S, BACKWARD, m, at_cu)
        elif kind == FORWARD:
            if s < S - 1:
                arrived[s + 1][FORWARD, m, chunk] = links.send(2 * (s + 1), FORWARD, m, end)
            elif chunk < v - 1:
                arrived[0][FORWARD, m, chunk + 1] = links.send(2 * S + 3, FORWARD, m, end)
            else:
                at_cu = links.send(2 * S, FORWARD, m, end)
                arrived[S][FORWARD, m, 0] = links.send(2 * S + 1, FORWARD, m, at_cu)
        elif kind == BACKWARD:
            if s > 0:
                arrived[s - 1][BACKWARD, m, chunk] = links.send(2 * s, BACKWARD, m, end)
            elif chunk > 0:
                arrived[S - 1][BACKWARD, m, chunk - 1] = links.send(2 * S + 3, BACKWARD, m, end)
            else:
                links.send(0, BACKWARD, m, end)

    moved = True
    while moved:
        moved = False
        for s, clock in enumerate(clocks):
            while not clock.finished:
                wanted = clock.following
                if wanted is not None and wanted[0] != WEIGHT and wanted not in arrived[s]:
                    break
                operation, begin, end = clock.start(None if wanted is None else arrived[s].get(wanted))
                element = 2 * s + 1 if s < S else 2 * S + 2
                events.append(Event(element, operation[1], _DIRECTIONS[operation[0]], begin, end))
                passed_on(s, *operation, end)
                moved = True
    if not all(clock.finished for clock in clocks):
        raise AllocationError(
            f"the orders of cluster {script.cluster} under {script.schedule!r} wait for each other; "
            "raise the caps of its stages"
        )
    events.sort(key=lambda event: event.end_s)
    return max(events[-1].end_s, links.last_s), events
