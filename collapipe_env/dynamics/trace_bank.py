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
    """

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.names = tuple(trace.name for trace in traces)
        self.lengths_s = np.array([trace.duration_s for trace in traces])
        self.means = np.array([trace.mean for trace in traces])
        self.greatest = np.array([trace.values.max() for trace in traces])
        sizes = np.array([len(trace.values) for trace in traces])
        # One clock for all, with a second between two traces, so that one search finds the samples of all.
        begins = np.cumsum(self.lengths_s + 1.0) - (self.lengths_s + 1.0)
        around = [trace.values - mean for trace, mean in zip(traces, self.means, strict=True)]
        parts = [np.cumsum(one * t.lengths) - one * t.lengths for one, t in zip(around, traces, strict=True)]
        self._begins, self._lengths = Constant(begins), Constant(self.lengths_s)
        self._means = Constant(self.means)
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

    def lengths(self, trace: Array, like: Array) -> Array:
        """Durations of traces [s], of the shape of their indices.

        Args:
            trace: Indices of traces, any shape, int64.
            like: An array of the requested library and type.
        """
        return self._lengths.like(like)[trace]

    def whole_means(self, trace: Array, like: Array) -> Array:
        """Means of whole traces in their unit, of the shape of their indices.

        Args:
            trace: Indices of traces, any shape, int64.
            like: An array of the requested library and type.
        """
        return self._means.like(like)[trace]

    def window_means(self, trace: Array, begin_s: Array, seconds: float) -> Array:
        """Means over windows of played traces, in their unit.

        Args:
            trace: Indices of traces, any shape, int64.
            begin_s: Starts of the windows, of that shape, in play time, which continues beyond a trace's end,
                >= 0, float64 [s].
            seconds: Length of the windows, > 0 [s].
        """
        xp = namespace(begin_s)
        return self.means_between(trace, xp.stack((begin_s, begin_s + seconds), axis=-1))[..., 0]

    def means_between(self, trace: Array, times_s: Array) -> Array:
        """Means of played traces from each of some times to the next one, in their unit.

        Args:
            trace: Indices of traces, any shape (...), int64.
            times_s: Ascending play times (..., T), >= 0, float64 [s].

        Returns:
            (..., T - 1).
        """
        each = trace[..., None]
        played = self._played(each, times_s)
        seconds = times_s[..., 1:] - times_s[..., :-1]
        return self._means.like(times_s)[each] + (played[..., 1:] - played[..., :-1]) / seconds

    def _played(self, trace: Array, time_s: Array) -> Array:
        """Integral (..., T) from the start of play, of the values around their mean; traces (..., 1)."""
        xp = namespace(time_s)
        length, whole = self._lengths.like(time_s)[trace], self._whole.like(time_s)[trace]
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
