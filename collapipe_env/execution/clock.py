"""Clocks of an execution: priced times without waiting, priced times in wall time, or the machine's own.

A process derives the start of an operation from the end of its last one and the arrival of its input.
Messages carry the time at which they arrive by their price, and no process receives one earlier. Lateness
does not add up: as long as the machine keeps up, everything is due at its priced time. The due time and the
reading of the machine's monotonic clock may differ, and both are recorded.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Protocol

SPIN_S = 0.0003
"""Last part of a wait [s], in which the thread polls the clock instead of sleeping."""


Machine = Callable[[], float]
"""Reads a machine's monotonic clock [s]."""


def monotonic() -> float:
    """Return the reading of this machine's monotonic clock [s]."""
    return time.monotonic()


class Clock(Protocol):
    """Time of a round, in priced seconds since it began.

    Attributes:
        paced: Whether processes wait for priced times.
        ahead: Whether times are known before they have come, so that a process that needs one waits for the
            message that carries it.
    """

    paced: bool
    ahead: bool

    def ready(self, arrives_s: float) -> float:
        """Time at which a message that arrives at ``arrives_s`` by its price can be read [s]."""
        ...

    def begin(self, start_s: float) -> float:
        """Wait until an operation may start; return the time from which its length is counted [s]."""
        ...

    def finish(self, due_s: float) -> float:
        """Wait until an operation is due to end; return its end, later if the machine was slow [s]."""
        ...

    def now(self, due_s: float) -> float:
        """Measured time for the planned time ``due_s`` [s]."""
        ...

    def read(self, machine_s: float, due_s: float) -> float:
        """Time of the round at a reading of the machine's monotonic clock; ``due_s`` in virtual time [s]."""
        ...

    def lasts(self, seconds: float) -> float:
        """Length of a priced time in which nothing is computed, such as a transfer or a wait [s]."""
        ...

    def wait(self, at_s: float) -> float:
        """Wall time until a message that arrives at ``at_s`` may be handed out [s]; 0 for at once."""
        ...

    def machine_time(self, at_s: float) -> float:
        """The machine's monotonic time at a time of the round [s]."""
        ...

    def comes_later(self, arrives_s: float, free_s: float) -> bool:
        """Whether a message that is here can be used only after a stage has become free."""
        ...

    def machine(self) -> float:
        """Reading of the machine's monotonic clock [s]."""
        ...

    def restart(self, round_begins: float) -> None:
        """Begin a round.

        Args:
            round_begins: This machine's monotonic time at which the round begins [s]; the virtual clock does
                not read it.
        """
        ...


class VirtualClock:
    """Virtual time: nobody waits, and everything takes exactly its priced time."""

    paced, ahead = False, True

    def ready(self, arrives_s: float) -> float:
        """Return the priced time."""
        return arrives_s

    def begin(self, start_s: float) -> float:
        """Begin at once."""
        return start_s

    def finish(self, due_s: float) -> float:
        """Return the priced time."""
        return due_s

    def now(self, due_s: float) -> float:
        """Return the priced time."""
        return due_s

    def read(self, machine_s: float, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Return the priced time."""
        return due_s

    def lasts(self, seconds: float) -> float:
        """Return the priced length."""
        return seconds

    def wait(self, at_s: float) -> float:  # noqa: ARG002 - the interface
        """Return 0: nobody waits."""
        return 0.0

    def machine_time(self, at_s: float) -> float:  # noqa: ARG002 - the interface
        """Return the present reading."""
        return self.machine()

    def machine(self) -> float:
        """Reading of the machine's monotonic clock [s]."""
        return monotonic()

    def comes_later(self, arrives_s: float, free_s: float) -> bool:
        """Compare the priced times."""
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
        """Return the priced time; whoever reads the message has waited for it."""
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
        """Return the time since the round began."""
        return self.read(self._machine(), due_s)

    def read(self, machine_s: float, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Return the time since the round began."""
        return (machine_s - self._begins) / self.scale

    def lasts(self, seconds: float) -> float:
        """Return the priced length."""
        return seconds

    def wait(self, at_s: float) -> float:
        """Return the wall time that is left."""
        return max(self.machine_time(at_s) - self._machine(), 0.0)

    def machine_time(self, at_s: float) -> float:
        """Return the round's start plus the priced seconds, scaled."""
        return self._begins + self.scale * at_s

    def comes_later(self, arrives_s: float, free_s: float) -> bool:
        """Compare the priced times."""
        return arrives_s > free_s

    def _now(self) -> float:
        return (self._machine() - self._begins) / self.scale

    def machine(self) -> float:
        """Reading of the machine's monotonic clock [s]."""
        return self._machine()


class MachineClock:
    """Real time: prices do not count, and everything takes as long as this machine needs.

    Args:
        slow_down: Length of an operation over its processor time, >= 1: the thread sleeps for the rest. Time
            for which it waited for a core is not stretched.
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
        """Return the present time: the message is here."""
        return self._now()

    def begin(self, start_s: float) -> float:  # noqa: ARG002 - the interface
        """Begin at once."""
        self._spent = time.thread_time()
        return self._now()

    def finish(self, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Return the present time, after the rest of a slower machine's time if there is one."""
        if self._slow_down > 1.0:
            rest = (self._slow_down - 1.0) * (time.thread_time() - self._spent)
            sleep_until(self._machine() + rest, self._machine)
        return self._now()

    def now(self, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Return the present time."""
        return self._now()

    def read(self, machine_s: float, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Return the time since the round began; below 0 before."""
        return machine_s - self._begins

    def lasts(self, seconds: float) -> float:  # noqa: ARG002 - the interface
        """Return 0: nobody waits for priced times."""
        return 0.0

    def wait(self, at_s: float) -> float:  # noqa: ARG002 - the interface
        """Return 0: a message that is here is handed out at once."""
        return 0.0

    def machine_time(self, at_s: float) -> float:
        """Return the round's start plus the seconds."""
        return self._begins + at_s

    def comes_later(self, arrives_s: float, free_s: float) -> bool:  # noqa: ARG002 - the interface
        """Return False: the message is here."""
        return False

    def _now(self) -> float:
        return self._machine() - self._begins

    def machine(self) -> float:
        """Reading of the machine's monotonic clock [s]."""
        return self._machine()


def make_clock(name: str, scale: float = 1.0, machine: Machine = monotonic) -> Clock:
    """Return a clock by name.

    Args:
        name: ``virtual``, ``wall`` or ``none``.
        scale: For ``wall``, seconds of wall time for a priced second; for ``none``, the factor by which
            operations are slower than on this machine.
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
    """Sleep until a time of the monotonic clock; poll the clock in the last part.

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
    """Ask Linux for timers without slack; do nothing on other systems."""
    if sys.platform == "linux":
        pr_set_timerslack = 29
        ctypes.CDLL(None).prctl(pr_set_timerslack, 1, 0, 0, 0)
