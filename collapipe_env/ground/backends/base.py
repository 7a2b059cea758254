"""Interface of a backend, and rows of a batch on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, BoolArray, namespace

F = TypeVar("F", bound=Callable[..., Any])


class Backend(Protocol):
    """Array library, device and real type of an environment.

    All other code is written once, for arrays of any library. Arrays that have been handed out are replaced,
    and never written to again.

    Attributes:
        name: ``"numpy"`` or ``"torch"``.
    """

    name: str

    def array(self, values: npt.ArrayLike, *, keep: bool = False) -> Array:
        """Copy numbers from the host: real ones in the backend's real type, others in their own.

        Args:
            values: The numbers.
            keep: Keep real numbers in their own type too, as :meth:`host` returned them.
        """
        ...

    def host(self, values: Array) -> npt.NDArray[Any]:
        """Copy an array to the host, as a NumPy array; waits for the device."""
        ...

    def rows(self, mask: BoolArray) -> Rows:
        """Choose rows of a batch (E,), known on the host."""
        ...

    def uniform(self, seeds: Array, rounds: Array, count: int, factors: int = 1) -> Array:
        """Return uniform numbers in (0, 1) of rows in their rounds, or products of them, in float64.

        They are hashes of seed, round and place, the same bits on every backend.

        Args:
            seeds: The rows' seeds (R,).
            rounds: Rounds before this one (R,), int64.
            count: Numbers that a row uses in a round.
            factors: Numbers in a product; number ``i`` of a row is the product of numbers ``i``,
                ``i + count / factors``, ...

        Returns:
            (R, count / factors).
        """
        ...

    def fuse(self, function: F) -> F:
        """Return a faster version of a function of arrays without side effects, if the backend has one."""
        ...


class Rows:
    """Some of ``E`` environments.

    Often these are all environments, since episodes of equal length end together; then whole arrays are
    replaced.

    Args:
        mask: True for the chosen environments (E,), on the host.
        index: Their indices, in the form that the backend's arrays take.
        here: The mask as an array of the backend.

    Attributes:
        host: Indices of the environments (R,), on the host.
        all: Whether every environment is chosen.
    """

    def __init__(self, mask: BoolArray, index: Array, here: Array) -> None:
        self.host: npt.NDArray[np.intp] = np.flatnonzero(mask)
        self.all = len(self.host) == len(mask)
        self.here = here
        self._index = index

    def __len__(self) -> int:
        return len(self.host)

    def of(self, values: Array) -> Array:
        """Return these rows (R, ...) of an array (E, ...)."""
        return values if self.all else values[self._index]

    def put(self, old: Array, fresh: Array) -> Array:
        """Return an array (E, ...) with fresh values (R, ...) in these rows; the old one stays unchanged."""
        if self.all:
            return fresh
        merged = namespace(old).asarray(old, copy=True)
        merged[self._index] = fresh
        return merged

    def fill(self, old: Array, value: float) -> Array:
        """Return an array (E, ...) with one value in these rows; the old one stays unchanged."""
        return self.put(old, namespace(old).full_like(self.of(old), value))
