"""Small helpers for code that runs on any array library of the Python array API standard."""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

Array: TypeAlias = Any
"""An array of any library of the Python array API standard (NumPy, PyTorch, CuPy, JAX, ...)."""


def namespace(*arrays: Array) -> ModuleType:
    """Return the array-API namespace of the arrays (plain NumPy first: it is the hot path)."""
    if all(type(a) is np.ndarray for a in arrays):
        return np
    module: ModuleType = array_api_compat.array_namespace(*arrays)
    return module
