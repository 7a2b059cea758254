"""PyTorch's settings while this package trains, whatever the program around it has set."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

REAL = torch.float32
"""Default type of real numbers during training."""
SPECIAL = frozenset(("__init__", "__call__", "__reduce__"))
"""Special methods that compute with tensors."""

C = TypeVar("C", bound=type)


@contextlib.contextmanager
def own_settings() -> Iterator[None]:
    """Record gradients, and make new tensors in single precision on the CPU, without autocasting.

    Undoes ``torch.no_grad``, ``torch.inference_mode``, ``torch.set_default_dtype``,
    ``torch.set_default_device`` and ``torch.autocast`` of the caller, and restores them at the end. The
    default type belongs to the process: other threads see this one meanwhile, if theirs is another.
    """
    with contextlib.ExitStack() as stack:
        # Only where needed: this takes time, and a context of a device slows all of PyTorch down.
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(_default_type)
        yield


class _DefaultType:
    """Context that sets the default type; of several threads, the last to leave restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = REAL

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = torch.get_default_dtype()
                if self._before != REAL:
                    torch.set_default_dtype(REAL)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._before != REAL:
                torch.set_default_dtype(self._before)


_default_type = _DefaultType()


def under_own_settings(cls: C) -> C:
    """Let a class's public methods run under :func:`own_settings`, inherited ones too, and how it is built.

    Args:
        cls: The class; none of its public methods is a generator. Properties run under the caller's settings.
    """
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if name.startswith("_") and name not in SPECIAL:
            continue
        if inspect.isfunction(member):
            setattr(cls, name, _settled(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(_settled(member.__func__)))
    return cls


def _settled(function: Callable[..., Any]) -> Callable[..., Any]:
    # Not the decorator that own_settings() could be: its frames would hide the caller's from messages.
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with own_settings():
            return function(*args, **kwargs)

    return inside
