"""Traces like measured ones: two processes in dB with the moments of a data set, without its data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.backends import NUMPY
from collapipe_env.simulator.randomness import normal
from collapipe_env.trace_files.trace import Trace
from collapipe_env.trace_files.trace_formats import Quantity

SECONDS = 1800
"""Length of a made trace [s]."""
FEWEST = 60
"""Smallest number of traces made; 36 of them are for training."""


class Profile(NamedTuple):
    """Moments of a kind of traces, in dBm or 10 log10 of Mbit/s.

    Attributes:
        quantity: Received power in dBm, or rates in 10 log10 of Mbit/s.
        mean_db: Mean.
        between_db: Standard deviation of traces' means [dB].
        within_db: Standard deviation within a trace [dB].
        weights: Shares of the two processes in the variance within a trace, together 1.
        times_s: Their time constants [s].
        lowest_db: Smallest measured value; smaller values are clipped to it.
        highest_db: Largest measured value; larger values are clipped to it.
    """

    quantity: Quantity
    mean_db: float
    between_db: float
    within_db: float
    weights: tuple[float, float]
    times_s: tuple[float, float]
    lowest_db: float
    highest_db: float


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "driving": Profile(
            "rsrp", -85.9, 6.5, 11.98, (0.0488, 0.9512), (3.69, 102.24), lowest_db=-116.0, highest_db=-49.0
        ),
        "static": Profile(
            "rsrp", -99.9, 2.73, 1.24, (0.4148, 0.5852), (2.471, 144.164), lowest_db=-108.0, highest_db=-93.0
        ),
        "driving-rate": Profile(
            "rate", 7.6, 3.22, 8.65, (0.8288, 0.1712), (1.965, 40.893), lowest_db=-10.0, highest_db=27.3
        ),
        "static-rate": Profile(
            "rate", 12.7, 2.2, 9.81, (0.8005, 0.1995), (1.752, 38.617), lowest_db=-10.0, highest_db=25.2
        ),
        "bus": Profile(
            "rate", 4.8, 1.97, 3.34, (0.3739, 0.6261), (2.204, 64.66), lowest_db=-10.0, highest_db=13.7
        ),
        "subway": Profile(
            "rate", 7.1, 0.61, 4.89, (0.2871, 0.7129), (0.988, 38.617), lowest_db=-10.0, highest_db=15.0
        ),
        "commute-3g": Profile(
            "rate", 0.1, 1.81, 2.05, (0.0772, 0.9228), (0.742, 13.008), lowest_db=-8.3, highest_db=8.7
        ),
    }
)
"""Profiles by name, fitted by ``tools/fit_traces.py``."""


def deviations_db(profile: Profile, count: int, seconds: int) -> FloatArray:
    """Deviations of synthetic traces from their own means, every second (count, seconds) [dB].

    ``x(t) = s sum_j sqrt(w_j) y_j(t)`` with ``y_j(t + 1) = a_j y_j(t) + sqrt(1 - a_j^2) n``, ``a_j =
    exp(-1 / t_j)``, in the stationary law: the exact law of two Ornstein-Uhlenbeck processes every second.

    The number of traces does not change the first ones.
    """
    kinds = len(profile.weights)
    drawn = _normal(1, count, kinds * (seconds + seconds % 2)).reshape(count, kinds, -1)
    stay = np.exp(-1.0 / np.array(profile.times_s))
    fresh = np.sqrt(-np.expm1(-2.0 / np.array(profile.times_s)))
    found = np.empty((count, seconds))
    state = drawn[..., 0]
    scale = profile.within_db * np.sqrt(np.array(profile.weights))
    for second in range(seconds):
        if second:
            state = stay * state + fresh * drawn[..., second]
        found[:, second] = (scale * state).sum(axis=-1)
    return found


@lru_cache(maxsize=8)
def made_traces(name: str, count: int = FEWEST) -> tuple[Trace, ...]:
    """Make traces of a profile, which are always the same; their number does not change the first ones."""
    profile = PROFILES[name]
    mean = profile.mean_db + profile.between_db * _normal(0, count, 2)[:, :1]
    values = np.clip(mean + deviations_db(profile, count, SECONDS), profile.lowest_db, profile.highest_db)
    power = profile.quantity == "rsrp"
    values = values if power else 1e6 * 10.0 ** (values / 10.0)
    times, unit = np.arange(SECONDS, dtype=np.float64), "dBm" if power else "bit/s"
    return tuple(Trace(f"{name}-{i}", times, row, unit, float(SECONDS)) for i, row in enumerate(values))


def _normal(stream: int, count: int, numbers: int) -> FloatArray:
    """Standard normal numbers of each trace (count, numbers), hashes of its number."""
    # Hashed, because neighbouring seeds would give the same numbers, shifted by one place.
    words = (hashlib.sha256(f"trace-like/{number}".encode()).digest()[:8] for number in range(count))
    seeds = np.array([int.from_bytes(word, "little") for word in words], dtype=np.uint64)
    rounds = np.full(count, stream, dtype=np.int64)
    found: FloatArray = normal(NUMPY.uniform(seeds, rounds, numbers))
    return found
