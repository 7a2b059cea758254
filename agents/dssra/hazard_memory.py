"""Hazards that a scheduler remembers: each device's chance of leaving, from the length of its stay ([X]).

Devices belong to hidden classes (`docs/churn.md`). The scheduler sees how long each device has stayed, and
how often it has left. With a constant hazard ``h`` in each class, ``m`` ends of stays in ``s`` seconds have
the likelihood ``h^m exp(-h s)``. The estimate is the posterior mean of the hazard; all classes are equally
likely beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from collapipe_env.dynamics.presence import PRESENCE, PresenceSpec
from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import usual_round
from collapipe_env.simulator.state import SystemState

from .gain_memory import RowRounds

RISK = "risk"
"""Name under which the probability of failure is added to the arrays of ``presence``."""


def failure_risk(scenario: Scenario) -> FailureRisk | None:
    """Estimates of failures in a scenario; ``None`` where devices neither come nor go."""
    spec: PresenceSpec | None = dict(scenario.dynamics.processes).get(PRESENCE)
    return None if spec is None else FailureRisk(spec, usual_round(scenario))


class FailureRisk:
    """Adds each device's probability of failing in a usual round to the states of an episode.

    Under ``time_base: real`` longer rounds, such as those of many local steps, fail more often than it says.

    Args:
        spec: Laws and classes of the process ``presence``.
        round_s: Length of a usual round [s].

    Attributes:
        spec: These laws.
    """

    def __init__(self, spec: PresenceSpec, round_s: float) -> None:
        # The part of departures that come unannounced.
        self.spec, self._failing, self._round_s = spec, 1.0 - spec.graceful, round_s
        self._hazards = HazardMemory(spec)

    def reset(self) -> None:
        """Forget the stays of earlier rounds."""
        self._hazards.reset()

    def added(self, state: SystemState) -> SystemState:
        """The state with the probabilities (E, N, K) as :data:`RISK` in the arrays of ``presence``.

        Args:
            state: The system as it is seen (E, ...).
        """
        shown = state.processes[PRESENCE]
        risk = -np.expm1(-self._failing * self._round_s * self._hazards.update(state))
        # Devices that have announced their departure stay until the round ends.
        risk = np.where(np.asarray(shown["announced"], dtype=np.bool_), 0.0, risk)
        return replace(state, processes={**state.processes, PRESENCE: {**shown, RISK: risk}})


class HazardMemory:
    """Estimates the hazard of each device from the episode so far.

    Args:
        spec: Laws and classes of the process ``presence``.
    """

    def __init__(self, spec: PresenceSpec) -> None:
        self._hazards = np.asarray(spec.hazard_factors) / spec.on_mean_s
        self._rounds = RowRounds()
        self._ends: FloatArray = np.zeros(0)
        self._seconds: FloatArray = np.zeros(0)
        self._present: BoolArray = np.zeros(0, dtype=np.bool_)
        self._since: FloatArray = np.zeros(0)

    def reset(self) -> None:
        """Forget everything."""
        self._rounds.reset()

    def update(self, state: SystemState) -> FloatArray:
        """Record a round and return the hazards (E, N, K) [1/s].

        A second call in the same round changes nothing.

        Args:
            state: The system as it is seen (E, ...), with the process ``presence``.
        """
        shown: Mapping[str, FloatArray] = state.processes[PRESENCE]
        present, since = np.asarray(state.present), np.asarray(shown["since_s"], dtype=np.float64)
        first, new = self._rounds.seen(state)
        if first.all():
            self._ends, self._seconds = np.zeros(present.shape), np.zeros(present.shape)
            self._present, self._since = present, since
        old, begun = self._present & ~first[:, None, None], first[:, None, None]
        # A device that left and came back between two rounds has ended one stay and begun another.
        ended = old & (~present | (since < self._since)) & new[:, None, None]
        self._ends = np.where(begun, 0.0, self._ends) + ended
        self._seconds = np.where(begun, 0.0, self._seconds) + np.where(ended, self._since, 0.0)
        self._present, self._since = present, since
        return self._estimate(np.where(present, since, 0.0))

    def _estimate(self, running: FloatArray) -> FloatArray:
        """Mean hazard of the classes, given ends, seconds of ended stays and seconds of the running stay."""
        h = self._hazards
        seconds = (self._seconds + running)[..., None]
        logarithm = self._ends[..., None] * np.log(h) - h * seconds
        weight = np.exp(logarithm - logarithm.max(axis=-1, keepdims=True))
        estimate: FloatArray = (weight * h).sum(axis=-1) / weight.sum(axis=-1)
        return estimate
