"""Options of this thread and process that only Linux has."""

from __future__ import annotations

import ctypes
import sys

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
"""Options of ``prctl``: signal at the parent's end; slack of this thread's timers [ns]."""


def prctl(option: int, value: int) -> None:
    """Set an option; do nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
