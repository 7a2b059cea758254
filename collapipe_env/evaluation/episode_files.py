"""Finished episodes as files: one for each, with its figures and decisions."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collapipe_env.evaluation.episode import PlayedEpisode, pack_allocations, packed_bytes, unpack_allocations
from collapipe_env.evaluation.episode_result import REMEDY, EpisodeResult
from collapipe_env.evaluation.folder_content import Files, write_below
from collapipe_env.ground.archives import open_zip
from collapipe_env.ground.errors import DataError, reason
from collapipe_env.ground.files import ARCHIVE_BYTES, read_regular, unpacked_limit, write_bytes
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario

FIGURES = "episode.json"
"""Name of the figures in the archive, beside the arrays of the decisions."""
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


def packed_episode(key: str, played: PlayedEpisode) -> bytes:
    """Return the content of an episode's file: an ``.npz`` of the decisions, and the figures as JSON.

    Args:
        key: Digest of everything that it depends on.
    """
    archive = io.BytesIO()
    np.savez_compressed(archive, **pack_allocations(played.allocations))  # type: ignore[arg-type]
    with zipfile.ZipFile(archive, "a") as members:
        figures = json.dumps(played.result.to_dict())
        members.writestr(zipfile.ZipInfo(FIGURES), figures, zipfile.ZIP_DEFLATED)
        members.comment = key.encode()
    return archive.getvalue()


@dataclass(frozen=True)
class EpisodeFiles:
    """The files of one scheduler's episode, of one training run if it is a learned one."""

    folder: Path
    scheduler: str
    episode: int
    run: int = 0

    @property
    def path(self) -> Path:
        """The episode."""
        return self.folder / f"{self._stem}.npz"

    @property
    def model(self) -> Path:
        """Folder of the trained model, where it was kept."""
        return self.folder / f"{self._stem}-model"

    @property
    def _stem(self) -> str:
        run = f"-run{self.run}" if self.run else ""
        return f"{file_stem(self.scheduler)}{run}-{self.episode}"

    def write(self, content: bytes, model: Files) -> None:
        """Store an episode packed by :func:`packed_episode`, and the files of its trained model, if any.

        Raises:
            DataError: If a file cannot be written or replaced.
        """
        if model:
            unfinished = self.model.with_name(f"{self.model.name}.part")
            try:
                shutil.rmtree(unfinished, ignore_errors=True)
                write_below(unfinished, model)
                if self.model.exists():
                    shutil.rmtree(self.model)
                unfinished.rename(self.model)
            except OSError as error:
                raise DataError(
                    f"cannot replace the folder {self.model} ({error.strerror}): close what uses it, and run "
                    "again"
                ) from None
        write_bytes(self.path, content)  # last: its presence marks the episode as finished

    def is_finished(self, key: str, scenario: Scenario, rounds: int, until_target: bool = False) -> bool:
        """Whether the episode is stored completely, under the same key.

        Args:
            until_target: Whether a target loss may have ended it before these rounds.

        Raises:
            DataError: If it is stored, but damaged.
        """
        if not self.path.exists():
            return False
        with self._opened() as (archive, size):
            if archive.comment != key.encode():
                return False
            played = len(self._figures(archive, size).delay)
            _decisions(archive, scenario, min(played, rounds) if until_target else rounds)
        return True

    def read(self, content: bytes | None = None) -> EpisodeResult:
        """The figures.

        Args:
            content: Content of the file, where it is at hand: somebody may have changed the file meanwhile.

        Raises:
            DataError: If the file is missing or damaged, or holds another episode.
        """
        with self._opened(content) as (archive, size):
            return self._figures(archive, size)

    def read_decisions(self, scenario: Scenario, rounds: int, until_target: bool = False) -> list[Allocation]:
        """The decisions, one for each round.

        Args:
            until_target: Whether a target loss may have ended the episode before these rounds.

        Raises:
            DataError: If the file is missing, damaged or of another length, or unpacks to more than these
                decisions can need.
        """
        with self._opened() as (archive, size):
            if until_target:
                rounds = min(rounds, len(self._figures(archive, size).delay))
            return _decisions(archive, scenario, rounds)

    @contextlib.contextmanager
    def _opened(self, content: bytes | None = None) -> Iterator[tuple[zipfile.ZipFile, int]]:
        """The file's archive and size; whatever reads a member to its end compares its checksum."""
        try:
            content = read_regular(self.path, ARCHIVE_BYTES) if content is None else content
        except OSError as error:
            raise DataError(f"cannot read {self.path} ({error.strerror}): {REMEDY}") from None
        try:
            with open_zip(content, sys.maxsize) as archive:
                yield archive, len(content)
        except DataError:
            raise
        except Exception as error:  # the libraries may raise anything for a damaged archive
            raise DataError(f"{self.path} is damaged ({reason(error)}): {REMEDY}") from None

    def _figures(self, archive: zipfile.ZipFile, size: int) -> EpisodeResult:
        figures = archive.getinfo(FIGURES)
        _limit([figures], unpacked_limit(size))
        read = EpisodeResult.from_json(archive.read(figures), str(self.path))
        if (read.scheduler, read.run, read.episode) != (self.scheduler, self.run, self.episode):
            run = f", run {read.run}" if read.run else ""
            raise DataError(f"{self.path} holds episode {read.episode} of {read.scheduler!r}{run}: {REMEDY}")
        return read


def _decisions(archive: zipfile.ZipFile, scenario: Scenario, rounds: int) -> list[Allocation]:
    arrays = [member for member in archive.infolist() if member.filename != FIGURES]
    # Equal plans compress to almost nothing, so the file's size does not limit what it unpacks to.
    _limit(arrays, packed_bytes(scenario, rounds))
    found = {}
    for member in arrays:
        with archive.open(member) as file:
            found[member.filename.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
    return unpack_allocations(found, rounds)


def _limit(members: Iterable[zipfile.ZipInfo], most: int) -> None:
    """Refuse members of an archive that unpack to more bytes."""
    unpacked = sum(member.file_size for member in members)
    if unpacked > most:
        raise zipfile.BadZipFile(f"it unpacks to {unpacked:,} bytes, above the limit of {most:,}")
