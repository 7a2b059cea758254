"""A folder's files as bytes, on their way between processes that need not share a disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from collapipe_env.ground.errors import DataError, shown
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
    """Write files below a folder, in order, each whole or not at all.

    Args:
        folder: The folder; created if it is missing.

    Raises:
        DataError: If a path leads out of the folder, or a file cannot be written.
    """
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"a worker sent a file {shown(name)}, which leads out of its folder")
        write_bytes(folder / path, content)
