"""PyTorch without its compiler, in processes that never compile: its import takes longest of all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"


class _Uncompiled(ModuleType):
    """Stands in for the compiler, which every optimiser imports in order to say where not to compile.

    Whatever else is asked of it comes from the compiler itself, which is imported then.
    """

    @staticmethod
    def graph_break() -> None:
        """Do nothing: no graph is being compiled."""

    @staticmethod
    def disable(function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        """Return the function, which is not compiled anyway."""
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # some look through all modules for such names
            raise AttributeError(name)
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        return getattr(importlib.import_module(NAME), name)


def leave_compiler_out() -> None:
    """Spare this process the import of PyTorch's compiler until it is needed."""
    sys.modules.setdefault(NAME, _Uncompiled(NAME))
