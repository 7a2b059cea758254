"""Events of a local step under any schedule, for drawing: the compiled simulation's own record."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.allocation import ASYNC, INTERLEAVED
from collapipe_env.physics.schedules.makespans import Chains, Orders, chain_times, run_chain
from collapipe_env.physics.schedules.timeline import Direction, Event

_KINDS: tuple[Direction, ...] = ("forward", "backward", "weight")


def schedule_events(chains: Chains, orders: Orders, row: int, half_duplex: bool) -> list[Event]:
    """Run one chain and keep the events of all its elements; under ``async`` those of all local steps.

    Returns:
        The events in order of completion; elements as laid out by
        :func:`~collapipe_env.physics.schedules.timeline.chain_elements`.
    """
    schedule = int(orders.schedule[row])
    chunks = int(orders.chunks[row]) if schedule == INTERLEAVED else 1
    micro_batches = int(orders.micro_batches[row] * (orders.mini_batches[row] if schedule == ASYNC else 1))
    times, slots = chain_times(chains, row, schedule, chunks)
    record = room_for_events(len(slots), chunks, micro_batches)
    run_chain(times, schedule, orders.caps[row][slots], chunks, micro_batches, half_duplex, record)
    return recorded_events(record, len(slots))


def room_for_events(stages: int, chunks: int, micro_batches: int) -> FloatArray:
    """Return an empty record for the events of a local step of ``S`` stages (most, 6)."""
    most = micro_batches * (3 * chunks * (stages + 1) + 2 * (chunks * stages + 2))
    return np.full((most, 6), -1.0)


def recorded_events(record: FloatArray, stages: int) -> list[Event]:
    """Return the events of a record in order of completion."""
    record = record[record[:, 0] >= 0.0]
    record = record[np.argsort(record[:, 5], kind="stable")]
    return [
        Event(_element(int(r[0]), stages), int(r[2]), _KINDS[int(r[1])], float(r[4]), float(r[5]))
        for r in record
    ]


def _element(resource: int, stages: int) -> int:
    """Return the index in the chain of elements of a resource of the simulation."""
    if resource < stages:
        return 2 * resource + 1
    if resource == stages:
        return 2 * stages + 2
    link = (resource - stages - 1) % (stages + 3)
    return {stages + 1: 2 * stages + 3, stages + 2: 2 * stages + 1}.get(link, 2 * link)
