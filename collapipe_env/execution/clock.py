"""Clocks of an execution: priced times without waiting, priced times in wall time, or the machine's own.

A process computes when it may begin from when its last operation ends and when its input arrives. Messages
carry the time at which they arrive by their price, so receivers wait for it and lateness does not add up: as
long as the machine keeps up, everything is due when the price says.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Protocol

SPIN_S = 0.0003
"""Last part of a wait, in which the thread looks at the clock rather than sleep."""


class Clock(Protocol):
    """Time of a round, in priced seconds since it began."""

    def ready(self, arrives_s: float) -> float:
        """Time at which a message that arrives at ``arrives_s`` by its price can be read [s]."""
        ...

    def begin(self, start_s: float) -> None:
        """Wait until an operation may start."""
        ...

    def finish(self, due_s: float) -> float:
        """Wait until an operation is due to end; returns when it ends, later if the machine was slow [s]."""
        ...

    def now(self, due_s: float) -> float:
        """Time that is measured where ``due_s`` is the planned one [s]."""
        ...

    def restart(self, round_begins: float) -> None:
        """Begin a round.

        Args:
            round_begins: Machine's monotonic time at which it begins [s]; not read by the virtual clock.
        """
        ...


class VirtualClock:
    """Nobody waits: everything takes as long as its price says, exactly."""

    def ready(self, arrives_s: float) -> float:
        """The time of the price."""
        return arrives_s

    def begin(self, start_s: float) -> None:
        """Begin at once."""

    def finish(self, due_s: float) -> float:
        """The time of the price."""
        return due_s

    def now(self, due_s: float) -> float:
        """The time of the price."""
        return due_s

    def restart(self, round_begins: float) -> None:
        """Do nothing."""


class WallClock:
    """Operations and messages last as long as their prices, in wall time.

    Args:
        scale: Seconds of wall time for a priced second, > 0.
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self._begins = 0.0
        _sleep_precisely()

    def restart(self, round_begins: float) -> None:
        """Begin a round at a monotonic time."""
        self._begins = round_begins

    def ready(self, arrives_s: float) -> float:
        """The time of the price; whoever reads the message waits for it."""
        return arrives_s

    def begin(self, start_s: float) -> None:
        """Sleep until then."""
        self._sleep_until(start_s)

    def finish(self, due_s: float) -> float:
        """Sleep until then; an operation that has already taken longer ends now."""
        now = self._now()
        if now > due_s:
            return now
        self._sleep_until(due_s)
        return due_s

    def now(self, due_s: float) -> float:  # noqa: ARG002 - the interface
        """The time that has passed."""
        return self._now()

    def _now(self) -> float:
        return (time.monotonic() - self._begins) / self.scale

    def _sleep_until(self, at_s: float) -> None:
        end = self._begins + self.scale * at_s
        left = end - time.monotonic()
        if left > SPIN_S:
            time.sleep(left - SPIN_S)
        while time.monotonic() < end:
            pass


class MachineClock:
    """Nobody waits for prices: everything takes as long as it takes on this machine."""

    def __init__(self) -> None:
        self._begins = 0.0

    def restart(self, round_begins: float) -> None:  # noqa: ARG002 - that of another machine perhaps
        """Begin a round now."""
        self._begins = time.monotonic()

    def ready(self, arrives_s: float) -> float:  # noqa: ARG002 - the interface
        """Now: it is here."""
        return time.monotonic() - self._begins

    def begin(self, start_s: float) -> None:
        """Begin at once."""

    def finish(self, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Now."""
        return time.monotonic() - self._begins

    def now(self, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Now."""
        return time.monotonic() - self._begins


def make_clock(name: str, scale: float = 1.0) -> Clock:
    """A clock by name.

    Args:
        name: ``virtual``, ``wall`` or ``none``.
        scale: Seconds of wall time for a priced second, for ``wall``.

    Raises:
        ValueError: There is no such clock.
    """
    if name == "virtual":
        return VirtualClock()
    if name == "wall":
        return WallClock(scale)
    if name == "none":
        return MachineClock()
    raise ValueError(f"clock {name!r}: virtual, wall and none exist")


def _sleep_precisely() -> None:
    """Ask Linux for timers without slack; elsewhere sleeps are as precise as they are."""
    if sys.platform == "linux":
        pr_set_timerslack = 29
        ctypes.CDLL(None).prctl(pr_set_timerslack, 1, 0, 0, 0)
