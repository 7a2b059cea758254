"""Postpone Ctrl-C, SIGTERM and SIGHUP while they would break something."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
"""The signals by which a user ends a command."""
if hasattr(signal, "SIGHUP"):  # Windows has none
    SIGNALS += (signal.SIGHUP,)
OF_TERMINAL = tuple(number for number in SIGNALS if number != signal.SIGTERM)
"""Those that a terminal sends to all processes of a command, of which only the first one acts on them."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Return a context that postpones signals until a short piece of work has ended.

    It protects code that takes a lock which other threads need. If a signal's handler raised between taking
    the lock and entering the ``with`` block that releases it, the lock would stay taken and the other threads
    would wait for ever. Outside the main thread, where no handler runs, the context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # A handler of None was not set by Python, and Python cannot set it again.
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    own = {number: handler for number, handler in handlers.items() if handler is not None}
    try:
        for number in own:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in own.items():
            signal.signal(number, handler)
        for signal_that_came in came:
            signal.raise_signal(signal_that_came)
