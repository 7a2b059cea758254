"""One run at a time in a folder: a lock that the operating system releases when its process ends."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from collapipe_env.ground.errors import DataError, shortened
from collapipe_env.ground.files import parse_json

LOCK_NAME = ".lock"
"""Name of the lock file. It stays after a run, so that no run locks a file that another just removed."""
_LONGEST = 4096
"""Bytes of a lock file that are read."""

if sys.platform == "win32":
    import msvcrt

    # Windows keeps others from reading locked bytes, so a byte far behind the text is locked.
    _PLACE = 2**30

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextlib.contextmanager
def only_run_in(folder: Path, command: str, out_option: str) -> Iterator[None]:
    """Keep other runs out of a folder inside this context.

    The lock ends with the process, even a killed one; the file of a dead process locks nobody out.

    Args:
        folder: The folder, which exists.
        command: Command of this run, for other readers.
        out_option: Option that names the folder, for errors.

    Raises:
        DataError: If another process works there (the message names it), the folder cannot be written to, or
            the lock is not a regular file.
    """
    descriptor = _opened(folder / LOCK_NAME, out_option)
    try:
        _lock(descriptor, folder, out_option)
        _name_this_process(descriptor, command)
        yield
    finally:
        os.close(descriptor)  # which unlocks


def _opened(path: Path, out_option: str) -> int:
    """Open the lock file, but never through a link, whose target would be emptied."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    other = DataError(f"{path} is not a regular file: remove it, or choose another place with {out_option}")
    if path.is_symlink():  # for a clear message, and where O_NOFOLLOW is missing
        raise other
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise DataError(
            f"cannot write to {path.parent} ({error.strerror}): choose another place with {out_option}"
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise other
    return descriptor


def _lock(descriptor: int, folder: Path, out_option: str) -> None:
    try:
        locked = _try_lock(descriptor)
    except OSError as error:
        warnings.warn(
            f"the file system of {folder} has no locks ({error.strerror}): make sure that no other run works "
            "there",
            stacklevel=5,
        )
        return
    if not locked:
        raise DataError(
            f"{folder} is in use by {_holder(descriptor)}: wait until it is done or end it, or choose "
            f"another place with {out_option}"
        )


def _name_this_process(descriptor: int, command: str) -> None:
    about = {
        "pid": os.getpid(),
        "host": platform.node(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": command[: _LONGEST // 8],
    }
    with contextlib.suppress(OSError):  # a full disk: the lock holds without a name
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps(about).encode())


def _holder(descriptor: int) -> str:
    """Holder of the lock, as far as the file tells."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        about = parse_json(os.read(descriptor, _LONGEST))
        pid, host, since, command = (_printable(about[key]) for key in ("pid", "host", "since", "command"))
    except (ValueError, TypeError, KeyError):  # still being written, or not by this package
        return "another process"
    return f"process {pid} on {host} since {since} ({command})"


def _printable(value: object) -> str:
    """Text of one line, not too long."""
    return shortened("".join(c if c.isprintable() else " " for c in str(value)), 200)
