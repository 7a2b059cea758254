"""Gains that a scheduler remembers: a round's gains are shrunk towards the link's past gains ([X]).

Gains that are seen late or with errors vary more than the true ones do, and a plan that trusts them in full
chases errors. :class:`ShrunkGains` is the simplest remedy; a filter that knows how channels move has the same
interface (:class:`GainFilter`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.simulator.state import SystemState


class GainFilter(Protocol):
    """Estimates a round's gains from those seen now and before."""

    def reset(self) -> None:
        """Forget everything."""
        ...

    def update(self, state: SystemState) -> SystemState:
        """Return the state with estimates in place of the gains that are seen.

        The scheduler calls it once or more in each round. Rows of a batch may be at different rounds; a row
        at round 0 begins an episode and remembers nothing.

        Args:
            state: The system as it is seen (E, ...).
        """
        ...


class ShrunkGains:
    """Draws every gain, in decibels, towards the mean of those that the same link has shown so far.

    ``estimate = mean + weight (seen - mean)``, with the mean over the rounds of the episode up to this one:
    it equals the seen gain in the first round, and the mean with weight 0. The mean of decibels lies below
    the decibels of the mean gain, by 0.5 dB with four Nakagami branches.

    Args:
        weight: Weight of what is seen, in [0, 1]; with 1 states are returned as they are.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self._round: IntArray | None = None
        self._uplink, self._hops = _Mean(), _Mean()

    def reset(self) -> None:
        """Forget all means."""
        self._round = None

    def update(self, state: SystemState) -> SystemState:
        """Return the state with shrunk gains; see :class:`GainFilter`.

        A second call in the same round with the same state changes nothing. A row is one environment: a batch
        of another size, or a row that goes back in time, begins anew.

        Args:
            state: The system as it is seen (E, ...).
        """
        if self.weight == 1.0:
            return state
        now = np.asarray(state.round_index)
        first = now == 0
        if self._round is None or self._round.shape != now.shape:
            first, new = np.ones_like(first), np.ones_like(first)
        else:
            first |= now < self._round
            new = first | (now > self._round)
        self._round = now.copy()
        return replace(
            state,
            uplink_gain=self._uplink.shrunk(np.asarray(state.uplink_gain), first, new, self.weight),
            d2d_gain=self._hops.shrunk(np.asarray(state.d2d_gain), first, new, self.weight),
        )


class _Mean:
    """Mean of the logarithms of gains over rounds, row by row; gains of 0 stay as they are."""

    def __init__(self) -> None:
        self._sum: FloatArray = np.zeros(0)
        self._count: FloatArray = np.zeros(0)

    def shrunk(self, gain: FloatArray, first: BoolArray, new: BoolArray, weight: float) -> FloatArray:
        """Record the gains of a round (E, ...) and return them drawn towards the mean.

        Args:
            gain: The gains (E, ...).
            first: Rows that begin an episode (E,), bool.
            new: Rows whose round has not been recorded (E,), bool.
            weight: Weight of the gains.
        """
        some = gain > 0.0
        level = np.log(np.where(some, gain, 1.0))
        if first.all():
            self._sum, self._count = np.zeros_like(level), np.zeros(len(level))
        ends = (slice(None), *(None,) * (level.ndim - 1))
        self._sum = np.where(first[ends], 0.0, self._sum) + np.where(new[ends], level, 0.0)
        self._count = np.where(first, 0.0, self._count) + new
        mean = self._sum / self._count[ends]
        shrunk: FloatArray = np.where(some, np.exp(mean + weight * (level - mean)), gain)
        return shrunk
