"""Trace: a quantity that was measured over time, held from each sample to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import DataError

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

    Raises:
        DataError: If the samples do not form such a trace.
    """

    name: str
    seconds: FloatArray
    values: FloatArray
    unit: str
    duration_s: float
    held: int = 0

    def __post_init__(self) -> None:
        seconds, values = self.seconds, self.values
        if seconds.shape != values.shape or seconds.ndim != 1:
            raise DataError(
                f"trace {self.name}: times of shape {seconds.shape} and values of shape {values.shape}; give "
                "one of each per sample"
            )
        if len(seconds) < 1 or not self.duration_s >= LEAST_S:
            raise DataError(
                f"trace {self.name}: {len(seconds)} samples over {self.duration_s:g} s are too short; give "
                f"one sample or more over at least {LEAST_S:g} s"
            )
        if not (np.isfinite(seconds).all() and np.isfinite(values).all()):
            raise DataError(f"trace {self.name}: not all times and values are finite; take those samples out")
        if seconds[0] != 0.0 or (np.diff(seconds) <= 0.0).any() or not self.duration_s > seconds[-1]:
            raise DataError(
                f"trace {self.name}: times do not ascend from 0 to below {self.duration_s:g} s; sort them"
            )

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
