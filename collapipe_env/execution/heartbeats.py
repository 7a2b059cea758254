"""Heartbeats: devices say that they are alive, and control units notice those that no longer do ([X])."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from collapipe_env.physics.recovery import RecoveryTerms


class Pulse:
    """Thread that does something in every period until it is stopped.

    Args:
        period_s: Its period [s].
        beat: What it does.
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
    """Times at which devices were last heard of.

    Args:
        terms: Period of the heartbeats, and how many may be missed.
    """

    def __init__(self, terms: RecoveryTerms) -> None:
        self._terms = terms
        self._heard: dict[str, float] = {}
        self._lock = threading.Lock()

    def expect(self, names: set[str]) -> None:
        """Begin to expect heartbeats of these, and of nobody else."""
        now = time.monotonic()
        with self._lock:
            self._heard = {name: self._heard.get(name, now) for name in names}

    def hear(self, name: str) -> None:
        """Note a heartbeat."""
        with self._lock:
            if name in self._heard:
                self._heard[name] = time.monotonic()

    def missing(self) -> list[str]:
        """Devices that have missed too many heartbeats."""
        oldest = time.monotonic() - self._terms.detection_s
        with self._lock:
            return [name for name, heard in self._heard.items() if heard < oldest]
