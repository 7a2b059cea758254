"""Bounds that are plain numbers, and joining, on any array library.

The standard's ``maximum`` and ``minimum`` may turn a Python number into an array, which on a GPU means
waiting for a copy; ``clip`` takes it as it is. NumPy's ``clip`` is slow, so NumPy keeps its ``maximum``.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.physics._array import Array, namespace


def at_least(values: Array, bound: float) -> Array:
    """The larger of each value and the bound, of the values' type; NaN stays NaN."""
    xp = namespace(values)
    return np.maximum(values, bound) if xp is np else xp.clip(values, bound, None)


def at_most(values: Array, bound: float) -> Array:
    """The smaller of each value and the bound, of the values' type; NaN stays NaN."""
    xp = namespace(values)
    return np.minimum(values, bound) if xp is np else xp.clip(values, None, bound)


def concatenate(arrays: tuple[Array, ...]) -> Array:
    """Join arrays along their last axis."""
    xp = namespace(*arrays)
    return np.concatenate(arrays, axis=-1) if xp is np else xp.concat(arrays, axis=-1)
