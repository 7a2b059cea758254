"""Memory of large arrays, used again once nobody holds them.

The system gives memory of tens of megabytes page by page, cleared, and takes it back as soon as it is freed:
for a thousand devices in 256 environments that took a quarter of a step.
"""

from __future__ import annotations

import math
import weakref
from collections import deque

import numpy as np

from collapipe_env.ground.arrays import FloatArray

LARGE_BYTES = 1 << 23
"""Size from which memory is used again; below, NumPy's own is quicker."""
_MOST_SIZES, _MOST_BLOCKS = 4, 3
_free: dict[int, deque[bytearray]] = {}


def large_empty(shape: tuple[int, ...]) -> FloatArray:
    """Return an array with any numbers in it, float64, whose memory no living array or view of one shares."""
    size = 8 * math.prod(shape)
    if size < LARGE_BYTES:
        return np.empty(shape)
    if size not in _free:
        for oldest in list(_free)[: 1 - _MOST_SIZES]:  # so that little stays of environments that are gone
            _free.pop(oldest, None)
        _free[size] = deque(maxlen=_MOST_BLOCKS)
    blocks = _free[size]
    try:
        memory = blocks.pop()
    except IndexError:
        memory = bytearray(size)
    # All views have this array as their base, because its own memory is not an array's.
    whole = np.frombuffer(memory, dtype=np.float64)
    weakref.finalize(whole, blocks.append, memory).atexit = False
    return whole.reshape(shape)
