"""Clocks of an execution: priced times without waiting, priced times in wall time, or the machine's own.

A role derives the start of an operation from the end of its last one and the arrival of its input. Messages
carry the time at which they arrive by their price, and no role starts an operation earlier. Lateness does not
add up: as long as the machine keeps up, everything is due at its priced time. The due time and the reading of
the machine's monotonic clock may differ, and both are recorded.
"""

from __future__ import annotations

import time

from collapipe_env.ground.linux import PR_SET_TIMERSLACK, prctl

SPIN_S = 0.0003
"""Last part of a wait [s], in which the thread polls the clock instead of sleeping."""


class Clock:
    """Time of a round, in priced seconds since it began; by itself virtual.

    In virtual time nobody waits, and everything takes exactly its priced time.

    Attributes:
        emulated: Whether times are priced ones, rather than those that this machine needs.
    """

    emulated = True

    def restart(self, round_begins: float) -> None:
        """Begin a round.

        Args:
            round_begins: This machine's monotonic time at which the round begins [s].
        """

    def ready(self, arrives_s: float) -> float:
        """Return the time at which a message that arrives at ``arrives_s`` by its price can be read [s]."""
        return arrives_s

    def begin(self, start_s: float) -> float:
        """Wait until an operation may start; return the time from which its length is counted [s]."""
        return start_s

    def finish(self, due_s: float) -> float:
        """Wait until an operation is due to end; return its end, later if the machine was slow [s]."""
        return due_s

    def now(self, due_s: float) -> float:
        """Return the measured time for the planned time ``due_s`` [s]."""
        return due_s

    def lasts(self, seconds: float) -> float:
        """Return the length of a priced time in which nothing is computed, such as a transfer [s]."""
        return seconds


class WallClock(Clock):
    """Operations and messages last as long as their prices, in wall time.

    Args:
        scale: Seconds of wall time for a priced second, > 0.
    """

    def __init__(self, scale: float) -> None:
        self._scale, self._begins = scale, 0.0
        prctl(PR_SET_TIMERSLACK, 1)  # otherwise a sleep may end 50 us late

    def restart(self, round_begins: float) -> None:
        """Begin a round at a monotonic time."""
        self._begins = round_begins

    def begin(self, start_s: float) -> float:
        """Sleep until then."""
        sleep_until(self._begins + self._scale * start_s)
        return start_s

    def finish(self, due_s: float) -> float:
        """Sleep until then; an operation that has already taken longer ends now."""
        now = self.now(due_s)
        return now if now > due_s else self.begin(due_s)

    def now(self, due_s: float) -> float:  # noqa: ARG002 - the interface
        """Return the time since the round began; below 0 before."""
        return (time.monotonic() - self._begins) / self._scale


class MachineClock(WallClock):
    """Real time: prices do not count, and everything takes as long as this machine needs.

    Args:
        slow_down: Length of an operation over its processor time, >= 1: the thread sleeps for the rest. Time
            for which it waited for a core is not stretched.
    """

    emulated = False

    def __init__(self, slow_down: float = 1.0) -> None:
        super().__init__(1.0)
        self._spent, self._slow_down = 0.0, slow_down

    def ready(self, arrives_s: float) -> float:
        """Return the present time: the message is here."""
        return self.now(arrives_s)

    def begin(self, start_s: float) -> float:
        """Begin at once."""
        self._spent = time.thread_time()
        return self.now(start_s)

    def finish(self, due_s: float) -> float:
        """Return the present time, after the rest of a slower machine's time if there is one."""
        if self._slow_down > 1.0:
            rest = (self._slow_down - 1.0) * (time.thread_time() - self._spent)
            sleep_until(time.monotonic() + rest)
        return self.now(due_s)

    def lasts(self, seconds: float) -> float:  # noqa: ARG002 - the interface
        """Return 0: nobody waits for priced times."""
        return 0.0


def make_clock(name: str, scale: float = 1.0) -> Clock:
    """Return a clock by name.

    Args:
        name: ``virtual``, ``wall`` or ``none``.
        scale: For ``wall``, seconds of wall time for a priced second; for ``none``, the factor by which
            operations are slower than on this machine.

    Raises:
        ValueError: If there is no such clock.
    """
    if name == "virtual":
        return Clock()
    if name == "wall":
        return WallClock(scale)
    if name == "none":
        return MachineClock(scale)
    raise ValueError(f"clock {name!r}: use virtual, wall or none")


def sleep_until(end: float) -> None:
    """Sleep until a time of the monotonic clock; poll the clock in the last part.

    Args:
        end: The time [s].
    """
    left = end - time.monotonic()
    if left > SPIN_S:
        time.sleep(left - SPIN_S)
    while time.monotonic() < end:
        pass
