"""Named parts of actions, and the check that none is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import AllocationError, nearest_name, shown


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
