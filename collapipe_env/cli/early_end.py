"""Ends of a command: bad input is one line, SIGTERM and SIGHUP act as Ctrl-C, a closed output is no error.

Work is kept, worker processes end, and the exit status tells the cases apart.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.interrupts import SIGNALS

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells expect it."""
_GONE = (errno.EPIPE, errno.EIO)
"""Errors of an output without a reader, and of a terminal that is gone."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Call:
    """A command line: the program and its arguments; ``str`` gives it as it can be typed again."""

    program: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.program} {shlex.join(self.arguments)}".rstrip()

    def record(self, **more: Any) -> dict[str, Any]:
        """Return the origin of a result for its file: command, time, versions, and ``more``."""
        from collapipe_env.evaluation.provenance import versions

        finished = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        return {"command": str(self), "finished": finished, "versions": versions(), **more}


class Terminated(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP, with the exit ``status`` that shells expect after it."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.status = 128 + number


def run_process(main: Callable[[], int]) -> int:
    """Run a command as the whole work of this process; returns the status with which it must exit next."""
    # Outputs that were closed at the start (``>&-``) are opened, and lead nowhere. Otherwise the next files
    # to be opened would get their numbers, and with them what libraries print.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)  # for worker processes
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the end of the process
        # Characters that an output lacks become question marks instead of an error.
        getattr(sys, name).reconfigure(errors="replace")
    status = main()
    if status > 128:  # it was ended early; another Ctrl-C must not interrupt Python's own end
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    # Dataclasses are made with exec(). After a Ctrl-C inside it, Python would end by the signal, whatever the
    # status; another exec() makes Python forget the signal.
    exec("")  # noqa: S102 - an empty text
    return status


def guarded(job: Callable[[], int | None], call: Call) -> int:
    """Run a command to its end, whichever that is, and say in a line what ended it early.

    Returns:
        The exit status: the job's, 0 without one; 2 for bad input and full disks, 129 after SIGHUP, 130 after
        Ctrl-C, 141 if nobody reads the output any more (as after ``| head``), 143 after SIGTERM.
    """
    with terminable(), warnings.catch_warnings():  # also while errors are told
        warnings.showwarning = _warning_lines()
        try:
            status = job()
            sys.stdout.flush()  # at its exit, Python could only report the error
            return status or 0
        except CollaPipeError as error:
            _say(f"error: {error}")
            return 2
        except (KeyboardInterrupt, OSError, SystemExit) as end:
            return _status_after(end, call)


def _status_after(end: BaseException, call: Call) -> int:
    # Rich exits where a pipe is broken.
    failed = end.__context__ if isinstance(end, SystemExit) else end
    stop = failed
    if isinstance(failed, OSError) and failed.errno in _GONE:
        # A signal may have ended the reader, or the terminal, too.
        while stop is not None and not isinstance(stop, KeyboardInterrupt):
            stop = stop.__context__
    if isinstance(stop, KeyboardInterrupt):
        status = stop.status if isinstance(stop, Terminated) else INTERRUPTED
        again = Call(call.program, tuple(option for option in call.arguments if option != "--fresh"))
        how = "interrupted" if status == INTERRUPTED else "terminated"
        _say(f"\n{how}; all finished work is kept. To resume, run again:\n  {again}")
        return status
    if isinstance(failed, BrokenPipeError):
        _say()
        return 128 + 13  # as shells report SIGPIPE, which Windows lacks
    if isinstance(failed, OSError) and failed.errno in _FULL:
        # The package's own files have errors of their own: this is the output, or a library's file.
        _say(
            f"error: cannot write {failed.filename or 'the output'} ({failed.strerror}): free some space, "
            "or write it elsewhere; all finished work is kept"
        )
        return 2
    raise end


def _say(text: str = "") -> None:
    """Print a text on standard error, and drop output that has no reader or no disk space left."""
    with contextlib.suppress(OSError):
        if text:
            print(text, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):  # or Python would report at its exit that it cannot be written
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _warning_lines() -> Callable[..., None]:
    """A function that shows each warning once, in a line above the progress bar, without its source."""
    said: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        from tqdm import tqdm

        text = " ".join(str(message).split())
        if text not in said:
            said.add(text)
            tqdm.write(f"warning: {text}", file=sys.stderr)

    return show


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` on Ctrl-C, SIGTERM and SIGHUP: once in all.

    What comes later must not interrupt the saving, nor the end of worker processes. Signals that are ignored,
    as SIGHUP is under ``nohup``, stay ignored. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    here = threading.get_ident()

    def again(number: int) -> None:
        if sys.platform == "win32":
            signal.raise_signal(number)
        else:
            signal.pthread_kill(here, number)

    def stop(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            # An exception that is raised where Numba hands an array over would leave the compiled function
            # as a SystemError: the signal comes again in a moment, to this thread, which may sleep by then.
            if frame.f_code.co_name == "_numba_unpickle":
                threading.Timer(1e-3, again, (number,)).start()
                return
            frame = frame.f_back
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, stop)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
