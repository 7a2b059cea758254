"""Summaries of episodes as columns: arrays or tensors (E,) by name, each with its mask ``_name``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collapipe_env.ground.errors import StateError, shown
from collapipe_env.ground.state_trees import REMEDY, require_array


def merge_rows(
    kept: Mapping[str, Any], fresh: Mapping[str, Any], rows: Any, where: Callable[..., Any]
) -> dict[str, Any]:
    """Merge columns: some rows from ``fresh``, the others from ``kept``.

    Args:
        kept: Columns with masks; may be empty.
        fresh: Columns with masks; a name that one side lacks is masked out in that side's rows.
        rows: Rows taken from ``fresh``, booleans (E,).
        where: ``numpy.where`` or ``torch.where``.
    """
    nowhere = rows & ~rows
    merged: dict[str, Any] = {}
    for name in dict.fromkeys((*kept, *fresh)):
        # Values where the mask is False do not matter: only missing masks have to be made up.
        absent = nowhere if name.startswith("_") else kept.get(name, fresh.get(name))
        merged[name] = where(rows, fresh.get(name, absent), kept.get(name, absent))
    return merged


def row_of(columns: Mapping[str, Any], row: int) -> dict[str, float]:
    """One row's plain numbers, without those that its masks exclude."""
    return {
        name: values[row].item()
        for name, values in columns.items()
        if f"_{name}" in columns and columns[f"_{name}"][row]
    }


def require_columns(columns: Any, rows: int, dtype: Any, place: str) -> None:
    """Refuse anything but columns with their masks.

    Args:
        rows: Length of the columns ``E``.

    Raises:
        StateError: Names the first fault.
    """
    if not isinstance(columns, Mapping):
        raise StateError(f"{place} is a {type(columns).__name__}, expected a dictionary: {REMEDY}")
    for name, values in columns.items():
        if not isinstance(name, str):
            raise StateError(f"{place}/{shown(name)} is unknown: {REMEDY}")
        mask = name.startswith("_")
        kind = "bool" if mask else "int64" if name == "rounds" else dtype
        require_array(values, (rows,), kind, f"{place}/{name}")
        if not mask and f"_{name}" not in columns:
            raise StateError(f"{place}/_{name} is missing: {REMEDY}")
