"""Folder of one run: its options, its finished work and its results, for one run at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapipe_env.ground.errors import DataError, fits_a_line, shortened, shown
from collapipe_env.ground.files import read_json, remove_partials, without_nan, write_json

CONTENT = (
    "run.json",  # the run's request; marks the folder as a run's
    "versions.json", "scenario.yaml", "scenarios",  # what it began with
    "checkpoints", "tensorboard", "tracking", "trainings",  # training
    "evaluation", "figures", "results.json", "summary.json", "results.csv", "episodes.csv", "table.md",
    "samples.md", "view.html", "paper", "leaderboard.json",  # evaluation
    "candidates.db", "tuning.json",
    "execution.json", "played", "state.safetensors", "trace.json", "weights.npz",
    "measured", "calibration.json", "profile.yaml",
)  # fmt: skip
"""Files and folders that commands write into a run's folder; starting over removes them and nothing else."""
LOCK = ".lock"
"""Locked file, which stays after a run, so that no run locks a file that another just removed."""
HOLDER = ".lock-holder.json"
"""Names the process that holds the lock."""
_START = {LOCK, HOLDER, "run.json", "versions.json", "scenario.yaml", "scenarios"}
_KINDS = (
    "calibration", "comparison", "evaluation", "evaluation in Python", "execution", "leaderboard", "tuning",
)  # fmt: skip
_UNLOCKABLE = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


@dataclass(frozen=True)
class RunDirectory:
    """A run's folder; ``run / "table.md"`` is the path of a file in it, see :data:`CONTENT`.

    Attributes:
        path: The folder.
        out_option: Option that names the folder, for errors.
        fresh_option: Option that starts over in it, for errors.
    """

    path: Path
    out_option: str = "--out"
    fresh_option: str = "--fresh"

    def __post_init__(self) -> None:
        if not fits_a_line(str(self.path)):  # no message could name such a folder in one line
            raise DataError(
                f"{self.out_option} {str(self.path)!r}: use a name without line breaks and control characters"
            )
        try:
            object.__setattr__(self, "path", self.path.expanduser())
        except RuntimeError as error:  # an unknown user
            raise DataError(f"{self.out_option} {str(self.path)!r}: {error}: {self._elsewhere}") from None

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def _elsewhere(self) -> str:
        return f"choose another place with {self.out_option}"

    def episodes_of(self, learner: str, rounds: int) -> Path:
        """Folder of the finished episodes of one learner and length, which no other evaluation overwrites."""
        return self.path / "evaluation" / f"{learner}-{rounds}"

    @contextlib.contextmanager
    def locked(self, command: str) -> Iterator[None]:
        """Make the folder, and keep other runs out of it inside this context.

        The operating system holds the lock: it ends with the process, even a killed one.

        Raises:
            DataError: If the folder cannot be used or belongs to something else, or another process works
                there, whose command is then named.
        """
        from filelock import FileLock, Timeout  # imported late: most callers of this module lock nothing

        self._before()
        lock = FileLock(self / LOCK, blocking=False)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise DataError(
                f"{self.path} is in use by {self._holder()}: wait until it is done or end it, or "
                f"{self._elsewhere}"
            ) from None
        except OSError as error:
            if error.errno not in _UNLOCKABLE:
                raise self._unusable(error) from None
            warnings.warn(
                f"the file system of {self.path} has no locks ({error.strerror}): make sure that no other "
                "run works there",
                stacklevel=3,
            )
        about = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
        try:
            with contextlib.suppress(DataError):  # a full disk: the lock holds without a name
                write_json(self / HOLDER, {**about, "command": command[:500]})
            remove_partials(self.path)
            yield
        finally:
            lock.release()

    def _holder(self) -> str:
        """Holder of the lock, as far as the file tells."""
        try:
            about = read_json(self / HOLDER, "", 4096)
            pid, host, since, command = (
                shortened("".join(c if c.isprintable() else " " for c in str(about[name])), 200)
                for name in ("pid", "host", "since", "command")
            )
        except (DataError, KeyError):  # still being written, or not by this package
            return "another process"
        return f"process {pid} on {host} since {since} ({command})"

    def open(self, asked: Mapping[str, Any], *, fresh: bool, growing: str | None = None) -> bool:
        """Make the folder, or continue in one that was made with the same options.

        Args:
            asked: Options that decide the results, as plain data.
            fresh: Start over: remove the files of an earlier run, and nothing else.
            growing: Name of a number in ``asked`` that may be larger than it was.

        Returns:
            Whether an earlier run is continued.

        Raises:
            DataError: If the folder belongs to something else or to a run with other options.
        """
        before = self._before()
        if fresh:
            self._clear()
        elif before is not None:
            different = differences(before, without_nan(asked))
            refused = [one for one in different if one[0] != growing or not _is_larger(one[2], one[1])]
            if not different:
                return True
            # Other options may take the place of a start after which nothing was made.
            if refused and any(entry.name not in _START for entry in self.path.iterdir()):
                raise self._made_otherwise(refused)
            write_json(self / "run.json", asked)
            return not refused
        write_json(self / "run.json", asked)
        return False

    def _before(self) -> dict[str, Any] | None:
        """Request of the run that is there already; ``None`` in a new folder."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise DataError(f"{self.path} is a file: {self._elsewhere}")
            names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        except OSError as error:
            raise self._unusable(error) from None
        if names <= {LOCK, HOLDER}:
            return None
        reason = "it has no run.json"
        if "run.json" in names:
            found = read_json(self / "run.json", self._elsewhere)
            if _is_ours(found):
                return found
            reason = "its run.json belongs to something else"
        raise DataError(f"{self.path} holds something other than a run ({reason}): {self._elsewhere}")

    def _unusable(self, error: OSError) -> DataError:
        place = shortened(str(self.path), 100)
        return DataError(f"cannot use {place} as a folder ({error.strerror}): {self._elsewhere}")

    def _made_otherwise(self, different: list[tuple[str, Any, Any]]) -> DataError:
        listed = "; ".join(
            f"{name} was {shown(old, 80)}, now {shown(new, 80)}" for name, old, new in different[:3]
        )
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        return DataError(
            f"{self.path} was made with other options ({listed}{more}): {self._elsewhere}, or start over "
            f"there with {self.fresh_option}"
        )

    def _clear(self) -> None:
        for path in (self / name for name in CONTENT):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def folder_name(text: str) -> str:
    """A scenario's name as the name of a folder or file."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text).strip(".") or "custom"


def _is_ours(content: Mapping[str, Any]) -> bool:
    """Whether a ``run.json`` belongs to a run, and not to some other program."""
    if "kind" in content:
        return content["kind"] in _KINDS
    return isinstance(content.get("scenario"), Mapping) and ("algo" in content or "agent" in content)


def _is_larger(now: object, before: object) -> bool:
    return isinstance(now, int) and isinstance(before, int) and now > before


def differences(before: Any, now: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """Places where two plain data differ, as dotted paths below a place, with both values."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = dict.fromkeys([*before, *now])
        pairs = [(name, before.get(name), now.get(name)) for name in names]
    elif _records(before) and _records(now) and len(before) == len(now):
        pairs = [(str(index), *both) for index, both in enumerate(zip(before, now, strict=True))]
    else:
        return [] if before == now else [(place, before, now)]
    prefix = f"{place}." if place else ""
    return [found for name, old, new in pairs for found in differences(old, new, f"{prefix}{name}")]


def _records(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)
