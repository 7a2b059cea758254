"""Arrays of real numbers, which is all that actions and allocations may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.errors import AllocationError

REAL_KINDS = "fiu"
"""NumPy's kinds of real numbers: floats and integers. Booleans are more likely a mask given by mistake."""


def real_numbers(name: str, value: Any) -> npt.NDArray[Any]:
    """Read an array, and refuse everything but real numbers.

    Args:
        name: Its name, for the error.
        value: An array, or what NumPy makes one of.

    Raises:
        AllocationError: Names the type, or says why there is no array in it.
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # rows of several lengths, tensors elsewhere
        raise AllocationError(
            f"{name}: a {type(value).__name__} that is no array ({error}): give an array of floats"
        ) from None
    if array.dtype.kind not in REAL_KINDS:
        raise not_real(name, array.dtype)
    return array


def not_real(name: str, dtype: object) -> AllocationError:
    """The error for an array of another type.

    Args:
        name: Its name.
        dtype: Its type.
    """
    return AllocationError(f"{name}: type {dtype}, expected real numbers (floats or integers)")
