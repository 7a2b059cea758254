"""Commands of the package in processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "collapipe_env"]


def environment() -> dict[str, str]:
    """Variables of such a process."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def start(arguments: list[str], **more: Any) -> subprocess.Popen[str]:
    """A command in a process group of its own."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=environment(),
        **more,
    )


def run(arguments: list[str], **more: Any) -> tuple[int, str]:
    """Exit status and output of a command."""
    process = start(arguments, **more)
    output, _ = process.communicate(timeout=1200)
    return process.returncode, output


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a command and its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
