"""Clocks of an execution: priced times without waiting, priced times in wall time, or the machine's own.

A process computes when it may begin from when its last operation ends and when its input arrives. Messages
carry the time at which they arrive by their price, and nobody is handed one before. Lateness does not add up:
as long as the machine keeps up, everything is due when the price says. What is due and what the machine's
monotonic clock said are two things, and both are recorded.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Protocol

SPIN_S = 0.0003
"""Last part of a wait, in which the thread looks at the clock rather than sleep."""


Machine = Callable[[], float]
"""Reads a machine's monotonic clock [s]."""


def monotonic() -> float:
    """Reading of this machine's monotonic clock [s]."""
    return time.monotonic()


class Clock(Protocol):
    """Time of a round, in priced seconds since it began.

    Attributes:
        paced: Whether priced times are waited for.
        ahead: Whether times are known before they have come, so that whoever needs one waits for the message
            that says it.
    """

    paced: bool
    ahead: bool

    def ready(self, arrives_s: float) -> float:
        """Time at which a message that arrives at ``arrives_s`` by its price can be read [s]."""
        ...

    def begin(self, start_s: float) -> float:
        """Wait until an operation may start; returns the time from which its length counts [s]."""
        ...

    def finish(self, due_s: float) -> float:
        """Wait until an operation is due to end; returns when it ends, later if the machine was slow [s]."""
        ...

    def now(self, due_s: float) -> float:
        """Time that is measured where ``due_s`` is the planned one [s]."""
        ...

    def read(self, machine_s: float, due_s: float) -> float:
        """Time of the round at a reading of the machine's monotonic clock; ``due_s`` if it is planned [s]."""
        ...

    def lasts(self, seconds: float) -> float:
        """Length of what is priced at so many seconds, and which nobody computes: transfers, waits [s]."""
        ...

    def wait(self, at_s: float) -> float:
        """Seconds of wall time until a message that arrives at ``at_s`` may be handed out [s]; 0 for now."""
        ...

    def machine_time(self, at_s: float) -> float:
        """The machine's monotonic time of a time [s]."""
        ...

    def comes_later(self, arrives_s: float, free_s: float) -> bool:
        """Whether a message that is here can be used only after a stage is free."""
        ...

    def machine(self) -> float:
        """Reading of the machine's monotonic clock [s]."""
        ...

    def restart(self, round_begins: float) -> None:
        """Begin a round.

        Args:
            round_begins: This machine's monotonic time at which it begins [s]; not read by the virtual clock.
        """
        ...


class VirtualClock:
    """Nobody waits: everything takes as long as its price says, exactly."""

    paced, ahead = False, True

    def ready(self, arrives_s: float) -> float:
        """The time of the price."""
        return arrives_s

    def begin(self, start_s: float) -> float:
        """Begin at once."""
        return start_s

    def finish(self, due_s: float) -> float:
        """The time of the price."""
        return due_s

    def now(self, due_s: float) -> float:
        """The time of the price."""
        return due_s

    def read(self, machine_s: float, due_s: float) -> float:  # noqa: ARG002 - the interface
        """The time of the price."""
        return due_s

    def lasts(self, seconds: float) -> float:
        """As long as it is priced."""
        return seconds

    def wait(self, at_s: float) -> float:  # noqa: ARG002 - the interface
        """Nobody waits."""
        return 0.0

    def machine_time(self, at_s: float) -> float:  # noqa: ARG002 - the interface
        """Now."""
        return self.machine()

    def machine(self) -> float:
        """Reading of the machine's monotonic clock [s]."""
        return monotonic()

    def comes_later(self, arrives_s: float, free_s: float) -> bool:
        """By the price."""
        return arrives_s > free_s

    def restart(self, round_begins: float) -> None:
        """Do nothing."""


class WallClock:
    """Operations and messages last as long as their prices, in wall time.

    Args:
        scale: Seconds of wall time for a priced second, > 0.
        machine: Reads the machine's monotonic clock [s].
    """

    paced, ahead = True, False

    def __init__(self, scale: float, machine: Machine = monotonic) -> None:
        self.scale, self._machine = scale, machine
        self._begins = 0.0
        sleep_precisely()

    def restart(self, round_begins: float) -> None:
        """Begin a round at a monotonic time."""
        self._begins = round_begins

    def ready(self, arrives_s: float) -> float:
        """The time of the price; whoever reads the message has waited for it."""
        return arrives_s

    def begin(self, start_s: float) -> float:
        """Sleep until then."""
        sleep_until(self.machine_time(start_s), self._machine)
        return start_s

    def finish(self, due_s: float) -> float:
        """Sleep until then; an operation that has already taken longer ends now."""
        now = self._now()
        if now > due_s:
            return now
        sleep_until(self.machine_time(due_s), self._machine)
        return due_s

    def now(self, due_s: float) -> float:
        """The time that has passed."""
        return self.read(self._machine(), due_s)

    def read(self, machine_s: float, due_s: float) -> float:  # noqa: ARG002 - the interface
        """The time that had passed."""
        return (machine_s - self._begins) / self.scale

    def lasts(self, seconds: float) -> float:
        """As long as it is priced."""
        return seconds

    def wait(self, at_s: float) -> float:
        """The wall time that is left."""
        return max(self.machine_time(at_s) - self._machine(), 0.0)

    def machine_time(self, at_s: float) -> float:
        """The round's begin and so many priced seconds."""
        return self._begins + self.scale * at_s

    def comes_later(self, arrives_s: float, free_s: float) -> bool:
        """By the price."""
        return arrives_s > free_s

    def _now(self) -> float:
        return (self._machine() - self._begins) / self.scale

    def machine(self) -> float:
        """Reading of the machine's monotonic clock [s]."""
        return self._machine()


class MachineClock:
    """Nobody waits for prices: everything takes as long as it takes on this machine.

    Args:
        slow_down: How many times longer than its processor time an operation lasts, >= 1: the rest is slept.
            What the thread waited for a core is not made longer.
        machine: Reads the machine's monotonic clock [s].
    """

    paced, ahead = False, False

    def __init__(self, slow_down: float = 1.0, machine: Machine = monotonic) -> None:
        self._begins = self._spent = 0.0
        self._slow_down, self._machine = slow_down, machine
        sleep_precisely()

    def restart(self, round_begins: float) -> None:
        """Begin a round at a monotonic time."""
        self._begins = round_begins

    def ready(self, arrives_s: float) -> float:  # noqa: ARG002 - the interface
        """Now: it is here."""
        return self._now()

    def begin(self, start_s: float) -> float:  # noqa: ARG002 - the interface
        """Begin at once."""
        self._spent = time.thread_time()
        return self._now()

    def finish(self, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Now, or after the rest of a slower machine's time."""
        if self._slow_down > 1.0:
            rest = (self._slow_down - 1.0) * (time.thread_time() - self._spent)
            sleep_until(self._machine() + rest, self._machine)
        return self._now()

    def now(self, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Now."""
        return self._now()

    def read(self, machine_s: float, due_s: float) -> float:  # noqa: ARG002 - the interface
        """The time that had passed; below 0 before the round has begun."""
        return machine_s - self._begins

    def lasts(self, seconds: float) -> float:  # noqa: ARG002 - the interface
        """Nothing is waited for."""
        return 0.0

    def wait(self, at_s: float) -> float:  # noqa: ARG002 - the interface
        """Messages that are here are handed out."""
        return 0.0

    def machine_time(self, at_s: float) -> float:
        """The round's begin and so many seconds."""
        return self._begins + at_s

    def comes_later(self, arrives_s: float, free_s: float) -> bool:  # noqa: ARG002 - the interface
        """No: it is here."""
        return False

    def _now(self) -> float:
        return self._machine() - self._begins

    def machine(self) -> float:
        """Reading of the machine's monotonic clock [s]."""
        return self._machine()


def make_clock(name: str, scale: float = 1.0, machine: Machine = monotonic) -> Clock:
    """A clock by name.

    Args:
        name: ``virtual``, ``wall`` or ``none``.
        scale: Seconds of wall time for a priced second, for ``wall``; how many times slower than this machine
            operations are, for ``none``.
        machine: Reads the machine's monotonic clock [s], for ``wall`` and ``none``.

    Raises:
        ValueError: If there is no such clock.
    """
    if name == "virtual":
        return VirtualClock()
    if name == "wall":
        return WallClock(scale, machine)
    if name == "none":
        return MachineClock(scale, machine)
    raise ValueError(f"clock {name!r}: use virtual, wall or none")


def sleep_until(end: float, machine: Machine = monotonic) -> None:
    """Sleep until a time of the monotonic clock; the last part is spent looking at the clock.

    Args:
        end: The time [s].
        machine: Reads the clock [s].
    """
    left = end - machine()
    if left > SPIN_S:
        time.sleep(left - SPIN_S)
    while machine() < end:
        pass


def sleep_precisely() -> None:
    """Ask Linux for timers without slack; elsewhere sleeps are as precise as they are."""
    if sys.platform == "linux":
        pr_set_timerslack = 29
        ctypes.CDLL(None).prctl(pr_set_timerslack, 1, 0, 0, 0)
