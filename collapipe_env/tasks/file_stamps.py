"""Stamps of files, which tell whether a file has changed since it was read, and data kept by them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar, cast

from collapipe_env.ground.typed_paths import given_path
from collapipe_env.tasks.hub import PREFIX

Stamp = tuple[tuple[str, int, int, int, int], ...]
"""Name, inode, size, and times of the last changes of content and of metadata, for every file."""

KEPT = 128
"""Most results of :func:`once` that a process keeps, outdated ones included; the least recently used one goes
first."""

T = TypeVar("T")


def once(make: Callable[..., T], dataset: str, checkpoint: str | None, *options: Hashable) -> T:
    """Return ``make(dataset, checkpoint, *options)``; a process makes it again only if files changed.

    Args:
        make: What reads or prepares data; it takes the files' names and the options, all hashable.

    Raises:
        DataError: If the data's path cannot be looked up.
    """
    return cast(T, _made(make, stamp_of(dataset, checkpoint), dataset, checkpoint, *options))


@functools.lru_cache(maxsize=KEPT)
def _made(make: Callable[..., object], stamp: Stamp, *options: Hashable) -> object:  # noqa: ARG001
    return make(*options)


def stamp_of(dataset: str, checkpoint: str | None = None) -> Stamp:
    """Return the stamp of a data set's files; part of the key under which the data is kept.

    Args:
        dataset: As in :class:`~collapipe_env.tasks.base.TaskSpec`. Data that the package ships does not
            change, and a data set of the Hugging Face hub has a stamp only if it is a local folder.
        checkpoint: Local folder of a checkpoint, if its tokeniser is used.

    Raises:
        DataError: If the data's path cannot be looked up.
    """
    stamp: Stamp = () if checkpoint is None else _stamp(Path(os.path.expanduser(checkpoint)))
    if dataset.startswith(PREFIX):
        name = dataset.removeprefix(PREFIX).partition(":")[0]
        return (*stamp, *_stamp(Path(name), below=True)) if name else stamp
    return stamp if dataset == "embedded" else (*stamp, *_stamp(given_path(dataset)))


def _stamp(path: Path, *, below: bool = False) -> Stamp:
    """Stamp a file, or the files of a folder (and of those below it); empty if nothing is there."""
    try:
        if not path.is_dir():
            return (_entry(path),)
        files = path.rglob("*") if below else path.iterdir()
        return tuple(_entry(file) for file in sorted(files) if file.is_file())
    except (OSError, ValueError):  # a null character in the name
        return ()  # the reader reports the error


def _entry(path: Path) -> tuple[str, int, int, int, int]:
    found = os.stat(path)
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
