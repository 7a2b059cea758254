"""Manifest of known sets of traces: checksums of public data sets, which the package does not contain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from collapipe_env.ground.errors import DataError, nearest_name
from collapipe_env.trace_files.trace_sources import file_checksums, source_files


class KnownSet(NamedTuple):
    """Files of a public data set.

    Attributes:
        folder: Folder below ``COLLAPIPE_DATA`` in which it is looked for.
        files: SHA-256 of each file, by its name.
    """

    format: str
    folder: str
    files: Mapping[str, str]


@cache
def known_sets() -> Mapping[str, KnownSet]:
    """Known sets by name."""
    text = resources.files("collapipe_env.trace_files").joinpath("trace_manifest.json").read_text("utf-8")
    return {name: KnownSet(**fields) for name, fields in json.loads(text).items()}


def verify_set(name: str, source: str | None = None) -> None:
    """Check that a folder holds a known set, file by file.

    Args:
        source: Its folder; ``None`` for its usual place below ``COLLAPIPE_DATA``.

    Raises:
        DataError: If the set is not known, or a file is missing, superfluous, or has another content.
    """
    if name not in known_sets():
        raise DataError(f"there is no known set of traces {name!r}; {nearest_name(name, known_sets())}")
    expected = known_sets()[name]
    folder = source or expected.folder
    found = file_checksums(source_files(folder))
    for file in sorted(expected.files.keys() | found.keys()):
        if file not in found:
            raise DataError(f"{folder} lacks {file} of {name}: fetch the set again")
        if file not in expected.files:
            raise DataError(f"{folder} holds {file}, which is not part of {name}: remove it")
        if found[file] != expected.files[file]:
            raise DataError(
                f"{file} in {folder} is not that of {name}: its SHA-256 is {found[file][:12]}..., not "
                f"{expected.files[file][:12]}...; fetch it again"
            )
