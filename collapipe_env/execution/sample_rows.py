"""Samples of a micro-batch: their rows in the mini-batch, and their division among a stage's devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Rows = tuple[int, int]
"""First sample and the one after the last."""


def micro_batch_rows(samples: int, micro_batches: int) -> tuple[Rows, ...]:
    """Return the samples of each micro-batch; sizes differ by one at most, the larger ones first.

    Args:
        samples: Samples of the mini-batch.
        micro_batches: ``M``.
    """
    sizes = np.full(micro_batches, samples // micro_batches)
    sizes[: samples % micro_batches] += 1
    ends = np.cumsum(sizes).tolist()
    return tuple((end - int(size), end) for end, size in zip(ends, sizes, strict=True))


def device_rows(size: int, shares: Sequence[float]) -> tuple[Rows, ...]:
    """Return the samples of a micro-batch that each device of a stage works on, in the order of the devices.

    Boundaries are whole samples, as near to the shares as possible.

    Args:
        size: Samples of the micro-batch.
        shares: Shares of the devices, summing to 1.
    """
    ends = np.rint(size * np.cumsum(shares)).astype(int)
    ends[-1] = size
    starts = np.concatenate(([0], ends[:-1]))
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))


def overlap(one: Rows, two: Rows) -> Rows | None:
    """Return the samples that are in both; ``None`` if there are none."""
    start, stop = max(one[0], two[0]), min(one[1], two[1])
    return (start, stop) if start < stop else None
