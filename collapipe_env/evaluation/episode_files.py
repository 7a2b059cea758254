"""Finished episodes as files: one for the figures, one for the decisions, with checksums over both."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.errors import DataError
from collapipe_env.evaluation.episode import (
    REMEDY,
    EpisodeResult,
    PlayedEpisode,
    pack_allocations,
    unpack_allocations,
)
from collapipe_env.files import (
    ARCHIVE_BYTES,
    read_json,
    read_regular,
    without_nan,
    write_bytes,
    write_json,
)

EPISODE_BYTES = 4 * 1024**3
"""Largest file of figures that is read: some 220 bytes a round, and there may be millions of rounds."""
_PLAIN = re.compile(r"[a-z][a-z0-9_]*")


def file_stem(scheduler: str) -> str:
    """A scheduler's name as part of a file's name, on every system and different for different names.

    Names of registered schedulers stay as they are. Of others, such as ``path/to/file.py:Name``, the end is
    kept, with a digest of the whole.
    """
    if _PLAIN.fullmatch(scheduler):
        return scheduler
    readable = re.sub(r"[^A-Za-z0-9_]+", "_", scheduler).strip("_")[-40:]
    return f"{readable}-{hashlib.sha256(scheduler.encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class EpisodeFiles:
    """The files of one scheduler's episode.

    Attributes:
        folder: Where they are.
        scheduler: Name that the scheduler was asked for by.
        episode: Number of the episode.
    """

    folder: Path
    scheduler: str
    episode: int

    @property
    def figures(self) -> Path:
        """JSON file of the result."""
        return self.folder / f"{file_stem(self.scheduler)}-{self.episode}.json"

    @property
    def decisions(self) -> Path:
        """File of the decisions, arrays with the rounds in front."""
        return self.folder / f"{file_stem(self.scheduler)}-{self.episode}.npz"

    def write(self, key: str, played: PlayedEpisode) -> None:
        """Store an episode.

        Args:
            key: Digest of everything that it depends on.
            played: The episode.

        Raises:
            DataError: If a file cannot be written.
        """
        arrays = io.BytesIO()
        np.savez_compressed(arrays, **pack_allocations(played.allocations))  # type: ignore[arg-type]
        content = arrays.getvalue()
        write_bytes(self.decisions, content)
        figures = {
            "key": key,
            "decisions": hashlib.sha256(content).hexdigest(),
            "result": without_nan(played.result.to_dict()),
        }
        # Written last: where it stands, the episode is finished.
        write_json(self.figures, {**figures, "checksum": _checksum(figures)})

    def is_finished(self, key: str) -> bool:
        """Whether the episode is stored whole, and depends on what the key says.

        Raises:
            DataError: If it is stored, but damaged.
        """
        if not self.figures.exists():
            return False
        content = self._content()
        if content["key"] != key:
            return False
        try:
            decisions = read_regular(self.decisions, ARCHIVE_BYTES)
        except OSError as error:
            raise DataError(f"cannot read {self.decisions} ({error.strerror}): {REMEDY}") from None
        if hashlib.sha256(decisions).hexdigest() != content["decisions"]:
            raise DataError(f"{self.decisions} is damaged (its checksum differs): {REMEDY}")
        self._result(content)
        return True

    def read(self) -> EpisodeResult:
        """The figures.

        Raises:
            DataError: If the file is missing or damaged.
        """
        return self._result(self._content())

    def read_decisions(self) -> list[Allocation]:
        """The decisions, one for each round.

        Raises:
            DataError: If the file is missing or damaged.
        """
        try:
            with np.load(
                io.BytesIO(read_regular(self.decisions, ARCHIVE_BYTES)), allow_pickle=False
            ) as arrays:
                return unpack_allocations(dict(arrays))
        except (
            OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, MemoryError,
            NotImplementedError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error,
        ) as error:  # fmt: skip
            raise DataError(
                f"{self.decisions} is damaged ({str(error) or type(error).__name__}): {REMEDY}"
            ) from None

    def _content(self) -> dict[str, Any]:
        try:
            content = read_json(self.figures, REMEDY, EPISODE_BYTES)
            intact = content.pop("checksum", None) == _checksum(content)
        except (RecursionError, MemoryError) as error:
            raise DataError(f"{self.figures} is damaged ({type(error).__name__}): {REMEDY}") from None
        if not intact or set(content) != {"key", "decisions", "result"}:
            raise DataError(
                f"{self.figures} is damaged or of an older version (its checksum differs): {REMEDY}"
            )
        return content

    def _result(self, content: Mapping[str, Any]) -> EpisodeResult:
        result = content["result"]
        if not isinstance(result, dict):
            raise DataError(f"{self.figures} holds no result: {REMEDY}")
        read = EpisodeResult.from_dict(result, str(self.figures))
        if (read.scheduler, read.episode) != (self.scheduler, self.episode):
            raise DataError(f"{self.figures} holds episode {read.episode} of {read.scheduler!r}: {REMEDY}")
        return read


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
