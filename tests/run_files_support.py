"""Files that a run leaves in its folder: whether they are whole, and what they say but for the clock."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

TIMED = (
    "decision_s",
    "median_decision_s",
    "finished",
    "command",
    "load",
    "digest",
    "options",
    "section",
    "seconds",
)
"""What is of one run alone: its times, and its folder."""


def partials(folder: Path) -> list[Path]:
    """Temporary files."""
    return [path for path in folder.rglob("*") if path.name.endswith((".partial", ".part"))]


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
        elif path.suffix == ".safetensors" and path.parent.name == "checkpoints":
            from collapipe_env.agents.learned.agent_file import read_agent_file

            read_agent_file(path)
        else:
            assert content, f"{path} is empty"
    return count


def figures(folder: Path) -> dict[str, Any]:
    """All that a run's files say, without what the clock says."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                members = {part: archive.read(part) for part in archive.namelist()}
            if "episode.json" in members:
                members["episode.json"] = _untimed(
                    json.loads(members["episode.json"].replace(b"NaN", b"null"))
                )
            found[name] = members
        elif path.suffix == ".json" and not name.startswith((".", "versions", "played")):
            found[name] = _untimed(json.loads(path.read_bytes()))
        elif path.suffix == ".csv":
            found[name] = [_untimed(row) for row in csv.DictReader(io.StringIO(path.read_text()))]
    return found


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(inner) for key, inner in value.items() if key not in TIMED}
    return [_untimed(inner) for inner in value] if isinstance(value, list) else value
