"""Reading of arrays of real numbers, the only numbers allowed in actions and allocations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.errors import AllocationError

LARGEST_WHOLE = 2**63 - 1
"""Largest whole number of ``int64``, which compiled code computes with."""

REAL_KINDS = "fiu"
"""NumPy's kinds of real numbers: floats and integers. Booleans are more likely a mask given by mistake."""


def real_numbers(name: str, value: Any, shape: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
    """Read an array, and refuse everything but real numbers.

    Args:
        value: An array, or anything that NumPy can turn into one.
        shape: Its expected shape, which the error for ``None`` names; it is not checked.

    Raises:
        AllocationError: If it is not an array of real numbers; the message names the type or says why.
    """
    if value is None:
        expected = "real numbers" if shape is None else f"shape {shape}"
        raise AllocationError(f"{name} is None: give an array of {expected}")
    if isinstance(value, np.ma.MaskedArray):
        raise AllocationError(
            f"{name}: a masked array, whose masked entries have no value: fill them, and give a plain array"
        )
    try:
        array = np.asarray(value)
    # Rows of different lengths, tensors on a GPU, and whatever an object's own __array__ raises.
    except Exception as error:
        _refuse_plan(name, value)
        raise AllocationError(
            f"{name}: a {type(value).__name__} that is not an array ({type(error).__name__}: {error}): give "
            "an array of floats"
        ) from None
    if array.dtype.kind not in REAL_KINDS:
        _refuse_plan(name, value)
        raise not_real(name, array.dtype)
    return array


def _refuse_plan(name: str, value: object) -> None:
    """Refuse an allocation that was given in place of an action, and name the method that takes it."""
    if hasattr(value, "micro_batches"):
        raise AllocationError(
            f"{name}: an {type(value).__name__} was given, and step takes actions only: play it through "
            "env.unwrapped.step_allocation(allocation)"
        )


def float_numbers(name: str, value: Any) -> npt.NDArray[np.float64]:
    """Read an array of real numbers as ``float64``, always a copy.

    Raises:
        AllocationError: As for :func:`real_numbers`.
    """
    array = real_numbers(name, value)
    with np.errstate(over="ignore"):  # a wider float may become infinite, which later checks report
        return array.astype(np.float64)


def whole_numbers(name: str, value: Any) -> npt.NDArray[Any]:
    """Read an array that should hold whole numbers as ``int64``, always a copy; floats stay floats.

    Raises:
        AllocationError: As for :func:`real_numbers`, or for an integer that ``int64`` cannot hold.
    """
    array = real_numbers(name, value)
    if array.dtype.kind == "f":
        return float_numbers(name, array)
    if array.dtype.kind == "u" and array.size and array.max() > LARGEST_WHOLE:
        place = tuple(int(i) for i in np.argwhere(array > LARGEST_WHOLE)[0])
        raise AllocationError(f"{name}{list(place)} is {array[place]}, expected at most {LARGEST_WHOLE}")
    return array.astype(np.int64)


def not_real(name: str, dtype: object) -> AllocationError:
    """Return the error for an array of another type."""
    return AllocationError(f"{name}: type {dtype}, expected real numbers (floats or integers)")
