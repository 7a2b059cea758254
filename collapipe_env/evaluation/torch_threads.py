"""Threads of PyTorch, set without importing it: most schedulers do not need it, and importing takes time."""

from __future__ import annotations

import sys
from typing import Any


def _torch() -> Any:
    """PyTorch if anything has imported it by now, otherwise ``None``."""
    return sys.modules.get("torch")


class TorchThreads:
    """Context in which PyTorch computes in some threads, from the first :meth:`apply` after its import on.

    Args:
        count: Threads, at least 1.
    """

    asked: int | None = None
    """Threads of the innermost context."""

    def __init__(self, count: int) -> None:
        self._count, self._outer = count, TorchThreads.asked
        self._before: int | None = None

    def __enter__(self) -> TorchThreads:
        TorchThreads.asked = self._count
        self.apply()
        return self

    def apply(self) -> None:
        """Set the threads, once PyTorch is there."""
        torch = _torch()
        if self._before is None and torch is not None:
            self._before = torch.get_num_threads()
            torch.set_num_threads(self._count)

    def __exit__(self, *_: object) -> None:
        TorchThreads.asked = self._outer
        if self._before is not None:
            _torch().set_num_threads(self._before)


def threads_asked() -> int | None:
    """Threads in which PyTorch computes; ``None`` where it is not imported and none were asked for."""
    torch = _torch()
    return TorchThreads.asked if torch is None else int(torch.get_num_threads())
