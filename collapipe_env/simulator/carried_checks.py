"""Checks that the arrays of a user's own process can be carried from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collapipe_env.dynamics.process import Carried, Limits, Process
from collapipe_env.errors import ScenarioError


def require_arrays(process: Process, carried: Carried, rows: int) -> None:
    """Refuse what `begin` may not return."""
    _require_mapping(process, "begin", carried)
    for name, values in carried.items():
        shape = getattr(values, "shape", None)
        if not hasattr(values, "dtype") or not shape or shape[0] != rows:
            raise ScenarioError(
                f"begin of the process {process.name!r} returned {name!r} "
                + (f"of shape {tuple(shape)}" if shape is not None else f"as {type(values).__name__}")
                + f": expected an array with one row for each of {rows} environments"
            )


def require_like(process: Process, found: Carried, before: Carried) -> None:
    """Refuse what `advance` may not return: other names, shapes or types than before."""
    _require_mapping(process, "advance", found)
    for name in {**before, **found}:
        old, new = before.get(name), found.get(name)
        if getattr(new, "dtype", None) != getattr(old, "dtype", None) or _shape(new) != _shape(old):
            raise ScenarioError(
                f"advance of the process {process.name!r} returned {name!r} as {_kind(new)}, begin as "
                f"{_kind(old)}: return the same names, shapes and types"
            )


def require_finite(process: Process, found: Carried) -> None:
    """Refuse numbers that would spoil every round from here on."""
    for name, values in found.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            at = np.argwhere(~np.isfinite(values))[0]
            raise ScenarioError(
                f"advance of the process {process.name!r} returned {values[tuple(at)]} in {name!r} at "
                f"{at.tolist()}: return finite numbers"
            )


def require_caps(process: Process, limits: object) -> None:
    """Refuse limits that would make rounds of plausible but wrong length."""
    if not isinstance(limits, Limits):
        raise ScenarioError(
            f"limits of the process {process.name!r} returned {type(limits).__name__}: return Limits(...)"
        )
    for name, values in (("clock", limits.clock), ("memory_bytes", limits.memory_bytes)):
        fits = True if values is None else values > 0.0 if name == "clock" else values >= 0.0
        if not np.all(fits):  # NaN does not fit either
            at = tuple(np.argwhere(~np.asarray(fits))[0].tolist())
            raise ScenarioError(
                f"limits of the process {process.name!r} returned {np.asarray(values)[at]} in {name!r} at "
                f"{list(at)}: return {'shares in (0, 1]' if name == 'clock' else 'bytes, at least 0'}"
            )


def _require_mapping(process: Process, method: str, found: object) -> None:
    if not isinstance(found, Mapping):
        raise ScenarioError(
            f"{method} of the process {process.name!r} returned {type(found).__name__}: return a dictionary "
            "of arrays by name"
        )


def _kind(array: Any) -> str:
    """Type and shape of an array, in words."""
    return "nothing" if array is None else f"{getattr(array, 'dtype', type(array).__name__)} {_shape(array)}"


def _shape(array: Any) -> tuple[int, ...] | None:
    shape = getattr(array, "shape", None)
    return None if shape is None else tuple(shape)
