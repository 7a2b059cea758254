"""Fork server of an execution: imports modules that roles need once, for all processes on this machine."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import tempfile
from multiprocessing.context import ForkServerContext

from collapipe_env.ground.errors import CollaPipeError, reason
from collapipe_env.ground.interrupts import OF_TERMINAL

PRELOADED = (
    "collapipe_env.execution.local_processes",
    "collapipe_env.tasks.classification",
    # PyTorch imports it with the first optimiser, and some 800 modules with it.
    "torch._dynamo",
)
"""Modules that are imported once; the process of a role imports any others itself."""


def start_fork_server() -> ForkServerContext:
    """Start the process from which processes of roles are forked, unless it runs; return at once.

    Its imports take seconds, so it is best started before the launcher's own imports: they overlap.

    Returns:
        Context in which processes of roles are started.

    Raises:
        CollaPipeError: If the folder for temporary files cannot hold a socket; its path may be too long.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    multiprocessing.resource_tracker.ensure_running()  # it would lift the block of signals below
    # A terminal also sends Ctrl-C to the server, which ignores it only once its imports are done.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_TERMINAL)
    try:
        multiprocessing.forkserver.ensure_running()
    except OSError as error:
        raise CollaPipeError(
            f"no socket can be made in TMPDIR, {tempfile.gettempdir()} ({reason(error)}): set TMPDIR to a "
            "folder with a short path in which you may write, such as /tmp"
        ) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    atexit.unregister(_end_fork_server)
    atexit.register(_end_fork_server)
    return context


def _end_fork_server() -> None:
    """Kill the fork server: it would notice the end of this process only when its imports are done.

    Until then it holds standard output open, and a reader of that output would wait.
    """
    server = getattr(multiprocessing.forkserver, "_forkserver", None)
    pid = getattr(server, "_forkserver_pid", None)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
