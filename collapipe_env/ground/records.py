"""Records of arrays: dataclasses, named tuples and dictionaries, nested as they like.

An array is declared once, in its record: its axes, unit and range. Checks of files, of plans and of users'
own code read the declaration. A function is applied to all arrays of a record, whatever holds them, and a
record becomes a tree of arrays that a file can hold, and comes back checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import CollaPipeError, StateError
from collapipe_env.ground.state_trees import (
    LARGEST_NUMBER,
    REMEDY,
    Tree,
    require_array,
    require_names,
    require_text,
    require_within,
)

T = TypeVar("T")
Sizes: TypeAlias = Mapping[str, tuple[int, ...]]
"""Sizes of a record's axes by name, one number each; those of the batch axes by ``...``."""
Kind = Literal["real", "whole", "truth", "word"]
TYPES: Mapping[Kind, Any] = {"real": np.float64, "whole": np.int64, "truth": np.bool_, "word": np.uint64}
"""Types on the host. Tensors of single precision hold real numbers of 32 bits."""
SMALLEST = 1e-100
"""Lower bound of a system's positive quantities, far above where floating point loses precision."""


@dataclass(frozen=True)
class Declared:
    """An array of a record, as metadata of its annotation: ``Annotated[Array, Declared("N", "s")]``.

    Attributes:
        axes: Names or numbers of the axes after the batch axes ``...``, separated by spaces; empty for none.
        unit: Unit; ``1`` for pure numbers.
        low: Smallest number.
        high: Largest number.
        kind: Real or whole numbers, truth values, or words of 64 bits.
        neutral: Number that says the same as no array at all; ``None`` where there is none.
        unknown: Whether NaN stands for an unknown number.
    """

    axes: str
    unit: str = "1"
    low: float = -LARGEST_NUMBER
    high: float = LARGEST_NUMBER
    kind: Kind = "real"
    neutral: float | None = None
    unknown: bool = False

    @property
    def words(self) -> str:
        """The range and the unit in words."""
        unit = "" if self.unit == "1" else f" [{self.unit}]"
        if self.low <= -LARGEST_NUMBER:
            return f"finite numbers{unit}"
        return f"numbers from {self.low:g} to {self.high:g}{unit}"

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Shape of the array."""
        axes = self.axes.split()
        return sum(((int(axis),) if axis.isdigit() else sizes[axis] for axis in axes), sizes["..."])


@cache
def declarations(record: type) -> Mapping[str, Declared]:
    """Return the declarations of a record's arrays by name."""
    return {name: found for name, (found, _) in parts_of(record).items() if isinstance(found, Declared)}


@cache
def parts_of(record: Any) -> Mapping[str, tuple[Any, bool]]:
    """Parts of a record by name: the declaration or else the type of each, and whether it may be ``None``."""
    found: dict[str, tuple[Any, bool]] = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        declared = declared_in(hint)
        inner = get_args(hint)[0] if declared else hint
        optional = NoneType in get_args(inner)
        kinds = [kind for kind in get_args(inner) if kind is not NoneType] if optional else [inner]
        found[name] = declared or kinds[0], optional
    return found


def declared_in(hint: Any) -> Declared | None:
    """Return the declaration of an annotation."""
    is_ = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((each for each in is_ if isinstance(each, Declared)), None)


class Record:
    """A dataclass of arrays with leading batch axes."""

    def map(self: T, function: Callable[[Array], Array]) -> T:
        """Apply one function to every array, for instance to add a batch axis."""
        return mapped(self, function)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, for copies and files: what was worked out from them is worked out again."""
        kind: Any = type(self)
        return {name: getattr(self, name) for name in _names(kind)}

    def __getitem__(self: T, index: object) -> T:
        """Index the leading batch axes of every array."""
        return mapped(self, lambda array: array[index])


def made(record: type[T], **values: Any) -> T:
    """A frozen dataclass without its own constructor, which sets field by field and takes four times as long.

    Args:
        values: Fields by name; those left out must have plain defaults.
    """
    found = object.__new__(record)
    found.__dict__.update(values)
    return found


def mapped(record: T, function: Callable[[Array], Array]) -> T:
    """Return a record with a function applied to each of its arrays.

    Args:
        record: A dataclass, a named tuple, a mapping or an array; anything else stays as it is.
    """
    value: Any = record
    if value is None:  # many fields are
        return record
    kind: Any = type(value)
    if hasattr(value, "dtype"):
        value = function(value)
    elif hasattr(kind, "__dataclass_fields__"):
        value = made(kind, **{name: mapped(getattr(value, name), function) for name in _names(kind)})
    elif isinstance(value, Mapping):
        value = {name: mapped(part, function) for name, part in value.items()}
    elif hasattr(kind, "_fields"):
        value = kind(*(mapped(part, function) for part in value))
    changed: T = value
    return changed


def tree_of(record: Any) -> Tree:
    """Return a record in NumPy arrays as nested dictionaries of copies, without what is ``None``."""
    kind: Any = type(record)
    given = isinstance(record, Mapping)
    parts = record if given else {name: getattr(record, name) for name in _names(kind)}
    return {
        name: np.array(part) if hasattr(part, "dtype") else tree_of(part)
        for name, part in parts.items()
        if part is not None
    }


def record_of(record: type[T], tree: Any, sizes: Sizes, place: str) -> T:
    """Rebuild a record from its :func:`tree_of`, in copies of the arrays.

    Args:
        place: Name of the tree, for the error.

    Raises:
        StateError: If the tree has other names than the record, or an array of another shape, type or range
            than declared. Arrays without a declaration may have any.
    """
    found: T = _read(record, tree, sizes, place)
    return found


def _read(is_: Any, tree: Any, sizes: Sizes, place: str) -> Any:
    if not isinstance(is_, Declared):
        is_ = declared_in(is_) or is_
    if isinstance(is_, Declared):
        single = is_.kind == "real" and getattr(tree, "dtype", None) == np.float32
        require_array(tree, is_.shape(sizes), np.float32 if single else TYPES[is_.kind], place)
        if is_.kind in ("real", "whole"):
            require_within(tree, is_.low, is_.high, place, unknown=is_.unknown)
        return tree.copy()
    if is_ is Any:
        kind = getattr(tree, "dtype", None)
        known = kind in (*TYPES.values(), np.float32)
        require_array(tree, getattr(tree, "shape", ()), kind if known else np.float64, place)
        return tree.copy()
    require_text(tree, place)
    if get_origin(is_) is not None:
        return {name: _read(get_args(is_)[1], part, sizes, f"{place}/{name}") for name, part in tree.items()}
    parts = parts_of(is_)
    given = {**dict.fromkeys(name for name, (_, optional) in parts.items() if optional), **tree}
    require_names(given, parts, place)
    found = {
        name: None
        if part is None and parts[name][1]
        else _read(parts[name][0], part, sizes, f"{place}/{name}")
        for name, part in given.items()
    }
    try:
        return is_(**found)
    except CollaPipeError as error:
        raise StateError(f"{place}: {error}: {REMEDY}") from None


def sizes_of(record: Any) -> dict[str, tuple[int, ...]]:
    """Return the sizes of the axes of a record's arrays, which all have the same batch axes."""
    kind: Any = type(record)
    found: dict[str, tuple[int, ...]] = {}
    for name, is_ in declarations(kind).items():
        if hasattr(array := getattr(record, name), "shape"):
            axes = is_.axes.split()
            batch = len(array.shape) - len(axes)
            found["..."] = tuple(array.shape[:batch])
            found.update((axis, (size,)) for axis, size in zip(axes, array.shape[batch:], strict=True))
    return found


@cache
def _names(kind: Any) -> tuple[str, ...]:
    # PyTorch's compiler can follow this, but neither the cache nor dataclasses.fields.
    names: tuple[str, ...] = getattr(kind, "_fields", ()) or tuple(kind.__dataclass_fields__)
    return names
