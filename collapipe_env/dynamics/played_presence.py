"""Presence from a file: devices come and go as the clients of an availability file did."""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.arrays import Array, Constant, at_least, namespace
from collapipe_env.dynamics.availability_bank import clients_of
from collapipe_env.dynamics.presence import NUMBERS, SHORTEST_S, Presence, PresenceSpec
from collapipe_env.dynamics.process import Carried
from collapipe_env.dynamics.system import System
from collapipe_env.errors import StateError
from collapipe_env.scenario import Scenario
from collapipe_env.state_trees import REMEDY, require_within

SLACK_S = 1e-3
"""Seconds by which a state's times of a client may differ from the file."""


class PlayedPresence(Presence):
    """Devices that are on and off as the clients of a file were ([X]); otherwise as :class:`Presence`.

    In each episode every device has a client of its own, and starts at a uniform time of the client's period.
    The end of a stay is announced with probability ``graceful``, drawn when the stay begins; otherwise the
    device fails when the client leaves.

    It carries ``client`` (R, N, K), the index of each device's client, and ``position_s`` (R, N, K), the time
    in its period [s], instead of ``factor``; schedulers never receive them.

    Args:
        scenario: The scenario.
        spec: The file, and how stays end.
    """

    hidden = ("residual_s", "graceful", "client", "position_s")

    def __init__(self, scenario: Scenario, spec: PresenceSpec) -> None:
        super().__init__(scenario, spec)
        there = self._there.values.reshape(-1)
        devices = int(there.sum())
        self.bank = clients_of(
            spec.availability,
            spec.availability_split,
            spec.availability_checksum,
            devices,
            spec.share_clients,
        )
        self._slots = min(devices, len(self.bank))
        # Slots without a device get the first device's client, and are away.
        slots = (np.cumsum(there) - 1).clip(0) % self._slots
        self._slot = Constant(np.where(there, slots, 0))

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - the interface
        """Choose a client and a time for each device."""
        xp = namespace(u)
        each = xp.reshape(u, (u.shape[0], -1, NUMBERS))
        drawn = distinct(len(self.bank), each[:, : self._slots, 0], each[:, : self._slots, 1])
        client = xp.reshape(
            xp.take(drawn, self._slot.like(u, xp.int64), axis=-1), (u.shape[0], *self._devices)
        )
        start, end = (xp.reshape(each[..., i], (u.shape[0], *self._devices)) for i in (2, 3))
        position = start * self.bank.periods(client, u)
        return self._played(client, position, end < self.spec.graceful, xp.zeros_like(start))

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Array) -> Carried:  # noqa: ARG002
        """Advance by the seconds that passed."""
        xp, client = namespace(u), carried["client"]
        seconds = xp.astype(delta_s, xp.float64)[:, None, None]
        period = self.bank.periods(client, u)
        position = carried["position_s"] + seconds
        position = at_least(position - period * xp.floor(position / period), 0.0)
        end = xp.reshape(u, (u.shape[0], *self._devices, NUMBERS))[..., 3]
        _, _, since = self.bank.at(client, position)
        # A stay that began within these seconds is new, so its end is drawn anew.
        graceful = xp.where(since < seconds, end < self.spec.graceful, carried["graceful"])
        return self._played(client, position, graceful, xp.minimum(carried["since_s"] + seconds, since))

    def _played(self, client: Array, position: Array, graceful: Array, since: Array) -> Carried:
        xp = namespace(position)
        on, left, _ = self.bank.at(client, position)
        present = on & self._there.like(position, xp.bool)
        return self._carried(
            present, at_least(left, SHORTEST_S), graceful, since, client=client, position_s=position
        )

    def _check_own(self, carried: Carried, place: str) -> None:
        """Refuse clients that do not exist, times beyond their periods, and contradictions of the file."""
        client, position = carried["client"], carried["position_s"]
        require_within(client, 0, len(self.bank) - 1, f"{place}/client")
        if ((position < 0.0) | (position > self.bank.periods(client, position))).any():
            raise StateError(f"{place}/position_s lies outside of its client's period: {REMEDY}")
        on, left, _ = self.bank.at(client, position)
        for name, wrong in (
            ("present", carried["present"] != (on & self._there.values)),
            ("residual_s", np.abs(carried["residual_s"] - left) > SLACK_S),
        ):
            if wrong.any():
                raise StateError(f"{place}/{name} does not agree with the file of availability: {REMEDY}")


def distinct(count: int, u: Array, order: Array) -> Array:
    """Distinct numbers from 0 to ``count - 1``, all rows equally likely (R, S), int64.

    Floyd's sampling, then a shuffle: it takes two uniform numbers for each drawn number, whatever the count.

    Args:
        count: Size of the range to draw from, at least ``S``.
        u: Uniform numbers in (0, 1) (R, S), float64.
        order: Further uniform numbers, which shuffle the drawn ones (R, S).
    """
    xp, S = namespace(u), u.shape[1]
    chosen: list[Array] = []
    for i in range(S):
        highest = count - S + i
        draw = xp.clip(xp.astype(xp.floor((highest + 1) * u[:, i]), xp.int64), 0, highest)
        if chosen:
            taken = xp.any(xp.stack(chosen, axis=-1) == draw[:, None], axis=-1)
            draw = xp.where(taken, xp.full_like(draw, highest), draw)
        chosen.append(draw)
    return xp.take_along_axis(xp.stack(chosen, axis=-1), xp.argsort(order, axis=-1), axis=-1)
