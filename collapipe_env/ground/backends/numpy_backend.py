"""NumPy: the backend of the compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, BoolArray, FloatArray
from collapipe_env.ground.backends.base import F, Rows
from collapipe_env.ground.numbers import products


class NumpyBackend:
    """Arrays of NumPy in double precision."""

    name = "numpy"

    def __reduce__(self) -> str:
        # There is only one, so copies of environments use the compiled loops too.
        return "NUMPY"

    def array(self, values: npt.ArrayLike, *, keep: bool = False) -> npt.NDArray[Any]:
        """Copy numbers; real ones become float64."""
        copied = np.array(values, order="C")
        return copied.astype(np.float64) if copied.dtype.kind == "f" and not keep else copied

    def host(self, values: Array) -> npt.NDArray[Any]:
        """Copy an array."""
        return np.array(values)

    def rows(self, mask: BoolArray) -> Rows:
        """Choose rows of a batch."""
        return Rows(mask, mask, mask)

    def uniform(self, seeds: Array, rounds: Array, count: int, factors: int = 1) -> FloatArray:
        """Return uniform numbers, from a compiled loop."""
        out = np.empty((len(seeds), count // factors))
        products(seeds, rounds.view(np.uint64), count, factors, out)
        return out

    def fuse(self, function: F) -> F:
        """Return the function as it is: the slow parts are compiled already."""
        return function


NUMPY = NumpyBackend()
"""The backend of the compiled loops."""
