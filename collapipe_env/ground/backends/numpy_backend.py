"""NumPy: the backend of the compiled loops."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, BoolArray, FloatArray, WordArray
from collapipe_env.ground.backends.base import F, Rows
from collapipe_env.ground.compiled import compiled
from collapipe_env.ground.numbers import STEP, number_at

LARGE_BYTES = 1 << 23
"""Size from which memory is used again; below, NumPy's own is quicker."""
_MOST_SIZES, _MOST_BLOCKS = 4, 3
_free: dict[int, deque[bytearray]] = {}


def large_empty(shape: tuple[int, ...]) -> FloatArray:
    """Return an array with any numbers in it, float64, whose memory no living array or view of one shares.

    The system gives memory of tens of megabytes page by page, cleared, and takes it back as soon as it is
    freed: for a thousand devices in 256 environments that took a quarter of a step.
    """
    size = 8 * math.prod(shape)
    if size < LARGE_BYTES:
        return np.empty(shape)
    blocks = _free.setdefault(size, deque(maxlen=_MOST_BLOCKS))
    for oldest in list(_free)[:-_MOST_SIZES]:  # so that little stays of environments that are gone
        _free.pop(oldest, None)
    try:
        memory = blocks.pop()
    except IndexError:
        memory = bytearray(size)
    # All views have this array as their base, because its own memory is not an array's.
    whole = np.frombuffer(memory, dtype=np.float64)
    weakref.finalize(whole, blocks.append, memory).atexit = False
    return whole.reshape(shape)


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
        out = large_empty((len(seeds), count // factors))
        products(seeds, rounds.view(np.uint64), count, factors, out)
        return out

    def fuse(self, function: F) -> F:
        """Return the function as it is: the slow parts are compiled already."""
        return function


NUMPY = NumpyBackend()
"""The backend of the compiled loops."""


@compiled
def products(seeds: WordArray, rounds: WordArray, stride: int, factors: int, out: FloatArray) -> None:
    """Draw products of uniform numbers; their negative logarithms are Erlang distributed.

    Args:
        seeds: The rows' seeds (R,).
        rounds: Rounds of the streams that were used before (R,).
        stride: Numbers that a round uses.
        factors: Numbers in a product, 1 for the uniform numbers themselves.
        out: (R, C), written, with C the whole part of ``stride / factors``.
    """
    R, C = out.shape
    for r in range(R):
        # A sum leads from state to state: it takes less time than a product.
        state = (seeds[r] + rounds[r] * np.uint64(stride)) * STEP
        for i in range(C):
            out[r, i] = number_at(state)
            state += STEP
        # Neighbouring columns in the inner loop: the processor computes several at once.
        for _ in range(1, factors):
            for i in range(C):
                out[r, i] *= number_at(state)
                state += STEP
