"""Offsets between the monotonic clocks of machines, from times that two processes exchange ([X]).

A process asks another process for its time. It notes when it asks and when the answer is back; the other
notes when it receives the question and when it answers. The split of the time on the way between the two
directions is unknown, so the offset is known to within half of that time. The fastest of several exchanges
gives the best estimate, as in NTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Exchange(NamedTuple):
    """One question and its answer.

    Attributes:
        asked_s: Question sent, by the clock of this side [s].
        heard_s: Question received, by the clock of the other side [s].
        answered_s: Answer sent, by the clock of the other side [s].
        back_s: Answer received, by the clock of this side [s].
    """

    asked_s: float
    heard_s: float
    answered_s: float
    back_s: float

    @property
    def round_trip_s(self) -> float:
        """Time on the way, there and back [s]; never below 0."""
        return max((self.back_s - self.asked_s) - (self.answered_s - self.heard_s), 0.0)

    @property
    def offset_s(self) -> float:
        """Clock of the other side less that of this side, if both ways took the same time [s]."""
        return 0.5 * ((self.heard_s - self.asked_s) + (self.answered_s - self.back_s))


class ClockOffset(NamedTuple):
    """Offset of another process's clock.

    Attributes:
        offset_s: Its clock less that of this side [s].
        bound_s: Largest error of that [s].
    """

    offset_s: float
    bound_s: float

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> ClockOffset:
        """Return the offset that the fastest of one or more exchanges gives."""
        best = min(exchanges, key=lambda one: one.round_trip_s)
        return cls(best.offset_s, 0.5 * best.round_trip_s)

    def bound_until(self, later: ClockOffset) -> float:
        """Return the largest error of this offset at any time until it was measured again [s].

        Clocks may run at different rates, as long as the offset only grows or only falls: it then lies
        between the two measured values.

        Args:
            later: The same offset, measured later.
        """
        return max(self.bound_s, abs(later.offset_s - self.offset_s) + later.bound_s)
