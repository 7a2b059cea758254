"""Filter for known gains: a Kalman filter in dB per link, which removes noise and delay from measurements.

A gain in dB is the sum of a long-term mean and fading: ``x = mu + f``. The mean drifts as a random walk.
Fading is an AR(1) process with the deviation and correlation of the scenario's branches. A measurement of the
gain ``d`` rounds ago adds an error ``e``, also an AR(1) process. The filter tracks ``(mu, f, e)`` of every
link, and its estimate is ``mu + a^d f``. Fading of unit mean power has a mean below 0 in dB, which ``mu``
includes: a mean learned from measurements needs no correction; to a known mean gain it is added.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from collapipe_env.dynamics.channel_knowledge import ChannelKnowledgeSpec
from collapipe_env.dynamics.mobility import MobilitySpec
from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.kernels.channels import split_links
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import usual_round
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import MOBILITY, joined_links

LEAST_GAIN = 1e-90
"""Smallest gain before a logarithm; smaller gains are raised to it."""
DB = 10.0 / math.log(10.0)
"""Decibels of a natural logarithm of 1."""
UNKNOWN_DB = 100.0
"""Standard deviation of an unknown mean [dB]."""
WALKING_DB = 4.2
"""Root mean square change of a hop's path gain in 10 s where devices walk [dB] that the filter allows for. A
deviation of 10.1 dB and a correlation of .93, those of ``medium`` (`docs/mobility.md`), make 3.8."""


def fading_mean_db(diversity: int) -> float:
    """Mean in dB of fading of unit mean power: ``10 log10 e (psi(m) - ln m)`` [dB], below 0.

    Args:
        diversity: Branches ``m``, >= 1.
    """
    digamma = -np.euler_gamma + sum(1.0 / k for k in range(1, diversity))
    return DB * float(digamma - math.log(diversity))


def fading_deviation_db(diversity: int) -> float:
    """Standard deviation in dB of fading: ``10 log10 e sqrt(psi_1(m))`` [dB].

    Args:
        diversity: Branches ``m``, >= 1.
    """
    trigamma = math.pi**2 / 6.0 - sum(1.0 / k**2 for k in range(1, diversity))
    return DB * math.sqrt(trigamma)


def usual_drifts_db(scenario: Scenario) -> tuple[float, float]:
    """Steps of the long-term means of uplinks and of hops in a round [dB], as standard deviations ([X]).

    0 where devices stand still. Where they walk, time-varying shadowing changes uplinks, and distances change
    hops.
    """
    walk = dict(scenario.dynamics.processes).get(MOBILITY)
    if walk is None:
        return 0.0, 0.0
    assert isinstance(walk, MobilitySpec)
    seconds = usual_round(scenario)
    lost = -math.expm1(-seconds / walk.environment_time_s)
    return walk.environment_sd_db * math.sqrt(2.0 * lost), WALKING_DB * math.sqrt(seconds / 10.0)


class LinkFilter:
    """Improves estimates of known gains with one Kalman filter per link ([X]).

    Without noise and delay it returns its input. Call it at least once in every round; repeated calls in a
    round do not count a measurement twice. A row starts afresh in the first round of an episode.

    Args:
        scenario: The scenario; its fading and channel knowledge define the filter's model.
        drift_db: Standard deviation of a round's step of all long-term means [dB], >= 0, whose square is the
            process variance; by default :func:`usual_drifts_db`.
        noise_db: Standard deviation of the measurement errors [dB], >= 0; by default the scenario's.

    Raises:
        SchedulerError: If a deviation is negative or not finite.
    """

    def __init__(
        self, scenario: Scenario, *, drift_db: float | None = None, noise_db: float | None = None
    ) -> None:
        spec = dict(scenario.dynamics.processes).get("channel_knowledge")
        spec = ChannelKnowledgeSpec(modes=("perfect",)) if spec is None else spec
        assert isinstance(spec, ChannelKnowledgeSpec)
        noise_db = spec.error_db if noise_db is None else noise_db
        drifts = usual_drifts_db(scenario) if drift_db is None else (drift_db, drift_db)
        for name, value in (("drift_db", drifts[0]), ("noise_db", noise_db)):
            if not 0.0 <= value < math.inf:
                raise SchedulerError(f"LinkFilter({name} = {value!r}): give a finite number of at least 0")
        self._devices, self._delay = (scenario.clusters, scenario.max_devices), spec.delay
        self._neutral = noise_db == 0.0 and self._delay == 0
        m, averaged = scenario.radio.diversity, "mean" in spec.modes
        self._below_db = 0.0 if averaged else fading_mean_db(m)
        fading_db = 0.0 if averaged else fading_deviation_db(m)
        self._averaged_db = fading_deviation_db(m) if averaged else 0.0
        # Powers of branches of correlation rho have the correlation rho^2, and their decibels nearly so.
        memory = (scenario.radio.fading_correlation**2, spec.noise_correlation)
        self._filters = tuple(_Filter(drift, (fading_db, noise_db), memory) for drift in drifts)
        self._round: IntArray = np.empty(0, dtype=np.int64)

    def reset(self, rows: BoolArray | None = None) -> None:
        """Forget all measurements.

        Args:
            rows: True for the rows to forget (E,); ``None`` for all.
        """
        for one in self._filters:
            one.forget(rows)
        if rows is None:
            self._round = np.empty(0, dtype=np.int64)
        elif len(self._round):
            self._round[rows] = -1

    def update(self, seen: SystemState) -> SystemState:
        """Return the same system with filtered gains.

        Args:
            seen: The system before a round as schedulers see it (E, ...), in NumPy arrays.

        Returns:
            A copy with new ``uplink_gain`` and ``d2d_gain``; ``seen`` itself without noise and delay.
        """
        if self._neutral:
            return seen
        N = self._devices[0]
        known = joined_links(seen.uplink_gain, seen.d2d_gain)
        known = DB * np.log(np.maximum(known.astype(np.float64, copy=False), LEAST_GAIN))
        means = seen.round_index < self._delay
        first = means | (seen.round_index == 0)
        if len(self._round) != len(first):
            self._round = np.full(len(first), -1, dtype=np.int64)
        again = ~first & (seen.round_index == self._round)
        self._round = np.array(seen.round_index)
        known = np.where(means[:, None], known + self._below_db, known)
        parts = zip(self._filters, (known[:, :N], known[:, N:]), strict=True)
        found = [one.estimate(part, (first, means, again), self._delay) for one, part in parts]
        gain = 10.0 ** (np.concatenate(found, axis=-1) / 10.0)
        uplink, d2d = split_links(gain, None, self._devices)
        return replace(seen, uplink_gain=uplink, d2d_gain=d2d)

    def hop_deviation_db(self) -> FloatArray | float:
        """Standard deviation of the hops' gains about their estimates of the last update (E,) [dB].

        It holds the errors of the means, their drift since the measurement, and the fading of the round. It
        is the same for all hops of a system; 0 where gains are measured without noise and delay.
        """
        of_estimate = 0.0 if self._neutral else self._filters[1].deviation(self._delay)
        return np.hypot(of_estimate, self._averaged_db)


class _Filter:
    """Filters of links whose means drift alike; they share covariances, as these depend on no measured value.

    Args:
        drift_db: Standard deviation of a step of the means [dB].
        deviations_db: Standard deviations of fading and of errors [dB].
        memory: Correlations of fading and of errors from round to round.
    """

    def __init__(
        self, drift_db: float, deviations_db: tuple[float, float], memory: tuple[float, float]
    ) -> None:
        self._keeps = np.array((1.0, *memory))
        self._variance = np.array((UNKNOWN_DB, *deviations_db)) ** 2
        self._process = (1.0 - self._keeps**2) * self._variance
        self._process[0] = drift_db**2
        self._values: FloatArray = np.empty((0, 3, 0))
        self._covariance: FloatArray = np.empty((0, 3, 3))

    def forget(self, rows: BoolArray | None) -> None:
        """Forget some rows' measurements (E,), or all."""
        if rows is None:
            self._values = np.empty((0, 3, 0))
        elif len(self._values):
            self._values[rows] = np.nan

    def estimate(
        self, known: FloatArray, rows: tuple[BoolArray, BoolArray, BoolArray], delay: int
    ) -> FloatArray:
        """Estimates of the gains now (E, links) [dB].

        Args:
            known: Measured gains, or means (E, links) [dB].
            rows: Rows that start afresh, rows of ``known`` that are means, and rows whose measurements were
                already used (E,).
            delay: Age of measurements, in rounds.
        """
        first, means, again = rows
        shape = (len(known), 3, known.shape[1])
        if self._values.shape != shape:
            self._values, self._covariance = np.full(shape, np.nan), np.empty((len(known), 3, 3))
        fresh = first | np.isnan(self._values[:, 0, 0])
        self._values[fresh] = 0.0
        self._values[fresh, 0] = known[fresh]
        self._covariance[fresh] = np.diag(self._variance)
        self._covariance[fresh & means, 0, 0] = self._variance[2]
        going = ~fresh & ~again
        self._values[going] *= self._keeps[:, None]
        self._covariance[going] *= self._keeps[:, None] * self._keeps
        self._covariance[going] += np.diag(self._process)
        self._take(~means & ~again, known)
        return np.asarray(self._values[:, 0] + self._keeps[1] ** delay * self._values[:, 1])

    def deviation(self, delay: int) -> FloatArray:
        """Standard deviation of the gains now about the estimates (E,) [dB].

        Args:
            delay: Age of measurements, in rounds.
        """
        kept = self._keeps[1] ** delay
        known = np.array((1.0, kept, 0.0))
        since = delay * self._process[0] + (1.0 - kept**2) * self._variance[1]
        return np.asarray(np.sqrt(self._covariance @ known @ known + since))

    def _take(self, rows: BoolArray, measured: FloatArray) -> None:
        """Update the filters with measurements (E, links) of some rows (E,)."""
        cross = self._covariance[rows].sum(axis=-1)
        share = cross / cross.sum(axis=-1)[:, None]
        surprise = measured[rows] - self._values[rows].sum(axis=1)
        self._values[rows] += share[:, :, None] * surprise[:, None, :]
        self._covariance[rows] -= share[:, :, None] * cross[:, None, :]
