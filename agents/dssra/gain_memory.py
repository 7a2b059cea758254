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
        """
        ...


class RowRounds:
    """The rounds at which the rows of a batch were seen last.

    A row is one environment: a batch of another size, or a row that goes back in time, begins anew.
    """

    def __init__(self) -> None:
        self._last: IntArray = np.zeros(0, dtype=np.int64)

    def reset(self) -> None:
        """Forget all rounds."""
        self._last = np.zeros(0, dtype=np.int64)

    def seen(self, state: SystemState) -> tuple[BoolArray, BoolArray]:
        """Rows that begin an episode, and rows whose round has not been seen yet (E,), bool."""
        now = np.asarray(state.round_index)
        if self._last.shape != now.shape:
            self._last = now + 1
        first = (now == 0) | (now < self._last)
        new = first | (now > self._last)
        self._last = now.copy()
        return first, new


class ShrunkGains:
    """Draws every gain, in decibels, towards the mean of those that the same link has shown so far.

    ``estimate = mean + weight (seen - mean)``, with the mean over the rounds of the episode up to this one:
    it equals the seen gain in the first round, and the mean with weight 0. The mean of decibels lies below
    the decibels of the mean gain, by 0.5 dB with four Nakagami branches. Gains of 0 stay as they are.

    Args:
        weight: Weight of what is seen, in [0, 1]; with 1 states are returned as they are.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self._rounds = RowRounds()
        self._sum: FloatArray = np.zeros((0, 0))  # of logarithms (E, N + N (K+1)^2)
        self._count: FloatArray = np.zeros(0)

    def reset(self) -> None:
        """Forget all means."""
        self._rounds.reset()

    def update(self, state: SystemState) -> SystemState:
        """Return the state with shrunk gains; see :class:`GainFilter`.

        A second call in the same round with the same state changes nothing.

        Args:
            state: The system as it is seen (E, ...).
        """
        if self.weight == 1.0:
            return state
        first, new = self._rounds.seen(state)
        uplink, hops = np.asarray(state.uplink_gain), np.asarray(state.d2d_gain)
        gain = np.concatenate((uplink, hops.reshape(len(uplink), -1)), axis=-1)
        some = gain > 0.0
        level = np.log(np.where(some, gain, 1.0))
        if first.all():
            self._sum, self._count = np.zeros_like(level), np.zeros(len(level))
        self._sum = np.where(first[:, None], 0.0, self._sum) + np.where(new[:, None], level, 0.0)
        self._count = np.where(first, 0.0, self._count) + new
        mean = self._sum / self._count[:, None]
        shrunk = np.where(some, np.exp(mean + self.weight * (level - mean)), gain)
        uplinks = uplink.shape[1]
        return replace(
            state, uplink_gain=shrunk[:, :uplinks], d2d_gain=shrunk[:, uplinks:].reshape(hops.shape)
        )
