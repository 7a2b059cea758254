"""Commands of the package in processes of their own, and what they left in their folders."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "collapipe_env"]
TIMED = ("decision_s", "median_decision_s")
"""What is measured by the clock."""


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


def require_readable(folder: Path) -> int:
    """Every file that bears its final name is whole; returns their number."""
    count = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith(".") or "tensorboard" in path.parts:
            continue
        count += 1
        content = path.read_bytes()
        if path.suffix == ".json":
            json.loads(content)
        elif path.suffix == ".npz":
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                assert all(np.asarray(arrays[name]).dtype.kind in "biufS" for name in arrays.files)
        elif path.suffix == ".csv":
            lines = list(csv.reader(io.StringIO(content.decode())))
            assert len({len(line) for line in lines}) == 1, f"{path} is cut"
            assert content.endswith(b"\n")
        elif path.suffix == ".png":
            assert content.startswith(b"\x89PNG"), path
            assert content.endswith(b"IEND\xaeB`\x82"), path
        elif path.suffix == ".safetensors":
            from collapipe_env.agents.learned.agent_file import read_agent_file

            read_agent_file(path)
        else:
            assert content, f"{path} is empty"
    return count


def partials(folder: Path) -> list[Path]:
    """Temporary files."""
    return [path for path in folder.rglob("*") if path.name.endswith((".partial", ".part"))]


def measured(folder: Path) -> dict[str, Any]:
    """Everything that a comparison measured, without what the clock says."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "evaluation").rglob("*")):
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                found[path.name] = {name: archive.read(name) for name in archive.namelist()}
            figures = found[path.name].pop("episode.json").replace(b"NaN", b"null")
            found[f"{path.name} figures"] = _untimed(json.loads(figures))
    for name in ("results.csv", "episodes.csv"):
        rows = list(csv.DictReader(io.StringIO((folder / name).read_text())))
        found[name] = [_untimed(row) for row in rows]
    return found


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _untimed(v) for k, v in value.items() if k not in TIMED}
    return [_untimed(v) for v in value] if isinstance(value, list) else value
