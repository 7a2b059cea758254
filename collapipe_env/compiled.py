"""Numba's ``njit`` with a type signature: the decorated function keeps its own type for checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile to machine code on first call and keep the result in the on-disk cache.

    The interpreter's lock is released while the function runs.

    Args:
        function: A function of numbers, NumPy arrays and named tuples of numbers.
    """
    return _compile(function)


def compiled_inner(function: Callable[P, R]) -> Callable[P, R]:
    """As :func:`compiled` for functions that only compiled code calls: without the part that Python needs.

    That part, which takes named tuples of arrays to pieces, is a good deal of the time of compiling.

    Args:
        function: A function of numbers, NumPy arrays and named tuples of numbers.
    """
    return _compile(function, no_cpython_wrapper=True)


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    # no_cfunc_wrapper: nothing calls these functions from C.
    jit: Any = numba.njit
    wrapped: Callable[P, R] = jit(
        cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options
    )(function)
    return wrapped
