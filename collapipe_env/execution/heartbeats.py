"""Heartbeats: processes signal that they are alive, and others notice when the signal stops ([X]).

Control units listen to their devices, and the launcher to control units and the server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENT_BEAT_S, PATIENT_MISSES = 5.0, 6
"""Period of the heartbeats [s] where lateness costs nothing, and the number that may be missed."""
PATIENT_S = PATIENT_MISSES * PATIENT_BEAT_S
"""Silence after which a process there counts as lost [s]."""


class Pulse:
    """Thread that calls a function in every period until it is stopped.

    Args:
        period_s: Its period [s].
        beat: The function.
        name: Name of the thread.
    """

    def __init__(self, period_s: float, beat: Callable[[], None], name: str) -> None:
        self._period_s, self._beat = period_s, beat
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            self._beat()


class Attendance:
    """Times at which processes were last heard of.

    Args:
        longest_s: Longest silence of a process that is alive [s].
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._heard: dict[str, float] = {}
        self._lock = threading.Lock()

    def expect(self, names: set[str]) -> None:
        """From now on, expect heartbeats from these processes and from no others."""
        now = time.monotonic()
        with self._lock:
            self._heard = {name: self._heard.get(name, now) for name in names}

    def hear(self, name: str) -> None:
        """Note a heartbeat."""
        with self._lock:
            if name in self._heard:
                self._heard[name] = time.monotonic()

    def missing(self) -> list[str]:
        """Return the processes that have been silent for too long."""
        oldest = time.monotonic() - self._longest_s
        with self._lock:
            return [name for name, heard in self._heard.items() if heard < oldest]
