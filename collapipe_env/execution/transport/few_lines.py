"""Lines in a log that strangers cause: a few in a time, and the number of the others."""

from __future__ import annotations

import logging
import time

MOST_LINES = 10
"""Most lines in :data:`PERIOD_S`."""
PERIOD_S = 60.0
"""Time after which lines are written again [s]."""


class FewLines:
    """Warnings of which only the first ones of a time are written; not for several threads at once."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._begun, self._count = time.monotonic(), 0

    def add(self, line: str) -> None:
        """Write a line, or count it."""
        if time.monotonic() - self._begun >= PERIOD_S:
            self.sum_up()
        self._count += 1
        if self._count <= MOST_LINES:
            self._log.warning("%s", line)

    def sum_up(self) -> None:
        """Write the number of lines that were left out, if any, and begin anew."""
        if self._count > MOST_LINES:
            self._log.warning("%d more lines of this kind were left out", self._count - MOST_LINES)
        self._begun, self._count = time.monotonic(), 0
