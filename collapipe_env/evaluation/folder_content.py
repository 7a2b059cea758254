"""A folder's files as bytes, on their way between processes that need not share a disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collapipe_env.ground.files import write_bytes

Files = dict[str, bytes]
"""Contents of files by their paths below a folder, with forward slashes."""


def files_below(folder: Path) -> Files:
    """Return all files below a folder; none if it does not exist."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_below(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder, in order, each whole or not at all."""
    for name, content in files.items():
        write_bytes(folder / name, content)
