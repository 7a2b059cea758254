"""Processes of roles on this machine: started from one that has imported everything, and ended."""

from __future__ import annotations

import ctypes
import multiprocessing.forkserver
import os
import signal
import sys
import time
from collections.abc import Collection
from typing import Any

from collapipe_env.execution.fork_server import start_fork_server
from collapipe_env.execution.joining import play_role
from collapipe_env.execution.role import PeerGoneError
from collapipe_env.execution.transport.tcp import Address
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.interrupts import OF_TERMINAL

ENDING_S = 5.0
"""Longest wait for processes that were told to stop [s]."""


class LocalProcesses:
    """Processes that play roles on this machine.

    Attributes:
        running: The processes, by the names of their roles.

    Args:
        launcher: Host and port of the launcher.
        token: Secret that all processes share.
    """

    def __init__(self, launcher: Address, token: str) -> None:
        self.running: dict[str, Any] = {}
        self._launcher, self._token = launcher, token
        self._context = start_fork_server()

    def start(self, name: str) -> None:
        """Start the process of a role.

        Args:
            name: Name of the role.
        """
        process = self._context.Process(
            target=_play, args=(name, self._launcher, self._token), name=name, daemon=True
        )
        process.start()
        self.running[name] = process

    def ended(self, name: str) -> bool:
        """Whether the process of a role was started here and has ended."""
        return name in self.running and self.running[name].exitcode is not None

    def end(self, name: str) -> None:
        """Kill the process of a role, if it was started here, and forget it."""
        if name in self.running:
            self.running.pop(name).kill()

    def end_all(self, gone: Collection[str]) -> None:
        """Wait for all processes, which were told to stop; those that do not end are killed.

        Args:
            gone: Names of lost processes, which may hang: they are killed at once.
        """
        deadline = time.monotonic() + ENDING_S
        for name, process in self.running.items():
            if name in gone:
                process.kill()
        for process in self.running.values():
            process.join(max(deadline - time.monotonic(), 0.0))
        for process in self.running.values():
            if process.is_alive():
                process.kill()
                process.join()


def _play(name: str, launcher: Address, token: str) -> None:
    """Play a role in a process of its own."""
    for number in OF_TERMINAL:  # for the launcher, which then stops everybody
        signal.signal(number, signal.SIG_IGN)
    _known_to_linux(name)
    _let_the_fork_server_end()
    try:
        play_role(name, launcher, token)
    except PeerGoneError:  # the launcher says who is gone, unless it is gone itself
        raise SystemExit(1) from None
    except CollaPipeError as error:
        print(f"{name} ends: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def _let_the_fork_server_end() -> None:
    """Close this process's copy of the pipe that keeps the fork server alive.

    The fork server ends when nobody holds the pipe any more, and Linux then kills the processes that it has
    forked. A process that hangs would hold the pipe for ever, and so outlive a launcher that was killed.
    """
    server: Any = getattr(multiprocessing.forkserver, "_forkserver", None)
    held = getattr(server, "_forkserver_alive_fd", None)
    if held is not None:
        os.close(held)
        server._forkserver_alive_fd = None


def _known_to_linux(name: str) -> None:
    """Let Linux list this process by its role, and kill it when its parent has ended.

    A process that hangs would not notice the end of the others.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig, pr_set_name = 1, 15
        libc = ctypes.CDLL(None)
        libc.prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        libc.prctl(pr_set_name, f"collapipe {name}"[:15].encode(), 0, 0, 0)
