"""Early ends of a command: SIGTERM and SIGHUP act as Ctrl-C, and a closed output ends it quietly.

Work is kept, worker processes end, and the exit status tells the cases apart.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from collapipe_env.ground.interrupts import SIGNALS

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells expect it."""
UNREAD = 141
"""Exit status where the reader of the output, such as ``head``, has closed it; as shells report it."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, treated as Ctrl-C.

    Attributes:
        status: Exit status after it, as shells expect it.
    """

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.status = 128 + number


def status_after(stop: KeyboardInterrupt) -> int:
    """Return the exit status after Ctrl-C or a signal that acts as it."""
    return stop.status if isinstance(stop, Terminated) else INTERRUPTED


def run_process(main: Callable[[], int]) -> int:
    """Run a command as the whole work of this process.

    Returns:
        The status, with which the process must exit next.
    """
    _open_output()
    status = main()
    if status > 128:  # it was ended early; another Ctrl-C must not interrupt Python's own end
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    # Dataclasses are made with exec(). After a Ctrl-C inside it, Python would end by the signal, whatever the
    # status; another exec() makes Python forget the signal.
    exec("")  # noqa: S102 - an empty text
    return status


def _open_output() -> None:
    """Open outputs that were closed at the start (``>&-``), so that they lead nowhere.

    Otherwise the next files to be opened would get their numbers, and with them what libraries print.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)  # for worker processes
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the end of the process


def answered(text: str) -> int:
    """Print a text as the whole answer of a command.

    Returns:
        The exit status: 0, or that of :func:`unwritten`.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        return unwritten(error)
    return 0


def note(text: str) -> None:
    """Print a line on standard error, if it can be written."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        drop_output()


def unwritten(error: BaseException) -> int:
    """Return the exit status for an output that cannot be written; say so on standard error if that helps.

    Raises:
        BaseException: The error itself, if it is none of writing.
    """
    if isinstance(_writing(error), BrokenPipeError):
        drop_output()
        return UNREAD
    if not (isinstance(error, OSError) and error.errno in _FULL):
        raise error
    # The package's own files have errors of their own: this is the output, or a library's file.
    drop_output()
    note(
        f"error: cannot write {error.filename or 'the output'} ({error.strerror}): free some space, "
        "or write it elsewhere; all finished work is kept"
    )
    return 2


def stop_before(error: BaseException) -> KeyboardInterrupt | None:
    """Return the signal after which an output could not be written: it may have ended the reader, too."""
    failed = _writing(error)
    # A terminal that is gone gives EIO.
    if not isinstance(failed, OSError) or failed.errno not in (errno.EPIPE, errno.EIO):
        return None
    before = failed.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt):
        before = before.__context__
    return before


def _writing(error: BaseException) -> BaseException | None:
    """Return the error behind an exit: Rich exits where a pipe is broken."""
    return error.__context__ if isinstance(error, SystemExit) else error


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


def stopped_early() -> int:
    """Say that Ctrl-C came before the command had begun its work, while its modules were imported.

    Returns:
        The exit status.
    """
    note("\ninterrupted before any work was done")
    return INTERRUPTED


def _in_numba(frame: FrameType | None) -> bool:
    """Whether Python code runs for Numba, which turns an exception in it into a ``SystemError``."""
    while frame is not None:
        if frame.f_code.co_name == "_numba_unpickle":  # for every array that a compiled function returns
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` on Ctrl-C, or :class:`Terminated` on SIGTERM or SIGHUP: once in all.

    What comes later must not interrupt the saving, nor the end of worker processes. Signals that are ignored,
    as SIGHUP is under ``nohup``, stay ignored. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if _in_numba(frame):
            # Raised here, it would leave the compiled function as a SystemError: it comes again in a moment.
            threading.Timer(1e-3, signal.raise_signal, (number,)).start()
            return
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)

    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, stop)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
