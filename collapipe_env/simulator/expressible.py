"""Expressible allocations of the action box, and the named parts of actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import AllocationError, nearest_name, shown
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.check import check_values
from collapipe_env.simulator.decision import rows_of
from collapipe_env.simulator.refusal import SLACK
from collapipe_env.simulator.state import Parameters


class ActionPart(NamedTuple):
    """One part of an action.

    Attributes:
        shape: ``(N, K)`` or ``(N,)``.
        description: Meaning of its entries, which lie in [-1, 1].
    """

    shape: tuple[int, ...]
    description: str


def require_parts(parts: Mapping[str, Array], layout: Mapping[str, ActionPart]) -> tuple[int, ...]:
    """Refuse parts that do not make up whole actions.

    Args:
        layout: All parts of an action, among them ``cu_power``.

    Returns:
        Their leading axes.

    Raises:
        AllocationError: If a part is missing, unknown or of another shape.
    """
    for name in (*parts, *layout):
        if name not in layout:
            raise AllocationError(f"{name!r} is not part of an action: {nearest_name(name, layout)}")
        if name not in parts:
            raise AllocationError(f"part {name!r} is missing: an action has {', '.join(layout)}")
        if not hasattr(parts[name], "shape"):
            raise AllocationError(f"part {name!r} is {shown(parts[name])}: give an array")
    lead = tuple(parts["cu_power"].shape[:-1])
    for name, part in layout.items():
        if tuple(parts[name].shape) != (*lead, *part.shape):
            raise AllocationError(
                f"part {name!r} has shape {tuple(parts[name].shape)}, expected {(*lead, *part.shape)}"
            )
    return lead


def check_expressible(parameters: Parameters, devices: int, allocation: Allocation) -> None:
    """Refuse allocations that no action can express.

    Args:
        devices: ``K``, devices of the largest cluster.
        allocation: Leading axes ``...``.

    Raises:
        AllocationError: Names the first fault.
    """
    shape = (parameters.clusters, devices)
    if np.shape(allocation.blocks)[-2:] != shape:
        raise AllocationError(f"blocks has shape {np.shape(allocation.blocks)}, expected (..., {shape})")
    lead = np.ndim(allocation.blocks) - 2
    allocation = allocation.map(lambda array: np.reshape(array, (-1, *np.shape(array)[lead:])))
    if allocation.is_grouped:
        raise AllocationError(
            "the action box cannot express stages of several devices, and orders of devices: play this "
            "allocation through env.unwrapped.step_allocation(allocation)"
        )
    rows = rows_of(allocation)
    for row in rows:
        if row.name not in parameters.opened and all(each.neutral is None for each in row.fields.values()):
            raise AllocationError(
                f"the action box cannot express {row.name} where the scenario's decisions do not list "
                f"{row.name}: play this allocation through env.unwrapped.step_allocation(allocation)"
            )
    check_values(rows, parameters, allocation, SLACK)
    for row in rows:
        if row.name in parameters.opened:
            row.expressible(parameters, allocation)
    plays = allocation.plays
    # Clusters that sit out have no band; in a round in which all sit out, the band is not given out.
    total = np.where(plays.any(axis=-1), np.sum(np.where(plays, allocation.bandwidth, 0.0), axis=-1), 1.0)
    least = np.min(np.where(plays, allocation.bandwidth, 1.0))
    if np.any(np.abs(total - 1.0) > 1e-6) or least < parameters.bandwidth_floor - 1e-9:
        raise AllocationError(
            f"bandwidth shares sum to {np.min(total):.6g}..{np.max(total):.6g} with a least share of "
            f"{least:.3g}: the box gives out the whole band and at least "
            f"{parameters.bandwidth_floor:.3g} to every cluster"
        )
