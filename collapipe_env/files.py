"""Files that are either complete or not there: written under a temporary name, then renamed."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapipe_env.errors import DataError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, never meets half of it.

    Args:
        path: Where; missing folders are made.
        content: All of it.

    Raises:
        DataError: If the place cannot be written to.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise DataError(
            f"cannot write {path} ({error.strerror}): free some space, or choose another place with --out "
            "(--output in fit_surrogate)"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Like :func:`write_bytes`, for UTF-8 text."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Like :func:`write_bytes`, for a JSON object; numbers that are not finite become ``null``."""
    write_text(path, json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.
        remedy: What to do about a damaged one, for the error.

    Raises:
        DataError: If it cannot be read or holds no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): {remedy}") from None
    except ValueError as error:  # covers text that is no UTF-8, too
        raise DataError(f"{path} is damaged ({error}): {remedy}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__} instead of an object: {remedy}")
    return content


def without_nan(value: Any) -> Any:
    """Plain data with ``None`` for every number that is not finite, which JSON cannot express."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value
