"""Sources of traces: the files below a path, their checksum, and their split into train, dev and test."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar

from collapipe_env.ground.errors import DataError, shortened, shown
from collapipe_env.ground.typed_paths import given_path, why_unusable
from collapipe_env.trace_files.trace import Trace
from collapipe_env.trace_files.trace_reading import Columns, content_of, read_traces

ENDINGS = (".csv", ".csv.gz", ".txt", ".tsv")
"""Endings of the files that are read from a folder."""
MOST_FILES = 10_000
"""Most files of a source."""
DATA_FOLDER = "COLLAPIPE_DATA"
"""Environment variable that names a second folder for relative paths."""

Part = Literal["all", "train", "dev", "test"]
Item = TypeVar("Item")
_Stamp = tuple[tuple[str, int, int, int], ...]


def split(items: Sequence[Item], part: Part) -> list[Item]:
    """Return those of all files or traces, in the order of their names, that belong to a part.

    Index mod 5 is 3 for dev, 4 for test, otherwise train.
    """
    named = {3: "dev", 4: "test"}
    return [one for index, one in enumerate(items) if part in ("all", named.get(index % 5, "train"))]


def source_files(source: str | Iterable[str]) -> tuple[Path, ...]:
    """Files of a source, in the order of their names.

    Args:
        source: A folder, a file, or several of them, each looked up by :func:`found_path`.

    Raises:
        DataError: If a path does not exist, a folder holds no traces, or a file is named twice.
    """
    given = (source,) if isinstance(source, str) else tuple(source)
    if not given:
        raise DataError("the source of traces is an empty list: name a folder or files")
    found: list[Path] = []
    for text in given:
        path = found_path(text)
        if not path.is_dir():
            found.append(path)
            continue
        inside = [
            file
            for file in path.iterdir()
            if file.name.lower().endswith(ENDINGS) and not file.name.startswith(".") and file.is_file()
        ]
        if not inside:
            raise DataError(f"{path} holds no trace files, {', '.join(ENDINGS)}: name the folder that does")
        found += inside
    if len(found) > MOST_FILES:
        raise DataError(f"{len(found):,} trace files, above the limit of {MOST_FILES:,}: name fewer")
    found.sort(key=lambda path: (path.name, str(path)))
    for path, following in pairwise(found):
        if path.name == following.name:
            raise DataError(
                f"{path} and {following} have the same name, by which traces are told apart: rename one of "
                "them, or name it once"
            )
    return tuple(found)


def found_path(text: str) -> Path:
    """Path of a file or folder that a scenario names.

    A relative path that does not exist is also looked up in the folder that the environment variable
    ``COLLAPIPE_DATA`` names.

    Raises:
        DataError: If it does not exist.
    """
    if not isinstance(text, str) or not text:
        raise DataError(f"the source of traces {shown(text)} is not a path: name a folder or a file")
    path = given_path(text)
    if path.exists():
        return path
    places = [str(path)]
    data = os.environ.get(DATA_FOLDER)
    if data and not path.is_absolute():
        below = given_path(data) / path
        if below.exists():
            return below
        places.append(str(below))
    raise DataError(
        f"traces: {shortened(' and '.join(places))}: {why_unusable(path)}; check the path"
        + ("" if data else f", or set {DATA_FOLDER} to the folder of data sets")
    )


def checksum(paths: Sequence[Path]) -> str:
    """SHA-256 of names and contents of files, sorted by name, in hexadecimal digits; folders do not count.

    Raises:
        DataError: If one cannot be read.
    """
    return _checksum(_stamp(paths))


def file_checksums(paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its name.

    Raises:
        DataError: If one cannot be read.
    """
    return {path.name: hashlib.sha256(content_of(path)).hexdigest() for path in paths}


def _stamp(paths: Sequence[Path]) -> _Stamp:
    """Names, sizes and times of files, from which changes are detected."""
    found = []
    for path in paths:
        try:
            about = path.stat()
        except OSError as error:
            raise DataError(f"{path}: cannot be looked up ({error.strerror}); check the path") from None
        found.append((str(path), about.st_size, about.st_mtime_ns, about.st_ino))
    return tuple(found)


@lru_cache(maxsize=32)
def _checksum(stamp: _Stamp) -> str:
    each = file_checksums((Path(name) for name, *_ in stamp))
    text = "".join(f"{name}\0{digits}\n" for name, digits in each.items())
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def source_traces(source: str | Iterable[str], columns: Columns, part: Part) -> tuple[Trace, ...]:
    """Traces of a part of a source, read anew.

    Files and parts of files in which the quantity is missing from half of the rows are left out. They still
    count in the split: a file belongs to the same part whichever quantity is read.

    Args:
        source: As for :func:`source_files`.

    Raises:
        DataError: If a file is malformed (the message names file and line), or no trace is left.
    """
    every = [trace for path in source_files(source) for trace in read_traces(path, columns)]
    found = tuple(trace for trace in split(every, part) if trace is not None)
    if not found:
        raise DataError(
            f"the part {part!r} of {shortened(str(source))} holds none of its {len(every)} traces: choose "
            "split: all, or add files"
        )
    return found
