"""Trace: a quantity that was measured over time, held from each sample to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapipe_env.ground.arrays import FloatArray

LEAST_S = 2.0
"""Shortest trace [s]: one second to look back on, and something to play."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A quantity measured over time. Each sample holds until the next one, the last one to the end.

    Attributes:
        name: Name of the file; for a part of it with its number, ``sa.csv.gz#3``.
        seconds: Times of the samples from the first one on (T,), strictly ascending from 0 [s].
        values: The samples (T,), finite, in ``unit``.
        unit: ``"dBm"`` for received power, ``"bit/s"`` for rates.
        duration_s: Time from the first sample to the end of the last one [s].
        held: Rows of the file without a value, for which the value before holds.
    """

    name: str
    seconds: FloatArray
    values: FloatArray
    unit: str
    duration_s: float
    held: int = 0

    @property
    def mean(self) -> float:
        """Mean over time, in ``unit``."""
        return float(np.dot(self.lengths, self.values) / self.duration_s)

    @property
    def lengths(self) -> FloatArray:
        """Seconds for which each sample holds (T,)."""
        return np.diff(self.seconds, append=self.duration_s)

    def every_second(self) -> FloatArray:
        """Values at 0, 1, 2, ... seconds, in ``unit``."""
        times = np.arange(int(np.ceil(self.duration_s)))
        return self.values[np.searchsorted(self.seconds, times, side="right") - 1]
