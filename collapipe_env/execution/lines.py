"""Lines: links as their senders see them, with one transfer after another and its time."""

from __future__ import annotations

from typing import NamedTuple


class Transfer(NamedTuple):
    """Times of a message on a line [s].

    Attributes:
        start_s: Time at which it begins to leave.
        end_s: Time at which it has left; the line is free then.
        arrives_s: Time at which it arrives.
    """

    start_s: float
    end_s: float
    arrives_s: float


class Line:
    """A link in one direction: first come, first served."""

    def __init__(self) -> None:
        self._free_s = 0.0

    def carry(self, queued_s: float, seconds: float, latency_s: float) -> Transfer:
        """Put a message behind those that are queued.

        Args:
            queued_s: Time at which it is ready to leave [s]; not before that of the previous message.
            seconds: Airtime [s].
            latency_s: Further time on the way [s].
        """
        start = max(self._free_s, queued_s)
        self._free_s = start + seconds
        return Transfer(start, self._free_s, self._free_s + latency_s)
