"""Threads of PyTorch, set without importing it: most schedulers do not need it, and importing takes time."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _OnImport(MetaPathFinder):
    """Sets PyTorch's threads as soon as something imports it.

    Attributes:
        count: Threads from then on.
        before: Threads that PyTorch began with; ``None`` as long as nothing has imported it.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.before: int | None = None

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - Python's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find ``torch`` as the other finders do, and have its threads set after its import."""
        if fullname != "torch":
            return None
        self.forget()
        spec = importlib.util.find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                self.before = module.get_num_threads()
                module.set_num_threads(self.count)

            loader.exec_module = exec_module
        return spec

    def forget(self) -> None:
        """Leave later imports alone."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def compute_in_threads(count: int) -> Callable[[], None]:
    """Let PyTorch compute in this many threads, from now on or from its import on.

    Args:
        count: Threads, at least 1.

    Returns:
        A function that restores PyTorch's earlier number of threads, or the one that it began with.
    """
    if "torch" in sys.modules:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(count)
        return lambda: torch.set_num_threads(before)
    on_import = next((finder for finder in sys.meta_path if isinstance(finder, _OnImport)), None)
    if on_import is None:
        on_import = _OnImport(count)
        sys.meta_path.insert(0, on_import)
    on_import.count = count

    def restore() -> None:
        on_import.forget()
        if on_import.before is not None:
            import torch

            torch.set_num_threads(on_import.before)

    return restore


def threads_asked() -> int | None:
    """Threads in which PyTorch computes; ``None`` where it is not imported and none were asked for."""
    if "torch" in sys.modules:
        import torch

        return torch.get_num_threads()
    return next((finder.count for finder in sys.meta_path if isinstance(finder, _OnImport)), None)
