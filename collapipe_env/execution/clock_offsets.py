"""Offsets between the monotonic clocks of machines, from times that two processes exchange ([X]).

A process asks another process for its time. It notes when it asks and when the answer is back; the other
notes when it receives the question and when it answers. The split of the time on the way between the two
directions is unknown, so the offset is known to within half of that time. The fastest of several exchanges
gives the best estimate, as in NTP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from collapipe_env.ground.errors import CollaPipeError

EXCHANGES = 8
"""Exchanges of times with each process."""
MOST_EXCHANGES = 100
"""Most exchanges with each process, if the usual number is not fine enough."""
FINE = 0.25
"""Share of the shortest operation's wall time by which one clock may err; two differ by at most twice it."""


class ClockOffset(NamedTuple):
    """Offset of another process's clock.

    Attributes:
        offset_s: Its clock less that of this side [s].
        bound_s: Largest error of that [s].
    """

    offset_s: float
    bound_s: float

    @classmethod
    def of(cls, asked_s: float, heard_s: float, answered_s: float, back_s: float) -> ClockOffset:
        """Return the offset that one exchange gives, as if both ways took the same time.

        Args:
            asked_s: Question sent, by the clock of this side [s].
            heard_s: Question received, by the clock of the other side [s].
            answered_s: Answer sent, by the clock of the other side [s].
            back_s: Answer received, by the clock of this side [s].
        """
        on_the_way_s = max((back_s - asked_s) - (answered_s - heard_s), 0.0)
        return cls(0.5 * ((heard_s - asked_s) + (answered_s - back_s)), 0.5 * on_the_way_s)

    def bound_until(self, later: ClockOffset) -> float:
        """Return the largest error of this offset at any time until it was measured again [s].

        Clocks may run at different rates, as long as the offset only grows or only falls: it then lies
        between the two measured values.

        Args:
            later: The same offset, measured later.
        """
        return max(self.bound_s, abs(later.offset_s - self.offset_s) + later.bound_s)


NO_OFFSET = ClockOffset(0.0, 0.0)
"""Offset where there is one clock."""


def fine_enough(shortest_s: float | None, scale: float) -> float:
    """Return the largest error of a clock with which a round can be played under the wall clock [s].

    Args:
        shortest_s: The round's shortest priced operation or transfer [s]; ``None`` if there is none.
        scale: Wall time of a priced second [s].
    """
    return math.inf if shortest_s is None else FINE * scale * shortest_s


def require_fine(
    offsets: Mapping[str, ClockOffset], shortest_s: float | None, scale: float, number: int
) -> None:
    """Refuse clocks that are not known well enough for a round under the wall clock.

    Args:
        offsets: Offset of each process's clock.
        shortest_s: The round's shortest priced operation or transfer [s]; ``None`` if there is none.
        scale: Wall time of a priced second [s].
        number: Number of the round, from 1.

    Raises:
        CollaPipeError: If one is not; the message names the clock, the figures and the remedy.
    """
    if not offsets or shortest_s is None:
        return
    name = max(offsets, key=lambda one: offsets[one].bound_s)
    bound_s, fine_s = offsets[name].bound_s, fine_enough(shortest_s, scale)
    if bound_s > fine_s:
        raise CollaPipeError(
            f"the clock of {name} is known to {1e3 * bound_s:.3g} ms only, half of the fastest of "
            f"{MOST_EXCHANGES} round trips, and the shortest operation of round {number} lasts "
            f"{1e3 * scale * shortest_s:.3g} ms of wall time: --clock wall needs {1e3 * fine_s:.3g} ms or "
            f"better. Use --time-scale {1.1 * scale * bound_s / fine_s:.3g} or more, or --clock virtual"
        )
