"""Checks of the results of a user's own process.

The package's own processes have tests instead. For tensors, only the shapes and types of carried arrays are
checked: reading their numbers would mean waiting for the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from collapipe_env.dynamics.process import Carried, Interruption, Limits, Price, Process
from collapipe_env.dynamics.system import System
from collapipe_env.errors import ScenarioError

_LIKE = {"small_scale": "link_gain", "known_gain": "link_gain", "device_edge_ratio": "present"}
"""Arrays of a system that may be missing, each with another array of its shape."""
_POSITIVE = ("speed", "full_speed", "link_gain", "server_share")
_ANYWHERE = ("cu_position", "device_offset")


def require_arrays(process: Process, carried: Carried, rows: int) -> None:
    """Refuse an invalid result of `begin`."""
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
    """Refuse a result of `advance` with other names, shapes or types than before."""
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
        if values.dtype.kind == "f":
            _require_all(process, "advance", name, values, np.isfinite(values), "finite numbers")


def require_caps(process: Process, limits: object, device_shape: tuple[int, ...]) -> None:
    """Refuse limits that would make rounds of plausible but wrong length.

    Args:
        process: The process.
        limits: Result of its `limits` or `limits_under`.
        device_shape: (E, N, K); arrays that broadcast to it are accepted.
    """
    if not isinstance(limits, Limits):
        raise ScenarioError(
            f"limits of the process {process.name!r} returned {type(limits).__name__}: return Limits(...)"
        )
    for name, values in limits._asdict().items():
        if values is None:
            continue
        _require_kind(process, "limits", name, values, device_shape, boolean=name == "present", stretch=True)
        # NaN fails any comparison.
        if name == "clock":
            _require_all(process, "limits", name, values, values > 0.0, "shares in (0, 1]")
        elif name == "memory_bytes":
            _require_all(process, "limits", name, values, values >= 0.0, "bytes, at least 0")
        elif name == "stay_order":
            _require_all(process, "limits", name, values, values == values, "numbers")


def require_system(process: Process, found: object, before: System) -> None:
    """Refuse a system of another shape, or with numbers that no round can be computed with."""
    if not isinstance(found, System):
        raise ScenarioError(
            f"apply of the process {process.name!r} returned {type(found).__name__}: return "
            "system._replace(...)"
        )
    for name, values in found._asdict().items():
        old = getattr(before, name)
        if values is old:
            continue
        shape = _shape(old if old is not None else getattr(before, _LIKE.get(name, name)))
        _require_kind(process, "apply", name, values, shape, boolean=name == "present")
        if name in _ANYWHERE:
            fits, range_ = np.isfinite(values), "finite numbers"
        elif name in _POSITIVE:
            fits, range_ = np.isfinite(values) & (values > 0.0), "finite numbers above 0"
        else:
            fits, range_ = np.isfinite(values) & (values >= 0), "finite numbers, at least 0"
        _require_all(process, "apply", name, values, fits, range_)


def require_price(process: Process, found: object, energy_shape: tuple[int, ...]) -> None:
    """Refuse a price of another type, or one that would shorten a round.

    Args:
        process: The process.
        found: Result of its `price`.
        energy_shape: (E, N, K+1).
    """
    if not isinstance(found, Price):
        raise ScenarioError(
            f"price of the process {process.name!r} returned {type(found).__name__}: return Price(...)"
        )
    _require_added(process, "price", found, energy_shape)


def require_interruption(process: Process, found: object, energy_shape: tuple[int, ...]) -> None:
    """Refuse an interruption as :func:`require_price` refuses a price; arguments as there."""
    if not isinstance(found, Interruption):
        raise ScenarioError(
            f"interrupt of the process {process.name!r} returned {type(found).__name__}: return "
            "Interruption(...)"
        )
    _require_added(process, "interrupt", found, energy_shape)
    _require_kind(process, "interrupt", "trained", found.trained, energy_shape[:-1], boolean=True)


def require_moments(process: Process, found: Any, device_shape: tuple[int, ...]) -> None:
    """Refuse invalid times of failures.

    Args:
        process: The process.
        found: Result of its `failures`.
        device_shape: (E, N, K).
    """
    _require_kind(process, "failures", "its times", found, device_shape)
    _require_all(process, "failures", "its times", found, found >= 0.0, "seconds, at least 0, or infinity")


def _require_added(
    process: Process, method: str, found: Price | Interruption, energy_shape: tuple[int, ...]
) -> None:
    """Check delays and energies that are added; energies may be negative, for instance if harvested."""
    pairs = (("cluster_delay", energy_shape[:-1]), ("energy", energy_shape))
    for name, shape in pairs:
        values = getattr(found, name)
        _require_kind(process, method, name, values, shape)
        fits, range_ = np.isfinite(values), "finite joules"
        if name == "cluster_delay":
            fits, range_ = fits & (values >= 0.0), "finite seconds, at least 0"
        _require_all(process, method, name, values, fits, range_)


def _require_kind(
    process: Process,
    method: str,
    name: str,
    values: Any,
    shape: tuple[int, ...] | None,
    *,
    boolean: bool = False,
    stretch: bool = False,
) -> None:
    """Refuse what is no array of numbers, or of truth values, or has another shape.

    Args:
        process: The process.
        method: Its method.
        name: Name of the array, for the message.
        values: The array.
        shape: Its shape; ``None`` for any.
        boolean: Whether truth values are expected.
        stretch: Whether shapes that broadcast to this one, and numbers, are accepted.
    """
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if stretch and type(values) in (float, int):
        kind = "f"
    fits = kind == "b" if boolean else kind in ("f", "i", "u")
    if fits and shape is not None:
        found = np.shape(values)
        if stretch:
            with contextlib.suppress(ValueError):
                found = np.broadcast_shapes(found, shape)
        fits = found == shape
    if not fits:
        expected = f"{'truth values' if boolean else 'numbers'}{'' if shape is None else f' {shape}'}"
        raise ScenarioError(
            f"{method} of the process {process.name!r} returned {name!r} as {_kind(values)}: expected "
            f"{expected}"
        )


def _require_all(process: Process, method: str, name: str, values: Any, fits: Any, range_: str) -> None:
    """Refuse values outside a range; names the first."""
    if not np.all(fits):
        at = tuple(np.argwhere(~np.asarray(fits))[0].tolist())
        place = f" at {list(at)}" if at else ""
        raise ScenarioError(
            f"{method} of the process {process.name!r} returned {np.asarray(values)[at]} in {name!r}{place}: "
            f"return {range_}"
        )


def _require_mapping(process: Process, method: str, found: object) -> None:
    if not isinstance(found, Mapping):
        raise ScenarioError(
            f"{method} of the process {process.name!r} returned {type(found).__name__}: return a dictionary "
            "of arrays by name"
        )


def _kind(array: Any) -> str:
    """Type and shape of an array, in words."""
    if array is None:
        return "nothing"
    shape = _shape(array)
    return (
        type(array).__name__ if shape is None else f"{getattr(array, 'dtype', type(array).__name__)} {shape}"
    )


def _shape(array: Any) -> tuple[int, ...] | None:
    shape = getattr(array, "shape", None)
    return None if shape is None else tuple(shape)
