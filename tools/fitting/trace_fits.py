"""Fits of traces: mean, deviations and autocorrelation, and a sum of two processes in dB that has them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import DataError
from collapipe_env.trace_files.trace import Trace

LAGS_S = (1, 10, 60)
"""Lags of the autocorrelations that are fitted [s]."""
LEAST_RATE = 1e5
"""Least rate in a logarithm, as which smaller ones count [bit/s]."""
_TIMES_S = np.geomspace(0.1, 3000.0, 181)
"""Time constants among which a mixture chooses [s]."""


class Moments(NamedTuple):
    """Moments of traces in dB: RSRP in dBm, rates in 10 log10 of Mbit/s.

    Attributes:
        files: Number of traces.
        seconds: Number of one-second samples of all traces together.
        mean_db: Mean over all seconds.
        between_db: Standard deviation of the traces' means.
        within_db: Standard deviation around a trace's own mean.
        correlation: Autocorrelation around a trace's own mean, by lag [s].
    """

    files: int
    seconds: int
    mean_db: float
    between_db: float
    within_db: float
    correlation: Mapping[int, float]


class Mixture(NamedTuple):
    """Sum of two Ornstein-Uhlenbeck processes of unit variance together, ``rho(s) = sum_j w_j e^(-s/t_j)``.

    Attributes:
        weights: Shares of the variance ``w_j``, together 1.
        times_s: Time constants ``t_j``, ascending [s].
    """

    weights: tuple[float, float]
    times_s: tuple[float, float]

    def correlation(self, lag_s: float) -> float:
        """Autocorrelation at a lag [s]."""
        return sum(w * math.exp(-lag_s / t) for w, t in zip(self.weights, self.times_s, strict=True))


def decibels(trace: Trace) -> FloatArray:
    """Values of a trace every second in dB: dBm as they are, rates in 10 log10 of Mbit/s, at least -10 dB."""
    values = trace.every_second()
    if trace.unit == "dBm":
        return values
    return 10.0 * np.log10(np.maximum(values, LEAST_RATE) / 1e6)


def moments(traces: Iterable[Trace]) -> Moments:
    """Moments of traces, each trace weighted by its length.

    Autocorrelations around a trace's own mean are biased downwards by about twice its correlation time over
    its length; traces no longer than a lag do not count for it.

    Args:
        traces: One or more, of one unit.

    Raises:
        DataError: If no trace is longer than the longest lag, or none varies.
    """
    series = [decibels(trace) for trace in traces]
    longest = max(map(len, series), default=0)
    if longest <= LAGS_S[-1]:
        raise DataError(f"the longest trace has {longest} s: fits need more than {LAGS_S[-1]} s")
    lengths = np.array([len(one) for one in series])
    means = np.array([one.mean() for one in series])
    around = [one - mean for one, mean in zip(series, means, strict=True)]
    powers = np.array([np.mean(one * one) for one in around])
    if not powers.any():
        raise DataError("no trace varies: a constant needs no fit")
    # A trace's own deviation and correlation, weighted by its length, as in the tables of its source.
    deviation = float(np.average(np.sqrt(powers), weights=lengths))
    correlation = {}
    for lag in LAGS_S:
        of_lag = [(one, p) for one, p in zip(around, powers, strict=True) if len(one) > lag and p > 0.0]
        each = [float(np.mean(one[lag:] * one[:-lag]) / p) for one, p in of_lag]
        correlation[lag] = float(np.average(each, weights=[len(one) for one, _ in of_lag]))
    mean = float(np.average(means, weights=lengths))
    return Moments(len(series), int(lengths.sum()), mean, float(means.std()), deviation, correlation)


def fitted_mixture(correlation: Mapping[int, float]) -> Mixture:
    """Mixture whose autocorrelation is nearest to the given one, by least squares over time constants.

    Args:
        correlation: Autocorrelations by lag [s]. Negative ones, which short traces show, count as 0.
    """
    lags = np.array(list(correlation), dtype=np.float64)
    wanted = np.maximum(np.array(list(correlation.values())), 0.0)
    shapes = np.exp(-lags / _TIMES_S[:, None])
    first, second = np.triu_indices(len(_TIMES_S), 1)
    a, b = shapes[first], shapes[second]
    # The best w in [0, 1] of w a + (1 - w) b.
    apart = a - b
    weight = np.clip(np.sum((wanted - b) * apart, axis=1) / np.sum(apart * apart, axis=1), 0.0, 1.0)
    error = np.sum((weight[:, None] * apart + b - wanted) ** 2, axis=1)
    best = int(error.argmin())
    w = round(float(weight[best]), 4)
    times = (float(_TIMES_S[first[best]]), float(_TIMES_S[second[best]]))
    return Mixture((w, round(1.0 - w, 4)), (round(times[0], 3), round(times[1], 3)))
