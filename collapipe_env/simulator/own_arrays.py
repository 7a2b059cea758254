"""Arrays that a user's own process returns: their types, shapes and ranges, checked and made alike.

Compiled loops read and write arrays without looking at their shapes, so a wrong one must not reach them.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.state_trees import LARGEST_NUMBER

FINITE = "finite numbers"
_KINDS = ("f", "i", "u")


class Place(NamedTuple):
    """The array that a method returned.

    Attributes:
        process: Name of the process.
        method: Its method.
        name: Name of the array.
    """

    process: str
    method: str
    name: str

    def error(self, found: str, remedy: str) -> ScenarioError:
        """The error for a wrong array."""
        return ScenarioError(f"{self.method} of the process {self.process!r} returned {found}: {remedy}")

    def wrong_kind(self, values: Any, expected: str) -> ScenarioError:
        """The error for another type or shape."""
        return self.error(f"{self.name!r} as {in_words(values)}", f"expected {expected}")


def numbers(
    at: Place,
    values: Any,
    shape: tuple[int, ...],
    *,
    low: float = -LARGEST_NUMBER,
    high: float = LARGEST_NUMBER,
    above: bool = False,
    stretch: bool = False,
    range_: str = FINITE,
) -> FloatArray:
    """Return an array of numbers as float64, contiguous.

    Args:
        at: Where it came from.
        values: What was returned.
        low: Smallest number.
        high: Largest number.
        above: Whether the smallest number itself is refused.
        stretch: Whether single numbers, and arrays that broadcast to the shape, are accepted.
        range_: The range in words.

    Raises:
        ScenarioError: If it is no such array.
    """
    if not (_kind(values) in _KINDS or (stretch and type(values) in (float, int))):
        raise at.wrong_kind(values, f"numbers {shape}")
    with np.errstate(over="ignore"):
        array: FloatArray = np.asarray(values, dtype=np.float64)
    array = _of_shape(at, values, array, shape, stretch, "numbers")
    require_all(at, array, (array > low if above else array >= low) & (array <= high), range_)
    return array


def truths(at: Place, values: Any, shape: tuple[int, ...], *, stretch: bool = False) -> BoolArray:
    """Return an array of truth values, contiguous; arguments and errors as for :func:`numbers`."""
    if not (_kind(values) == "b" or (stretch and type(values) is bool)):
        raise at.wrong_kind(values, f"truth values {shape}")
    array: BoolArray = _of_shape(at, values, np.asarray(values), shape, stretch, "truth values")
    return array


def require_plain(at: Place, values: Any) -> None:
    """Refuse an array that cannot be carried, because it holds no finite numbers in this machine's form.

    Args:
        at: Where it came from.
        values: What was returned, of at least one axis.

    Raises:
        ScenarioError: If it is no such array.
    """
    if _kind(values) not in (*_KINDS, "b") or not values.dtype.isnative:
        expected = f"expected an array of numbers with {len(values)} rows"
        raise at.error(f"{at.name!r} as {in_words(values)}", expected)
    require_finite(at, values)


def require_finite(at: Place, values: Any) -> None:
    """Refuse numbers that would spoil every round from here on."""
    if values.dtype.kind == "f":
        require_all(at, values, np.abs(values) <= LARGEST_NUMBER, FINITE)


def require_all(at: Place, values: Any, fits: Any, range_: str) -> None:
    """Refuse values outside a range; names the first."""
    if not np.all(fits):
        index = tuple(np.argwhere(~np.asarray(fits))[0].tolist())
        place = f" at {list(index)}" if index else ""
        raise at.error(f"{values[index]} in {at.name!r}{place}", f"return {range_}")


def in_words(array: Any) -> str:
    """Type and shape of an array, in words."""
    if array is None:
        return "nothing"
    shape = getattr(array, "shape", None)
    if shape is None or isinstance(array, np.ma.MaskedArray):
        return type(array).__name__
    return f"{getattr(array, 'dtype', type(array).__name__)} {tuple(shape)}"


def _kind(values: Any) -> str | None:
    """Kind of a NumPy array; ``None`` for anything else."""
    if isinstance(values, np.ndarray | np.generic) and not isinstance(values, np.ma.MaskedArray):
        return values.dtype.kind
    return None


def _of_shape(at: Place, values: Any, array: Any, shape: tuple[int, ...], stretch: bool, what: str) -> Any:
    if stretch:
        with contextlib.suppress(ValueError):
            array = np.broadcast_to(array, shape)
    if array.shape != shape:
        raise at.wrong_kind(values, f"{what} {shape}")
    # Broadcasting hands out single numbers as whole arrays, which compiled loops would step beyond.
    return np.ascontiguousarray(array) if array.ndim else array
