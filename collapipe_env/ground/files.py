"""Files: written under a temporary name, then renamed; read within limits, and only if regular.

A file may come from anyone. Opening a named pipe may block, a device may never end, and a small archive may
unpack to any size: all are refused before they cost more than a moment.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import math
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from collapipe_env.ground.errors import LARGEST_BITS, DataError, shown

JSON_BYTES = 64 * 1024**2
"""Largest JSON file that is read [byte], unless the caller gives another limit."""
ARCHIVE_BYTES = 2 * 1024**3
"""Largest archive that is read [byte], such as a saved agent."""
JSON_DEPTH = 64
"""Deepest nesting of objects and lists in a JSON file."""
_MANY_DIGITS = re.compile(rb"(?<![0-9])[0-9]{%d}" % math.floor(LARGEST_BITS * math.log10(2)))
"""Run of digits long enough for an integer above :data:`~collapipe_env.ground.errors.LARGEST_BITS`."""
UNPACKED_TIMES = 100
"""Most times its own size that an archive may unpack to; text and weights stay far below."""
UNPACKED_ANYWAY = 64 * 1024**2
"""Bytes that any archive may unpack to, however small it is."""

_CHUNK = 1024**2
_PARTIAL = re.compile(r"\..+\.([0-9]{1,10})\.partial", re.DOTALL)
_ABANDONED_S = 3600.0  # longer than writing any file takes [s]


def write_bytes(path: Path, content: bytes, option: str = "--out") -> None:
    """Write a file so that a reader never sees half of it, even after a crash.

    Args:
        path: The file; missing folders are made. An existing file keeps its permissions.
        option: Option that names the place, for the error.

    Raises:
        DataError: If the place cannot be written to.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            # Set before anything is written: nobody else may read a private file even for a moment.
            partial.touch()
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        remedy = "remove the file that stands for a folder" if in_the_way else "free some space"
        raise DataError(
            f"cannot write {path} ({error.strerror}): {remedy}, or choose another place with {option}"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def remove_partials(folder: Path) -> None:
    """Remove the partial files below a folder that processes killed during :func:`write_bytes` have left.

    The folder must be one that only this process works in. Files of processes that may still be writing,
    such as workers of a killed run, stay.
    """
    for found in folder.rglob(".*.partial"):
        named = _PARTIAL.fullmatch(found.name)
        if named is None or found.is_symlink() or not found.is_file() or _may_write(int(named[1]), found):
            continue
        with contextlib.suppress(OSError):
            found.unlink()


def _may_write(pid: int, partial: Path) -> bool:
    """Whether another process of this number exists, or may exist, and the file is fresh."""
    if pid == os.getpid():  # an earlier process with this number, as in containers
        return False
    if os.name == "posix":
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            pass
    try:
        return time.time() - partial.stat().st_mtime < _ABANDONED_S
    except OSError:
        return True


def write_text(path: Path, text: str, option: str = "--out") -> None:
    """Write UTF-8 text as :func:`write_bytes` does."""
    write_bytes(path, text.encode("utf-8"), option)


def write_json(path: Path, content: Mapping[str, Any], option: str = "--out") -> None:
    """Write a JSON object as :func:`write_bytes` does; numbers that are not finite become ``null``."""
    write_text(path, json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n", option)


def open_regular(path: Path, largest: int) -> BinaryIO:
    """Open a regular file for reading bytes.

    Args:
        path: The file; links are followed.
        largest: Most bytes that it may have.

    Raises:
        OSError: If it cannot be opened, is a folder, a named pipe, a device or a socket, or is larger;
            ``strerror`` says which, for a message.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        # Without O_NONBLOCK, opening a named pipe waits for somebody to write into it.
        handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    except ValueError as error:  # a null byte in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        about = os.fstat(handle)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe, a device or a socket, not a regular file", str(path))
        if about.st_size > largest:
            raise OSError(
                errno.EFBIG, f"it has {about.st_size:,} bytes, above the limit of {largest:,}", str(path)
            )
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, largest: int) -> bytes:
    """Return all of a regular file.

    Args:
        largest: Most bytes that it may have.

    Raises:
        OSError: As for :func:`open_regular`; also if more than ``largest`` bytes come from a file that
            states fewer, as in ``/proc``.
    """
    with open_regular(path, largest) as file:
        return _all_of(file, largest, "has", path)


def read_gzip(path: Path, largest: int) -> bytes:
    """Return the content of a gzip-compressed file.

    Args:
        largest: Most bytes that it may have and unpack to; see also :func:`unpacked_limit`.

    Raises:
        OSError: As for :func:`open_regular`; ``gzip.BadGzipFile`` if it is damaged.
        EOFError: If it is truncated.
        zlib.error: If it is damaged.
    """
    with open_regular(path, largest) as file, gzip.GzipFile(fileobj=file) as unpacked:
        most = min(largest, unpacked_limit(os.fstat(file.fileno()).st_size))
        return _all_of(unpacked, most, "unpacks to", path)


def _all_of(file: IO[bytes] | gzip.GzipFile, most: int, verb: str, path: Path) -> bytes:
    """Read in pieces: ``read(n)`` allocates n bytes, however small the file is."""
    chunks, left = [], most
    while chunk := file.read(_CHUNK):
        left -= len(chunk)
        if left < 0:
            raise OSError(errno.EFBIG, f"it {verb} more bytes than the limit of {most:,}", str(path))
        chunks.append(chunk)
    return b"".join(chunks)


def unpacked_limit(packed: int) -> int:
    """Return the most bytes that an archive of some size [byte] may unpack to."""
    return max(UNPACKED_ANYWAY, UNPACKED_TIMES * packed)


def read_json(path: Path, remedy: str, largest: int = JSON_BYTES) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        remedy: Advice on a damaged file, for the error.
        largest: Most bytes that it may have.

    Raises:
        DataError: If it cannot be read, holds no JSON object, or is larger or deeper than allowed.
    """
    try:
        content = parse_json(read_regular(path, largest))
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): {remedy}") from None
    except ValueError as error:  # also covers text that is not UTF-8
        raise DataError(f"{path} is damaged ({error}): {remedy}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} holds {_named(content)} instead of an object: {remedy}")
    return content


def _named(content: Any) -> str:
    """Return JSON's name for a value that is not an object."""
    kinds = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(content), "a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse a name that appears twice, as one of its values would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {shown(twice)} appears {times} times in an object")
    return found


def parse_json(content: bytes) -> Any:
    """Return the value of JSON text in UTF-8.

    Raises:
        ValueError: If it is not JSON, is nested deeper than :data:`JSON_DEPTH`, holds a name twice in one
            object, or an integer beyond all floating-point numbers, which would overflow wherever it is used.
    """
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_object)
    except RecursionError:
        raise ValueError(f"nested deeper than {JSON_DEPTH} levels") from None
    long = _MANY_DIGITS.search(content) is not None
    level: list[Any] = [[value]]
    for _ in range(JSON_DEPTH + 1):
        inner = []
        for container in level:
            for item in container.values() if type(container) is dict else container:
                kind = type(item)
                if kind is dict or kind is list:
                    inner.append(item)
                elif long and kind is int and item.bit_length() > LARGEST_BITS:
                    raise ValueError(f"an integer of {item.bit_length():,} bits")
        level = inner
    if level:
        raise ValueError(f"nested deeper than {JSON_DEPTH} levels")
    return value


def json_digest(content: Any) -> str:
    """Return the SHA-256 of plain data as JSON with sorted names, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def without_nan(value: Any) -> Any:
    """Return data as JSON has it: dataclasses by field, paths as text, ``None`` for numbers not finite."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value
