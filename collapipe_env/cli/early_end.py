"""Early ends of a command: SIGTERM acts as Ctrl-C, and a closed output ends the command quietly.

Work is kept, worker processes end, and the exit status tells the cases apart.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells expect it."""
TERMINATED = 143
"""Exit status after SIGTERM."""
UNREAD = 141
"""Exit status where the reader of the output, such as ``head``, has closed it; as shells report it."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, treated as Ctrl-C."""


def drop_output() -> None:
    """Discard pending output that has no reader or no disk space left.

    Otherwise Python would report at its exit that it could not be written.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def stopped_early() -> None:
    """Say that Ctrl-C came before the command had begun its work, while its modules were imported."""
    print("\ninterrupted before any work was done", file=sys.stderr)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` once on SIGTERM; outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the saving
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
