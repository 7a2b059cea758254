"""Finished episodes as files: one for the figures, one for the decisions, with checksums over both."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.evaluation.episode import PlayedEpisode, pack_allocations, packed_bytes, unpack_allocations
from collapipe_env.evaluation.episode_result import REMEDY, EpisodeResult
from collapipe_env.ground.archives import open_zip
from collapipe_env.ground.errors import DataError, reason
from collapipe_env.ground.files import (
    ARCHIVE_BYTES,
    json_digest,
    read_json,
    read_regular,
    without_nan,
    write_bytes,
    write_json,
)
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario

EPISODE_BYTES = 4 * 1024**3
"""Largest file of figures that is read: some 220 bytes a round, and there may be millions of rounds."""
_PLAIN = re.compile(r"[a-z][a-z0-9_-]*")


def file_stem(scheduler: str) -> str:
    """A scheduler's name as part of a file name: valid on every system, and different for different names.

    Names of registered schedulers are unchanged. Other names, such as ``path/to/file.py:Name``, become their
    last characters with a digest of the whole name.
    """
    if _PLAIN.fullmatch(scheduler):
        return scheduler
    readable = re.sub(r"[^A-Za-z0-9_]+", "_", scheduler).strip("_")[-40:]
    return f"{readable}-{hashlib.sha256(scheduler.encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class EpisodeFiles:
    """The files of one scheduler's episode.

    Attributes:
        folder: Their folder.
        scheduler: Requested name of the scheduler.
        episode: Number of the episode.
        run: Training run of a learned scheduler, from 0.
    """

    folder: Path
    scheduler: str
    episode: int
    run: int = 0

    @property
    def figures(self) -> Path:
        """JSON file of the result."""
        return self.folder / f"{self._stem}.json"

    @property
    def decisions(self) -> Path:
        """File of the decisions, arrays with the rounds in front."""
        return self.folder / f"{self._stem}.npz"

    @property
    def model(self) -> Path:
        """Folder of the trained model, where it was kept."""
        return self.folder / f"{self._stem}-model"

    @property
    def new_model(self) -> Path:
        """Folder of the model until :meth:`keep_model`."""
        return self.folder / f"{self._stem}-model.part"

    def remove_unfinished_model(self) -> None:
        """Remove an incomplete model of an interrupted episode.

        Raises:
            DataError: If the folder cannot be removed.
        """
        try:
            if self.new_model.exists():
                shutil.rmtree(self.new_model)
        except OSError as error:
            raise self._in_the_way(error) from None

    def keep_model(self) -> None:
        """Give the complete new model its name, replacing that of an earlier episode.

        Raises:
            DataError: If a folder cannot be removed or renamed.
        """
        try:
            if self.model.exists():
                shutil.rmtree(self.model)
            self.new_model.rename(self.model)
        except OSError as error:
            raise self._in_the_way(error) from None

    def _in_the_way(self, error: OSError) -> DataError:
        return DataError(
            f"cannot replace the folder {self.model} ({error.strerror}): close what uses it, and run again"
        )

    @property
    def _stem(self) -> str:
        run = f"-run{self.run}" if self.run else ""
        return f"{file_stem(self.scheduler)}{run}-{self.episode}"

    def write(self, key: str, played: PlayedEpisode) -> None:
        """Store an episode.

        Args:
            key: Digest of everything that it depends on.

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
        # Written last: its presence marks the episode as finished.
        write_json(self.figures, {**figures, "checksum": json_digest(figures)})

    def is_finished(self, key: str) -> bool:
        """Whether the episode is stored completely, under the same key.

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
            raise self._unreadable(error) from None
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

    def read_decisions(self, scenario: Scenario, rounds: int) -> list[Allocation]:
        """The decisions, one for each round.

        Args:
            scenario: The scenario that was scheduled.
            rounds: Rounds that were played.

        Raises:
            DataError: If the file is missing, damaged or of another length, or unpacks to more than these
                decisions can need.
        """
        try:
            content = read_regular(self.decisions, ARCHIVE_BYTES)
        except OSError as error:
            raise self._unreadable(error) from None
        try:
            # Equal plans compress to almost nothing, so the file's size does not limit what it unpacks to.
            open_zip(content, packed_bytes(scenario, rounds)).close()
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return unpack_allocations(dict(arrays), rounds)
        except Exception as error:  # the libraries may raise anything for a damaged archive
            raise DataError(f"{self.decisions} is damaged ({reason(error)}): {REMEDY}") from None

    def _unreadable(self, error: OSError) -> DataError:
        return DataError(f"cannot read {self.decisions} ({error.strerror}): {REMEDY}")

    def _content(self) -> dict[str, Any]:
        content = read_json(self.figures, REMEDY, EPISODE_BYTES)
        intact = content.pop("checksum", None) == json_digest(content)
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
        if (read.scheduler, read.run, read.episode) != (self.scheduler, self.run, self.episode):
            run = f", run {read.run}" if read.run else ""
            raise DataError(
                f"{self.figures} holds episode {read.episode} of {read.scheduler!r}{run}: {REMEDY}"
            )
        return read
