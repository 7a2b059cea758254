"""Bank of traces: means over windows of many traces at once, on any array library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, namespace
from collapipe_env.trace_files.trace import Trace


class TraceBank:
    """Traces that are played forwards and backwards by turns, so that there are no jumps.

    A sample holds until the next one, so a trace's integral is linear between samples, and the mean over any
    window is exact. Numbers are stored relative to each trace's mean, so a constant trace is exact.

    Args:
        traces: One or more, of one unit.

    Attributes:
        lengths_s: Durations of the traces [s].
        means: Means of whole traces in their unit.
        greatest: Greatest values of the traces in their unit.
    """

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.names = tuple(trace.name for trace in traces)
        lengths, means = np.array([(t.duration_s, t.mean) for t in traces]).T
        self.lengths_s, self.means = Constant(lengths), Constant(means)
        self.greatest = np.array([trace.values.max() for trace in traces])
        sizes = np.array([len(trace.values) for trace in traces])
        # One clock for all, with a second between two traces, so that one search finds the samples of all.
        begins = np.cumsum(lengths + 1.0) - (lengths + 1.0)
        around = [trace.values - mean for trace, mean in zip(traces, means, strict=True)]
        parts = [np.cumsum(one * t.lengths) - one * t.lengths for one, t in zip(around, traces, strict=True)]
        self._begins = Constant(begins)
        self._starts = Constant(np.concatenate([b + t.seconds for b, t in zip(begins, traces, strict=True)]))
        self._seconds = Constant(np.concatenate([trace.seconds for trace in traces]))
        self._values, self._sums = Constant(np.concatenate(around)), Constant(np.concatenate(parts))
        self._whole = Constant(
            np.array([p[-1] + o[-1] * t.lengths[-1] for p, o, t in zip(parts, around, traces, strict=True)])
        )
        self._first = Constant(np.cumsum(sizes) - sizes)
        self._last = Constant(np.cumsum(sizes) - 1)

    def __len__(self) -> int:
        return len(self.names)

    def means_between(self, trace: Array, times_s: Array) -> Array:
        """Means of played traces from each of some times to the next one, in their unit.

        Args:
            trace: Indices of traces, any shape (...), int64.
            times_s: Ascending play times (..., T), which continue beyond a trace's end, >= 0, float64 [s].

        Returns:
            (..., T - 1).
        """
        each = trace[..., None]
        played = self._played(each, times_s)
        seconds = times_s[..., 1:] - times_s[..., :-1]
        return self.means.like(times_s)[each] + (played[..., 1:] - played[..., :-1]) / seconds

    def _played(self, trace: Array, time_s: Array) -> Array:
        """Integral (..., T) from the start of play, of the values around their mean; traces (..., 1)."""
        xp = namespace(time_s)
        length, whole = self.lengths_s.like(time_s)[trace], self._whole.like(time_s)[trace]
        turns = xp.floor(time_s / (2.0 * length))
        here = time_s - 2.0 * length * turns
        back = here > length
        part = self._integral(trace, xp.where(back, 2.0 * length - here, here))
        return 2.0 * turns * whole + xp.where(back, 2.0 * whole - part, part)

    def _integral(self, trace: Array, time_s: Array) -> Array:
        """Integral (..., T) over a trace from its start to times within it; traces (..., 1)."""
        xp = namespace(time_s)
        starts = self._starts.like(time_s)
        at = xp.reshape(self._begins.like(time_s)[trace] + time_s, (-1,))
        place = xp.reshape(xp.searchsorted(starts, at, side="right"), time_s.shape) - 1
        first = self._first.like(time_s, xp.int64)[trace]
        last = self._last.like(time_s, xp.int64)[trace]
        # Rounding may put a time outside its trace.
        place = xp.maximum(first, xp.minimum(last, xp.astype(place, xp.int64)))
        since = time_s - self._seconds.like(time_s)[place]
        return self._sums.like(time_s)[place] + self._values.like(time_s)[place] * since
