"""Bank of clients' availability: presence at a time and the next change, on any array library."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from collapipe_env.arrays import Array, BoolArray, Constant, FloatArray, namespace
from collapipe_env.errors import DataError, ScenarioError, shown
from collapipe_env.trace_files.availability_files import (
    Availability,
    availability_checksum,
    availability_file,
    read_availability,
    require_same_file,
)
from collapipe_env.trace_files.trace_sources import Part, split

NEVER_S = 1e12
"""Time to the next change of a client who is always or never available [s]."""


class AvailabilityBank:
    """Clients who are available from the start of each window to its end, again in every period.

    Windows that touch count as one, even across the end of the period; empty windows are ignored.

    Args:
        clients: One or more.
    """

    def __init__(self, clients: Sequence[Availability]) -> None:
        self.names = tuple(client.client for client in clients)
        changes = [_changes(client) for client in clients]
        sizes = np.array([len(times) for times, _ in changes])
        # Enough halvings to find a place among the changes of any client.
        self._halvings = int(sizes.max()).bit_length()
        self._times = Constant(np.concatenate([times for times, _ in changes]))
        self._on = Constant(np.concatenate([on for _, on in changes]))
        self._first = Constant(np.cumsum(sizes) - sizes)
        self._last = Constant(np.cumsum(sizes) - 1)
        self._periods = Constant(np.array([client.period_s for client in clients]))

    def __len__(self) -> int:
        return len(self.names)

    def periods(self, client: Array, like: Array) -> Array:
        """Periods of clients [s], of the shape of their indices.

        Args:
            client: Indices of clients, any shape, int64.
            like: A float64 array of the requested library and device.
        """
        return self._periods.like(like)[client]

    def at(self, client: Array, position_s: Array) -> tuple[Array, Array, Array]:
        """Whether clients are available at given times, and the times since the last and to the next change.

        Args:
            client: Indices of clients, any shape, int64.
            position_s: Times of that shape, from 0 to the client's period, float64 [s].

        Returns:
            Arrays of that shape: availability, bool; the time to the next change, and the time since the last
                one [s], both :data:`NEVER_S` where nothing ever changes.
        """
        xp = namespace(position_s)
        times, on = self._times.like(position_s), self._on.like(position_s, xp.bool)
        first = self._first.like(position_s, xp.int64)[client]
        last = self._last.like(position_s, xp.int64)[client]
        period = self._periods.like(position_s)[client]
        # The last change up to now, or the place before the first one if this period has none yet. A binary
        # search covers only the client's own changes: on one clock for all clients, as in banks of traces,
        # the times of very many clients would lose digits.
        low, high = first - 1, last + 1
        for _ in range(self._halvings):
            middle = (low + high) // 2
            past = times[xp.maximum(middle, first)] <= position_s
            past = past | (middle < first)
            low, high = xp.where(past, middle, low), xp.where(past, high, middle)
        before, behind = low < first, low >= last
        here, following = xp.where(before, last, low), xp.where(behind, first, low + 1)
        nothing = xp.zeros_like(period)
        since = position_s - times[here] + xp.where(before, period, nothing)
        left = times[following] - position_s + xp.where(behind, period, nothing)
        never = xp.full_like(period, NEVER_S)
        changing = last > first
        return on[here], xp.where(changing, left, never), xp.where(changing, since, never)


def _changes(client: Availability) -> tuple[FloatArray, BoolArray]:
    """Times in [0, period) at which a client comes or goes, ascending, and its availability after each.

    A client who never comes or goes has only the time 0.
    """
    real = client.end_s > client.begin_s
    begin, end = client.begin_s[real], client.end_s[real]
    if not len(begin):
        return np.zeros(1), np.zeros(1, dtype=np.bool_)
    gap = begin[1:] > end[:-1]
    begin, end = begin[np.append(True, gap)], end[np.append(gap, True)]
    if begin[0] == 0.0 and end[-1] == client.period_s:
        begin, end = begin[1:], end[:-1]
        if not len(begin):
            return np.zeros(1), np.ones(1, dtype=np.bool_)
    # An end at the end of the period is an end at 0 of the next one.
    times = np.append(begin, np.mod(end, client.period_s))
    order = np.argsort(times, kind="stable")
    return times[order], (np.arange(len(times)) < len(begin))[order]


def clients_of(source: str, part: Part, digits: str, devices: int, share: bool) -> AvailabilityBank:
    """Clients that a scenario plays.

    Args:
        source: The file.
        part: Part of the split, which divides the file's clients by their index.
        digits: Checksum of the file.
        devices: Devices that the scenario has.
        share: Whether several devices may have the same client.

    Raises:
        DataError: If the file is missing, has another checksum, or is malformed.
        ScenarioError: If it has fewer clients than devices.
    """
    path = availability_file(source)
    require_same_file(source, digits)
    bank = _read(path, part, availability_checksum(source))
    if len(bank) < devices and not share:
        raise ScenarioError(
            f"dynamics.processes.presence: {len(bank)} clients in the part {part!r} of {shown(source)} for "
            f"{devices} devices, each of which plays one of its own: give a file with more clients, or set "
            "share_clients: true"
        )
    return bank


@lru_cache(maxsize=4)
def _read(path: Path, part: Part, digits: str) -> AvailabilityBank:  # noqa: ARG001
    """Clients of a file with a checksum; a file with another checksum is read again."""
    every = read_availability(path)
    chosen = split(every, part)
    if not chosen:
        raise DataError(
            f"{path}: the part {part!r} holds none of its {len(every)} clients: choose "
            "availability_split: all, or give a file with more clients"
        )
    return AvailabilityBank(chosen)
