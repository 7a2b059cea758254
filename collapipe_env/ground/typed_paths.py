"""Paths of data sets as people type them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from collapipe_env.ground.errors import DataError, shortened


def given_path(text: str) -> Path:
    """Return a typed path with ``~`` expanded, whether or not something is there.

    Raises:
        DataError: If it cannot be looked up, or is a folder that cannot be listed.
    """
    try:
        path = Path(text).expanduser()
        if path.is_dir():
            os.scandir(path).close()
    except (OSError, RuntimeError, ValueError) as error:  # unknown homes, null bytes
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DataError(
            f"{shortened(text)}: cannot be looked up ({reason}); check the path and its permissions"
        ) from None
    return path


def why_unusable(path: Path) -> str:
    """Return why something is neither a file nor a folder, for a message."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        absent = error.errno in (errno.ENOENT, errno.ENOTDIR)
        return "no such file or folder" if absent else f"cannot be looked up ({error.strerror})"
    except ValueError as error:  # a null character in the name
        return f"cannot be looked up ({error})"
    regular = stat.S_ISREG(mode) or stat.S_ISDIR(mode)  # it has only just appeared
    return "it was changed just now" if regular else "it is a pipe, a device or a socket, not a regular file"
