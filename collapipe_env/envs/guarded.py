"""Records of arrays for a user's code, with every array protected from writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from collapipe_env.ground.arrays import Array

Guard = Callable[[Array], Array]


def read_only(array: Array) -> Array:
    """Return a view of a NumPy array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def copied(tensor: Array) -> Array:
    """Return a copy of a tensor."""
    return tensor.clone()


def guarded(value: Any, guard: Guard) -> Any:
    """Return a record with every array guarded, including those of nested records.

    Args:
        value: A dataclass, a mapping or an array; anything else stays as it is.
        guard: :func:`read_only` or :func:`copied`.
    """
    if is_dataclass(value):
        kind: Any = type(value)
        return kind(**{name: guarded(getattr(value, name), guard) for name in _names(kind)})
    if isinstance(value, Mapping):
        return {name: guarded(part, guard) for name, part in value.items()}
    return guard(value) if hasattr(value, "dtype") else value


def guarded_on_use(value: Any, guard: Guard) -> Any:
    """Return the same record as :func:`guarded`, but guard each array on first access.

    A reward reads few of about forty arrays. The result is an instance of the record's class.

    Args:
        value: As for :func:`guarded`.
        guard: As for :func:`guarded`.
    """
    if not is_dataclass(value):
        return guarded(value, guard)
    kind: Any = type(value)
    record = object.__new__(_on_use(kind))
    # A field with a default is an attribute of the class, for which __getattr__ would not be called.
    preset = {
        name: guarded_on_use(getattr(value, name), guard) for name in _names(kind) if hasattr(kind, name)
    }
    record.__dict__.update(preset, _whole=value, _guard=guard)
    return record


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


@cache
def _on_use(kind: Any) -> Any:
    """The class of a record's guarded form."""

    def get(record: Any, name: str) -> Any:
        if name not in _names(kind):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=record)
        value = guarded_on_use(getattr(record.__dict__["_whole"], name), record.__dict__["_guard"])
        record.__dict__[name] = value
        return value

    def reduce(record: Any) -> Any:
        return kind, tuple(getattr(record, name) for name in _names(kind))

    return type(
        kind.__name__, (kind,), {"__getattr__": get, "__reduce__": reduce, "__module__": kind.__module__}
    )
