"""Memory of one environment in a native batch, from two sizes of the batch in a process of its own.

``python tools/scaling_memory.py clusters 16 64 512`` prints one JSON object. What the batch itself needs, and
what the interpreter and the libraries need, is the same at both sizes and goes out in the difference.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

from scaling_points import scenario_at
from scaling_times import environment, player

from collapipe_env.errors import DataError

ROUNDS = 4
"""Rounds that are played before memory is looked at."""


def forget_peak() -> None:
    """Let the peak start anew at what is resident now, where the system can do so (Linux).

    Else what compiling once needed could hide what a small batch needs.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)  # else a batch would first fill what compiling left free
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Most memory that this process had resident since the peak was last forgotten [byte]."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def per_environment(axis: str, value: int, few: int, many: int) -> dict[str, float]:
    """Measure in this process, which should be a fresh one.

    Args:
        axis: Name of the axis.
        value: Size along it.
        few: Environments of the smaller batch.
        many: Environments of the larger batch.

    Returns:
        ``resident``: growth of the process's peak; ``kept``: growth of what Python and NumPy hold between
        two steps [byte per environment].
    """
    scenario = scenario_at(axis, value)

    def played(size: int) -> object:
        play = player(environment(scenario, size), store=1)
        play(ROUNDS)
        gc.collect()
        return play

    resident, kept = [], []
    played(few)  # compiles
    for size in (few, many):
        gc.collect()
        forget_peak()
        played(size)
        resident.append(peak_bytes())
    tracemalloc.start()
    for size in (few, many):
        holder = played(size)
        kept.append(tracemalloc.get_traced_memory()[0])
        del holder
        gc.collect()
    tracemalloc.stop()
    return {
        "resident": (resident[1] - resident[0]) / (many - few),
        "kept": (kept[1] - kept[0]) / (many - few),
    }


def measure(axis: str, value: int, few: int, many: int) -> dict[str, float]:
    """Measure in a fresh process; arguments and result as of :func:`per_environment`.

    Raises:
        DataError: If the process fails.
    """
    command = [sys.executable, str(Path(__file__)), axis, str(value), str(few), str(many)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise DataError(f"memory at {axis} = {value} could not be measured: {reason}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(per_environment(sys.argv[1], *map(int, sys.argv[2:]))))
