"""Deliveries: messages are delivered when their priced transfers end by the clock ([X]).

A message is sent at once and carries the time at which it arrives by its price. Under the wall clock its
receiver keeps it until then, so that nobody can use it before it has arrived. The time at which it is handed
out is a reading of the machine's clock, which shows whether the message was late and how late waits end.
"""

from __future__ import annotations

import heapq
import threading
from dataclasses import replace

from collapipe_env.execution.clock import SPIN_S, Clock, sleep_precisely, sleep_until
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.mailbox import Mailbox, Wanted


class Deliveries:
    """Delivers frames to mailboxes when their time by the clock has come.

    Args:
        name: Name of the role.
    """

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock, self._name = clock, name
        self._changed = threading.Condition()
        self._round, self._number = -1, 0
        self._heap: list[tuple[int, float, int, Frame, Mailbox]] = []
        self._held: dict[Wanted, float] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def begin(self, round: int) -> None:
        """Begin a round: frames of later rounds keep waiting, frames of earlier rounds are dropped.

        A loss may leave frames of an attempt that was given up; the new round would misread their times.
        """
        with self._changed:
            self._round = round
            self._heap = [one for one in self._heap if one[0] >= round]
            heapq.heapify(self._heap)
            self._held = {wanted: at_s for wanted, at_s in self._held.items() if wanted[1].round >= round}
            self._changed.notify_all()

    def deliver(self, frame: Frame, mailbox: Mailbox) -> None:
        """Hand a frame out, now or when its time has come.

        Args:
            frame: The frame; one without a time is handed out at once.
            mailbox: Mailbox that receives it.
        """
        if not (self._clock.paced and frame.at_s > 0.0):
            self._put(frame, mailbox)
            return
        with self._changed:
            if self._stopped:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"{self._name} receives", daemon=True)
                self._thread.start()
            heapq.heappush(self._heap, (frame.tag.round, frame.at_s, self._number, frame, mailbox))
            self._number += 1
            self._held[frame.kind, frame.tag] = frame.at_s
            self._changed.notify_all()

    def arrival(self, wanted: Wanted, mailbox: Mailbox) -> float | None:
        """Return the time at which a frame that is here may be used [s]; ``None`` if it is not here.

        Args:
            wanted: Kind and tag.
        """
        with self._changed:
            held = self._held.get(wanted)
        if held is not None:
            return held
        frame = mailbox.peek(*wanted)
        return None if frame is None else frame.at_s

    def stop(self) -> None:
        """Stop handing out frames."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _put(self, frame: Frame, mailbox: Mailbox) -> None:
        mailbox.put(replace(frame, here_s=self._clock.machine()))

    def _run(self) -> None:
        sleep_precisely()
        while True:
            with self._changed:
                while not self._stopped:
                    left = self._left()
                    if left is not None and left <= SPIN_S:
                        break
                    self._changed.wait(None if left is None else left - SPIN_S)
                if self._stopped:
                    return
                _, at_s, _, frame, mailbox = heapq.heappop(self._heap)
                until = self._clock.machine_time(at_s)  # read now, as the next round restarts the clock
            sleep_until(until, self._clock.machine)
            self._put(frame, mailbox)
            with self._changed:
                self._held.pop((frame.kind, frame.tag), None)

    def _left(self) -> float | None:
        """Return the wall time until the next frame is due [s]; ``None`` if none of a begun round waits."""
        if not self._heap or self._heap[0][0] > self._round:
            return None
        return self._clock.wait(self._heap[0][1])
