"""The exact timeline of one cluster's round: which element works on which micro-batch, and when.

This module is the scalar twin of the batched closed form: it knows every start and every end, of which the
simulator of a round needs only the makespan and uses the formula. Drawing reads the events.

Source: GPipe as a list of operations per resource (all forwards, flush, all backwards) with every radio
hop as a pipeline element of its own. The schedule is standard, the reading of links as elements is
reconstructed [R].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from collapipe_env.ground.errors import AllocationError

Direction = Literal["forward", "backward", "weight"]
ElementKind = Literal["hop", "compute", "uplink", "server"]
SERVER_NODE = -1


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a cluster's pipeline: something that serves one micro-batch at a time.

    Attributes:
        kind: ``"compute"`` (a stage's devices), ``"hop"`` (device to device), ``"uplink"`` (CU to base
            station; its backward use is the downlink) or ``"server"``.
        forward_s: Seconds per micro-batch on the way forward, finite and >= 0.
        backward_s: Seconds per micro-batch on the way back, finite and >= 0.
        node: The hosting node, or for a hop and the uplink the one that sends forward: 0 is the CU, k >= 1
            the cluster's k-th device (the stage's lead device), -1 the server.
        latency_s: Seconds that a message is under way after it has left a hop or the uplink, either way,
            finite and >= 0; meanwhile the element is free.
    """

    kind: ElementKind
    label: str
    forward_s: float
    backward_s: float
    node: int
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """One micro-batch passing one element in one direction, from ``start_s`` to ``end_s``.

    ``"weight"`` is the part of a backward pass that schedules with a split backward pass postpone.
    """

    element: int
    micro_batch: int
    direction: Direction
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the round that concerns the cluster as a whole."""

    label: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RoundTimeline:
    """One cluster's round.

    Attributes:
        events: Events of the elements in order of completion, for the requested local steps.
        phases: Migration of moments, relay, local steps (one phase each), all-reduces, updates, waits of
            local steps, collection, upload, wait for the slowest cluster and broadcast, gapless and in order.
            After a failure come its detection, planning, moves of blocks and the replay of local steps.
            Phases that take no time are left out.
    """

    elements: tuple[Element, ...]
    events: tuple[Event, ...]
    phases: tuple[Phase, ...]

    @property
    def end_s(self) -> float:
        """End of the last phase, in seconds (0 for a round without phases)."""
        return self.phases[-1].end_s if self.phases else 0.0


def gpipe_timeline(elements: Sequence[Element], micro_batches: int) -> list[Event]:
    """Events of one local step under GPipe: all forwards, a flush, all backwards.

    Every micro-batch passes the elements first to last, is held at the last one until the last forward has
    left it (the flush), and passes them last to first. Each element serves one micro-batch at a time, first
    come first served: micro-batches never overtake each other, and no two directions meet at an element.
    Forwards and backwards both go in the order 0..M-1. (The reverse order for the backwards gives the same
    makespan, since micro-batches are alike.)

    Args:
        elements: The pipeline in forward order, at least one element.
        micro_batches: M >= 1.

    Returns:
        2 * M * len(elements) events in order of completion.
    """
    events: list[Event] = []
    arrived = [0.0] * micro_batches
    there = list(enumerate(elements))
    directions: tuple[tuple[Direction, list[tuple[int, Element]]], ...] = (
        ("forward", there),
        ("backward", there[::-1]),
    )
    for direction, chain in directions:
        for i, element in chain:
            length = element.forward_s if direction == "forward" else element.backward_s
            free = 0.0
            for m in range(micro_batches):
                start = max(arrived[m], free)
                free = start + length
                arrived[m] = free + element.latency_s
                events.append(Event(i, m, direction, start, free))
        arrived = [max(arrived)] * micro_batches
    return sorted(events, key=lambda event: event.end_s)


def chain_elements(
    stage_nodes: Sequence[int],
    stage_blocks: Sequence[int],
    *,
    compute_forward_s: Sequence[float],
    compute_backward_s: Sequence[float],
    hop_forward_s: Sequence[float],
    hop_backward_s: Sequence[float],
    uplink_s: float,
    downlink_s: float,
    server_forward_s: float,
    server_backward_s: float,
    server_blocks: int = 0,
    stage_names: Sequence[str] | None = None,
    wrap_s: tuple[float, float] | None = None,
    latency_s: float = 0.0,
    edge_latency_s: float = 0.0,
) -> tuple[Element, ...]:
    """Lay out a cluster's chain: CU, stages with a hop before and after each, uplink, server.

    Args:
        stage_nodes: (S,) lead device of each stage in pipeline order, 1-based.
        stage_blocks: (S,) blocks of each stage.
        compute_forward_s: (S,) seconds per micro-batch.
        compute_backward_s: (S,) seconds per micro-batch.
        hop_forward_s: (S+1,) seconds of CU -> stage 1, stage 1 -> 2, ..., stage S -> CU.
        hop_backward_s: (S+1,) seconds of the same hops for the gradients, in the same order.
        uplink_s: Seconds per micro-batch from the CU to the server.
        downlink_s: Seconds per micro-batch of gradients from the server to the CU.
        stage_names: (S,) names of the stages' devices; ``d`` and the lead device's number by default.
        wrap_s: Seconds forward and backward of the hop from the last stage to the first, which only plans
            with several chunks a stage have.

    Returns:
        2 S + 3 elements, and the hop between chunks if there is one.
    """
    stages, senders = len(stage_nodes), [0, *map(int, stage_nodes)]
    names = ["CU", *(stage_names or [f"d{node - 1}" for node in stage_nodes]), "CU"]
    elements: list[Element] = []
    for i, sender in enumerate(senders):
        label = f"{names[i]}→{names[i + 1]}"
        hop = float(hop_forward_s[i]), float(hop_backward_s[i])
        elements.append(Element("hop", label, *hop, sender, latency_s))
        if i < stages:
            label = f"{names[i + 1]}, {_blocks_text(int(stage_blocks[i]))}"
            times = float(compute_forward_s[i]), float(compute_backward_s[i])
            elements.append(Element("compute", label, *times, senders[i + 1]))
    elements.append(Element("uplink", "up/downlink", float(uplink_s), float(downlink_s), 0, edge_latency_s))
    server = float(server_forward_s), float(server_backward_s)
    label = f"server, {_blocks_text(server_blocks)}" if server_blocks else "server"
    elements.append(Element("server", label, *server, SERVER_NODE))
    if wrap_s is not None:
        elements.append(Element("hop", f"{names[-2]}→{names[1]}", *wrap_s, senders[-1], latency_s))
    return tuple(elements)


def _blocks_text(blocks: int) -> str:
    return f"{blocks} block{'s' if blocks != 1 else ''}"


def cluster_timeline(
    elements: Sequence[Element],
    step_s: float,
    step_events: Sequence[Event] = (),
    *,
    local_steps: int = 1,
    before: Mapping[str, float] = MappingProxyType({}),
    step_ends: Mapping[str, float] = MappingProxyType({}),
    after: Mapping[str, float] = MappingProxyType({}),
    broadcast_s: float = 0.0,
    broadcast_start_s: float | None = None,
    drawn_steps: int | None = 1,
) -> RoundTimeline:
    """Build the whole round of a cluster: first phases, H local steps, last phases, wait, broadcast.

    Args:
        step_s: Length of a local step [s].
        step_events: Its events, from 0 on.
        local_steps: H >= 1.
        before: Phases before the local steps by name [s], such as the relay of new weights.
        step_ends: Phases that end every local step by name [s], such as the optimiser's update.
        after: Phases after the local steps by name [s].
        broadcast_start_s: When the broadcast begins, that is when the slowest cluster has uploaded; ``None``
            puts it right after this cluster's own upload.
        drawn_steps: How many local steps get events: the first one by default, ``None`` for all.

    Returns:
        The round, from 0 to the end of the broadcast.

    Raises:
        AllocationError: For a negative or non-finite length, fewer than one local step, or a broadcast that
            begins before the cluster's own upload has ended.
    """
    for name, length in (
        ("step", step_s),
        *before.items(),
        *step_ends.items(),
        *after.items(),
        ("broadcast", broadcast_s),
    ):
        if not (math.isfinite(length) and length >= 0.0):
            raise AllocationError(f"{name} is {length!r}; a phase lasts a finite time of 0 s or more")
    if local_steps < 1:
        raise AllocationError(f"local_steps is {local_steps}; a round has at least one local step")

    shown = local_steps if drawn_steps is None else min(drawn_steps, local_steps)
    events: list[Event] = []
    phases: list[Phase] = []
    now = 0.0

    def add(label: str, length: float) -> None:
        nonlocal now
        if length > 0.0:
            phases.append(Phase(label, now, now + length))
            now += length

    for name, length in before.items():
        add(name, length)
    for step in range(local_steps):
        if step < shown:
            events += [
                Event(e.element, e.micro_batch, e.direction, now + e.start_s, now + e.end_s)
                for e in step_events
            ]
        add("step", step_s)
        for name, length in step_ends.items():
            add(name, length)
    for name, length in after.items():
        add(name, length)
    if broadcast_start_s is not None:
        # The caller's maximum over clusters was summed in another order: allow for rounding.
        if not (math.isfinite(broadcast_start_s) and broadcast_start_s >= now * (1.0 - 1e-9)):
            raise AllocationError(
                f"broadcast_start_s is {broadcast_start_s!r}, but this cluster's upload ends at {now!r} s; "
                "pass the latest end of an upload over all clusters"
            )
        if broadcast_start_s - now > 1e-9 * now:
            add("wait", broadcast_start_s - now)
    add("broadcast", broadcast_s)
    return RoundTimeline(tuple(elements), tuple(events), tuple(phases))
