"""Zip archives from untrusted sources, checked before they are unpacked.

A few bytes of an archive can list millions of members, or unpack to any number of bytes. So members are
counted before Python reads their list, and sizes are added up before anything is unpacked.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from collapipe_env.ground.errors import shown
from collapipe_env.ground.files import unpacked_limit

MEMBERS = 10_000
"""Most members that an archive may have."""

_SIGNATURE = b"PK\x01\x02"  # of each entry in the list of members
_CHUNK = 1024**2


def open_zip(source: bytes | Path, most: int | None = None) -> zipfile.ZipFile:
    """Open an archive if its members are stored or deflated and their number and sizes are within limits.

    Args:
        source: The archive's bytes, or a regular file, which may be too large to hold in memory twice.
        most: Most bytes to unpack to; by default :func:`~collapipe_env.ground.files.unpacked_limit` of its
            size.

    Raises:
        zipfile.BadZipFile: If it is not an archive or exceeds the limits.
        OSError: If the file cannot be read.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
        listed, size = _listed(stream), stream.tell()
    if listed > MEMBERS:
        raise zipfile.BadZipFile(f"it lists {listed:,} members, above the limit of {MEMBERS:,}")
    archive = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
    try:
        _require_usual(archive.infolist(), unpacked_limit(size) if most is None else most)
    except zipfile.BadZipFile:
        archive.close()
        raise
    return archive


def _listed(stream: BinaryIO) -> int:
    """Count the entries in the list of members by their signature, so that a false length hides none."""
    count, rest = 0, b""
    while chunk := stream.read(_CHUNK):
        chunk = rest + chunk
        count += chunk.count(_SIGNATURE)
        rest = chunk[1 - len(_SIGNATURE) :]  # too short to hold one that was counted
    return count


def _require_usual(members: Sequence[zipfile.ZipInfo], most: int) -> None:
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{shown(member.filename)} is compressed in an unusual way")
    unpacked = sum(member.file_size for member in members)
    if unpacked > most:
        raise zipfile.BadZipFile(f"it unpacks to {unpacked:,} bytes, above the limit of {most:,}")
