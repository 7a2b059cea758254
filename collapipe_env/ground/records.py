"""Records of arrays: dataclasses, named tuples and dictionaries, nested as they like.

An array is declared once, in its record: its axes, unit and range. Checks of states, of plans and of users'
own processes read the declaration. A function is applied to all arrays of a record, whatever holds them, and
a record becomes a tree of arrays that a file can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.state_trees import LARGEST_NUMBER, Tree

T = TypeVar("T")
Kind = Literal["real", "whole", "truth"]
SMALLEST = 1e-100
"""Lower bound of a system's positive quantities, far above where floating point loses precision."""


class Declared(NamedTuple):
    """An array of a record, as metadata of its annotation: ``Annotated[Array, Declared("N", "s")]``.

    Attributes:
        axes: Names of the axes after the batch axes ``...``, separated by spaces; empty for none.
        unit: Unit; ``1`` for pure numbers.
        low: Smallest number.
        high: Largest number.
        kind: Real or whole numbers, or truth values.
        neutral: Number that says the same as no array at all; ``None`` where there is none.
    """

    axes: str
    unit: str = "1"
    low: float = -LARGEST_NUMBER
    high: float = LARGEST_NUMBER
    kind: Kind = "real"
    neutral: float | None = None

    @property
    def words(self) -> str:
        """The range in words."""
        if self.low <= -LARGEST_NUMBER:
            return "finite numbers"
        return f"numbers from {self.low:g} to {min(self.high, LARGEST_NUMBER):g}"


@cache
def declarations(record: type) -> Mapping[str, Declared]:
    """Return the declarations of a record's arrays by name."""
    return {
        name: found
        for name, hint in get_type_hints(record, include_extras=True).items()
        for found in getattr(hint, "__metadata__", ())
        if isinstance(found, Declared)
    }


class Record:
    """A dataclass of arrays with leading batch axes."""

    def map(self: T, function: Callable[[Array], Array]) -> T:
        """Apply one function to every array, for instance to add a batch axis."""
        return mapped(self, function)

    def __getitem__(self: T, index: object) -> T:
        """Index the leading batch axes of every array."""
        return mapped(self, lambda array: array[index])


def mapped(record: T, function: Callable[[Array], Array]) -> T:
    """Return a record with a function applied to each of its arrays.

    Args:
        record: A dataclass, a named tuple, a mapping or an array; anything else stays as it is.
        function: Applied to every array.
    """
    found: T = _mapped(record, function)
    return found


def _mapped(value: Any, function: Callable[[Array], Array]) -> Any:
    if value is None:  # many fields are
        return None
    if hasattr(value, "dtype"):
        return function(value)
    kind: Any = type(value)
    if hasattr(kind, "__dataclass_fields__"):
        found = object.__new__(kind)  # quicker than the class itself, which sets field by field
        found.__dict__.update({name: _mapped(getattr(value, name), function) for name in _names(kind)})
        return found
    if isinstance(value, Mapping):
        return {name: _mapped(part, function) for name, part in value.items()}
    if hasattr(kind, "_fields"):
        return kind(*(_mapped(part, function) for part in value))
    return value


def tree_of(record: Any) -> Tree:
    """Return a record in NumPy arrays as nested dictionaries of copies, without what is ``None``."""
    if isinstance(record, Mapping):
        parts = record
    else:
        kind: Any = type(record)
        names = _names(kind) if hasattr(kind, "__dataclass_fields__") else record._fields
        parts = {name: getattr(record, name) for name in names}
    return {
        name: np.array(part) if hasattr(part, "dtype") else tree_of(part)
        for name, part in parts.items()
        if part is not None
    }


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
