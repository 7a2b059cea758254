"""Arrays as short text, which a page's script turns back into typed arrays."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Packed = tuple[str, str]
"""Type of the numbers as NumPy writes it, and their bytes, little-endian, in base64."""
TYPES = ("<f4", "<u4", "<u2", "<u1")
"""Types that the page's script knows."""


def packed(values: Iterable[Any] | npt.NDArray[Any], kind: str) -> Packed:
    """Pack numbers, flat, in C order.

    Args:
        values: The numbers; NaN and infinity only as ``"<f4"``.
        kind: One of :data:`TYPES`.
    """
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values))
    return kind, base64.b64encode(np.ascontiguousarray(array, dtype=np.dtype(kind)).tobytes()).decode()


def packed_length(arrays: Iterable[Packed]) -> int:
    """Characters that packed arrays take."""
    return sum(len(text) for _, text in arrays)
