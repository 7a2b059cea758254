"""Threads of an endpoint, for which it waits when it closes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class WorkerThreads:
    """Threads that work for one endpoint.

    Args:
        name: Name of the endpoint.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> threading.Thread:
        """Run a function in a thread that :meth:`join` waits for."""
        thread = threading.Thread(target=work, name=f"{self._name}-transport", daemon=True)
        with self._lock:
            self._threads = [other for other in self._threads if other.is_alive()]
            thread.start()
            self._threads.append(thread)
        return thread

    def join(self, longest: float) -> bool:
        """Wait for all threads but this one.

        Args:
            longest: Longest wait [s].

        Returns:
            Whether they have ended in time.
        """
        deadline = time.monotonic() + longest
        while True:
            with self._lock:
                busy = [t for t in self._threads if t.is_alive() and t is not threading.current_thread()]
            if not busy or time.monotonic() >= deadline:
                return not busy
            busy[0].join(max(deadline - time.monotonic(), 0.0))
