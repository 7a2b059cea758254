"""Entries of actions encoded from plans: the inverse of :mod:`collapipe_env.decisions.decoding`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from collapipe_env.decisions.entries import SCHEDULE_CHOICES, OpenedLayout
from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import GPIPE, Allocation
from collapipe_env.physics.participation import players, whole_steps
from collapipe_env.physics.workload import WorkloadCosts


def encode_opened(layout: OpenedLayout, costs: WorkloadCosts, plan: Allocation) -> FloatArray:
    """Return the entries of opened decisions for plans that the action box can express.

    Entries that a plan does not read are -1: caps under GPipe and of idle devices, and blocks on the server
    of clusters that sit out.

    Args:
        layout: Positions of the entries.
        costs: Priced workload, with its own setting of recomputation.
        plan: Plans (...).

    Returns:
        Entries in [-1, 1] (..., N, width of the layout).
    """
    columns = []
    for part in layout:
        entries = _ENTRIES[part.name](layout, costs, plan)
        columns.append(entries if part.per_device else entries[..., None])
    return np.concatenate(columns, axis=-1)


def recomputes(costs: WorkloadCosts, plan: Allocation) -> IntArray:
    """Whether devices recompute under plans (..., N), 0 or 1."""
    own = int(costs.training_memory.recompute)
    given = (
        np.full(np.shape(plan.micro_batches), -1) if plan.recompute is None else np.asarray(plan.recompute)
    )
    return np.where(given < 0, own, given)


def takes_part(plan: Allocation) -> BoolArray:
    """Whether clusters take part under plans (..., N)."""
    return np.asarray(players(plan))


def server_blocks(plan: Allocation) -> IntArray:
    """Return the server's blocks under plans (..., N), 0 for clusters that sit out."""
    if plan.server_blocks is None:
        return np.zeros(np.shape(plan.micro_batches), dtype=np.int64)
    return np.where(takes_part(plan), plan.server_blocks, 0)


def _recompute(layout: OpenedLayout, costs: WorkloadCosts, plan: Allocation) -> FloatArray:  # noqa: ARG001
    return np.asarray(2.0 * recomputes(costs, plan) - 1.0, dtype=np.float64)


def _schedule(layout: OpenedLayout, costs: WorkloadCosts, plan: Allocation) -> FloatArray:  # noqa: ARG001
    if plan.schedule is None:
        return np.full(np.shape(plan.micro_batches), -1.0)
    place = np.argmax(np.asarray(plan.schedule)[..., None] == np.array(SCHEDULE_CHOICES), axis=-1)
    return _spread(place, len(SCHEDULE_CHOICES))


def _caps(layout: OpenedLayout, costs: WorkloadCosts, plan: Allocation) -> FloatArray:  # noqa: ARG001
    if plan.schedule is None:
        return np.full(np.shape(plan.blocks), -1.0)
    M = np.asarray(plan.micro_batches)[..., None]
    caps = np.asarray(plan.caps)
    read = (np.asarray(plan.blocks) > 0) & (np.asarray(plan.schedule) != GPIPE)[..., None]
    return np.where(read, 2.0 * (caps - 1) / np.maximum(M - 1, 1) - 1.0, -1.0)


def _server_blocks(layout: OpenedLayout, costs: WorkloadCosts, plan: Allocation) -> FloatArray:  # noqa: ARG001
    return _spread(server_blocks(plan), costs.blocks)


def _participation(layout: OpenedLayout, costs: WorkloadCosts, plan: Allocation) -> FloatArray:  # noqa: ARG001
    return np.asarray(2.0 * takes_part(plan) - 1.0, dtype=np.float64)


def _local_steps(layout: OpenedLayout, costs: WorkloadCosts, plan: Allocation) -> FloatArray:
    taken = np.asarray(whole_steps(plan, costs.local_steps))
    return _spread(np.asarray(np.searchsorted(layout.step_choices, taken)), len(layout.step_choices))


def _clock_cap(layout: OpenedLayout, costs: WorkloadCosts, plan: Allocation) -> FloatArray:  # noqa: ARG001
    if plan.clock_cap is None or layout.clock_cap_min == 1.0:
        return np.ones(np.shape(plan.device_power))
    entries: FloatArray = 1.0 - 2.0 * np.log(np.asarray(plan.clock_cap)) / math.log(layout.clock_cap_min)
    return entries


def _spread(places: IntArray | FloatArray, choices: int) -> FloatArray:
    """Return the entries for indices of choices that are spread evenly over [-1, 1]."""
    spread: FloatArray = 2.0 * places / max(choices - 1, 1) - 1.0
    return spread


_ENTRIES: dict[str, Callable[[OpenedLayout, WorkloadCosts, Allocation], FloatArray]] = {
    "recompute": _recompute,
    "schedule": _schedule,
    "caps": _caps,
    "server_blocks": _server_blocks,
    "participation": _participation,
    "local_steps": _local_steps,
    "clock_cap": _clock_cap,
}
"""Entries of each part, (..., N) or (..., N, K)."""
