"""Interface of a backend, and rows of a batch on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from collapipe_env.arrays import Array, BoolArray, namespace

F = TypeVar("F", bound=Callable[..., Any])


class Backend(Protocol):
    """Array library, device and real type of an environment.

    Everything else is written once, for arrays of any library. Arrays that have been handed out are never
    written to again: what changes is replaced.

    Attributes:
        name: ``"numpy"`` or ``"torch"``.
    """

    name: str

    def array(self, values: npt.ArrayLike, *, keep: bool = False) -> Array:
        """Copy numbers from the host: real ones in the backend's real type, others in their own.

        Args:
            values: The numbers.
            keep: Leave real numbers in their own type as well, as :meth:`host` has returned them.
        """
        ...

    def host(self, values: Array) -> npt.NDArray[Any]:
        """Copy an array to the host, as a NumPy array; waits for the device."""
        ...

    def rows(self, mask: BoolArray) -> Rows:
        """Choose rows of a batch (E,), known on the host."""
        ...

    def uniform(self, seeds: Array, rounds: Array, count: int, factors: int = 1) -> Array:
        """Uniform numbers in (0, 1) of some rows in their rounds, or products of them, in float64.

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
        """Return a function of arrays without side effects as one that runs faster, if there is a way."""
        ...


class Rows:
    """Some of ``E`` environments.

    All of them are the common case, when episodes of equal length end together: arrays are replaced as a
    whole then.

    Args:
        mask: True for those that are meant (E,), on the host.
        index: Their places, as the backend's arrays are indexed.
        here: The mask as an array of the backend.

    Attributes:
        host: Their places (R,), on the host.
        all: Whether every environment is meant.
    """

    def __init__(self, mask: BoolArray, index: Array, here: Array) -> None:
        self.mask = mask
        self.host: npt.NDArray[np.intp] = np.flatnonzero(mask)
        self.all = len(self.host) == len(mask)
        self.here = here
        self._index = index

    def __len__(self) -> int:
        return len(self.host)

    def of(self, values: Array) -> Array:
        """These rows (R, ...) of an array (E, ...)."""
        return values if self.all else values[self._index]

    def put(self, old: Array, fresh: Array) -> Array:
        """An array (E, ...) with fresh values (R, ...) in these rows; the old one is left as it was."""
        if self.all:
            return fresh
        merged = namespace(old).asarray(old, copy=True)
        merged[self._index] = fresh
        return merged

    def fill(self, old: Array, value: float) -> Array:
        """An array (E, ...) with one value in these rows; the old one is left as it was."""
        if self.all:
            return namespace(old).full_like(old, value)
        merged = namespace(old).asarray(old, copy=True)
        merged[self._index] = value
        return merged
