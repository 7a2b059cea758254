"""Numba's ``njit`` with a type signature: the decorated function keeps its own type for checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile to machine code on first call and keep the result in the on-disk cache.

    The interpreter's lock is released while the function runs.

    Args:
        function: A function of numbers, NumPy arrays and named tuples of numbers.
    """
    wrapped: Callable[P, R] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return wrapped
