"""Timekeeping: the launcher asks the processes of other machines for their time before and after a round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping

from collapipe_env.execution.clock_offsets import ClockOffset, Exchange
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.joining import ExecutionError, SilenceError, is_device
from collapipe_env.ground.errors import shown

EXCHANGES = 8
"""Exchanges of times with each process."""
MOST_EXCHANGES = 100
"""Most exchanges with each process, if the usual number is not fine enough."""
ANSWER_S = 10.0
"""Longest wait for an answer [s]."""
FINE = 0.25
"""Share of the shortest operation's wall time by which one clock may err; two differ by at most twice it."""

Item = tuple[str, Frame | str]
"""Sender, and its frame or the reason of its loss."""


class Timekeeper:
    """Asks processes for their time.

    Args:
        send: Sends a frame to a process.
        hear: Waits for news until a monotonic time; the text names the awaited news.
        lose: Called with a device that is lost or silent, and the reason.
    """

    def __init__(
        self,
        send: Callable[[str, Frame], None],
        hear: Callable[[float, str], Item],
        lose: Callable[[str, str], None],
    ) -> None:
        self._send, self._hear, self._lose = send, hear, lose
        self._asked = 0

    def measure(self, names: Collection[str], fine_s: float = math.inf) -> dict[str, ClockOffset]:
        """Measure the offset of each process's clock to the clock of this process.

        Args:
            names: The processes.
            fine_s: Bound that is good enough [s]: until it is reached, more exchanges than usual are made.

        Returns:
            The offsets; devices that are lost meanwhile have none.

        Raises:
            ExecutionError: If a process other than a device is lost or silent, or an answer is invalid.
        """
        found: dict[str, list[Exchange]] = {name: [] for name in sorted(names)}
        for number in range(1, MOST_EXCHANGES + 1):
            self._exchange(found)
            offsets = {name: ClockOffset.of(exchanges) for name, exchanges in found.items()}
            if number >= EXCHANGES and all(one.bound_s <= fine_s for one in offsets.values()):
                break
        return offsets

    def _exchange(self, found: dict[str, list[Exchange]]) -> None:
        """Make one exchange with each process; lost devices are taken out."""
        self._asked += 1
        tag = Tag(micro_batch=self._asked)
        asked = {}
        for name in found:
            asked[name] = time.monotonic()
            self._send(name, Frame("ping", tag))
        deadline = time.monotonic() + ANSWER_S
        while asked:
            try:
                sender, item = self._hear(deadline, f"the time of {', '.join(asked)}")
            except SilenceError:
                for name in list(asked):
                    self._take_out(name, f"has not reported its time for {ANSWER_S:g} s", asked, found)
                return
            if isinstance(item, str):
                self._take_out(sender, item, asked, found)
            elif item.kind == "failed":
                raise ExecutionError(f"{sender} failed: {item.meta['why']}")
            elif item.kind == "pong" and item.tag == tag and sender in asked:
                times = _times(sender, item.meta)
                found[sender].append(Exchange(asked.pop(sender), *times, item.here_s))

    def _take_out(
        self, name: str, why: str, asked: dict[str, float], found: dict[str, list[Exchange]]
    ) -> None:
        if not is_device(name):
            raise ExecutionError(f"{name} was lost while its clock was being read: {why}")
        self._lose(name, why)
        asked.pop(name, None)
        found.pop(name, None)


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
        ExecutionError: If one is not; the message names the clock, the figures and the remedy.
    """
    if not offsets or shortest_s is None:
        return
    name = max(offsets, key=lambda one: offsets[one].bound_s)
    bound_s, fine_s = offsets[name].bound_s, fine_enough(shortest_s, scale)
    if bound_s > fine_s:
        raise ExecutionError(
            f"the clock of {name} is known to {1e3 * bound_s:.3g} ms only, half of the fastest of "
            f"{MOST_EXCHANGES} round trips, and the shortest operation of round {number} lasts "
            f"{1e3 * scale * shortest_s:.3g} ms of wall time: --clock wall needs {1e3 * fine_s:.3g} ms or "
            f"better. Use --time-scale {1.1 * scale * bound_s / fine_s:.3g} or more, or --clock virtual"
        )


def _times(name: str, said: Mapping[str, object]) -> tuple[float, float]:
    """Return the times of an answer.

    Raises:
        ExecutionError: If they are not times.
    """
    heard, answered = said.get("heard_s"), said.get("answered_s")
    if not (isinstance(heard, float) and isinstance(answered, float)) or not math.isfinite(heard + answered):
        raise ExecutionError(
            f"{name} says that its time is {shown(heard)}, then {shown(answered)}: install the same release"
        )
    return heard, answered
