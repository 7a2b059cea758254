"""Paths of data sets as people type them."""

from __future__ import annotations

import os
from pathlib import Path

from collapipe_env.errors import DataError, shortened


def given_path(text: str) -> Path:
    """Return a path with ``~`` expanded, whether or not something is there.

    Args:
        text: What was typed.

    Raises:
        DataError: If it cannot be looked up, or is a folder that cannot be listed.
    """
    try:
        path = Path(text).expanduser()
        if path.is_dir():
            os.scandir(path).close()
    except (OSError, RuntimeError, ValueError) as error:  # homes that are unknown; null bytes
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DataError(
            f"{shortened(text)}: cannot be looked up ({reason}); check the path and its permissions"
        ) from None
    return path
