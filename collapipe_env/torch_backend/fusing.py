"""Compiling the parts of a round."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def fused(function: F, wanted: bool) -> F:
    """A function of tensors whose operations PyTorch joins into few kernels, if that is wanted.

    It is compiled in the first call, which takes seconds to a minute, and again for tensors of another
    shape; results differ by rounding.

    Args:
        function: A function without side effects.
        wanted: False returns it as it is.
    """
    if not wanted:
        return function

    @wraps(function)
    def quiet(*arguments: Any) -> Any:
        with _silence():
            return compiled(*arguments)

    with _silence():
        compiled = torch.compile(function)
    return quiet  # type: ignore[return-value]


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the compiler's warnings about PyTorch's own parts and about caches of types to itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
