"""Folder of one run: its options, its finished work and its results."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.run_lock import LOCK_NAME, only_run_in
from collapipe_env.ground.errors import DataError, fits_a_line, shortened, shown
from collapipe_env.ground.files import read_json, remove_partials, without_nan, write_json

_KINDS = (
    "calibration", "comparison", "evaluation", "evaluation in Python", "execution", "leaderboard", "tuning",
)  # fmt: skip
"""Kinds in ``run.json`` of the runs that train nothing; others name the algorithm or the agent."""


class _Entry:
    """A file or folder in a run's folder.

    Args:
        name: Its name there; that of a folder has no suffix.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: RunDirectory, _: type[RunDirectory]) -> Path:
        """Its path."""
        return run.path / self.name


@dataclass(frozen=True)
class RunDirectory:
    """Names of everything in a run's folder.

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
            raise DataError(
                f"{self.out_option} {str(self.path)!r}: {error}: choose another place with {self.out_option}"
            ) from None

    options = _Entry("run.json")
    """The run's request; marks the folder as a run's."""
    versions = _Entry("versions.json")
    """Versions of everything that worked here."""
    scenario = _Entry("scenario.yaml")
    """The effective scenario."""
    scenarios = _Entry("scenarios")
    """The effective scenarios of a comparison."""
    checkpoints = _Entry("checkpoints")
    """Versions of an agent that is trained here."""
    tensorboard = _Entry("tensorboard")
    """Curves of its training."""
    tracking = _Entry("tracking")
    """Files of a tracker to which its training also reports."""
    episodes = _Entry("evaluation")
    """All finished episodes."""
    figures = _Entry("figures")
    """The pictures."""
    results = _Entry("results.json")
    """Everything measured in a single scenario."""
    summary = _Entry("summary.json")
    """The summary of a comparison."""
    rounds = _Entry("results.csv")
    """Every round."""
    episode_table = _Entry("episodes.csv")
    """Every episode."""
    table = _Entry("table.md")
    """The table."""
    candidates = _Entry("candidates.db")
    """Finished candidates of a tuning, an Optuna study in SQLite."""
    tuning = _Entry("tuning.json")
    """Everything measured in a tuning."""
    execution = _Entry("execution.json")
    """Everything measured in an execution."""
    played = _Entry("played")
    """Reports of its finished rounds."""
    state = _Entry("state.safetensors")
    """State after its last finished round, from which it continues."""
    trace = _Entry("trace.json")
    """Its operations and transfers, for trace viewers."""
    measured = _Entry("measured")
    """Finished rounds of a calibration."""
    calibration = _Entry("calibration.json")
    """Everything measured in a calibration."""
    profile = _Entry("profile.yaml")
    """The scenario of the machine that it measured."""
    weights = _Entry("weights.npz")
    """Weights that it trained."""
    view = _Entry("view.html")
    """Its page, from ``collapipe view``."""
    trainings = _Entry("trainings")
    """Folders of several trainings, one for each seed."""
    board = _Entry("leaderboard.json")
    """Everything measured for the leaderboard."""
    samples = _Entry("samples.md")
    """Text that trained language models wrote."""

    def episodes_of(self, learner: str, rounds: int) -> Path:
        """Folder of the finished episodes of one learner and length, which no other evaluation overwrites.

        Args:
            learner: Name of the learner.
            rounds: Rounds of an episode.
        """
        return self.episodes / f"{learner}-{rounds}"

    @contextlib.contextmanager
    def locked(self, command: str) -> Iterator[None]:
        """Make the folder, and keep other runs out of it inside this context.

        Args:
            command: Command of this run, for other readers.

        Raises:
            DataError: If the folder cannot be used, belongs to something else, or another process works in
                it.
        """
        self._occupied()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        with only_run_in(self.path, command, self.out_option):
            remove_partials(self.path)
            yield

    def open(
        self,
        asked: Mapping[str, Any],
        *,
        fresh: bool,
        growing: str | None = None,
        deciding: Collection[str] | None = None,
    ) -> bool:
        """Make the folder, or continue in one that was made with the same options.

        Args:
            asked: Options that decide the trained agent, as plain data.
            fresh: Start over: remove the files of an earlier run, and nothing else.
            growing: Name of a number in ``asked`` that may be larger than it was.
            deciding: Entries of ``asked`` that must agree with an earlier run's; its other entries stay as
                they are. All by default.

        Returns:
            Whether an earlier run is continued.

        Raises:
            DataError: If the folder belongs to something else or to a run with other options.
        """
        occupied = self._occupied()
        if occupied and fresh:
            self._clear()
        elif occupied:
            try:
                grown = self._require_same(without_nan(asked), growing, deciding)
            except DataError:
                if self._played():
                    raise
                write_json(self.options, asked)
                return False
            if grown:
                write_json(self.options, asked)
            return True
        write_json(self.options, asked)
        return False

    def _played(self) -> bool:
        """Whether there is more than the record of a start: episodes, trainings or results."""
        started = {self.options.name, self.versions.name, self.scenario.name, self.scenarios.name}
        return any(entry.name not in {LOCK_NAME, *started} for entry in self.path.iterdir())

    def _occupied(self) -> bool:
        """Whether a run is there already.

        Raises:
            DataError: If the folder cannot be used or belongs to something else.
        """
        try:
            if self.path.exists() and not self.path.is_dir():
                raise DataError(f"{self.path} is a file: choose another place with {self.out_option}")
            names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        except OSError as error:
            raise self._unusable(error) from None
        if not names - {LOCK_NAME}:
            return False
        if self.options.name not in names:
            reason = "it has no run.json"
        elif not _is_ours(read_json(self.options, f"choose another place with {self.out_option}")):
            reason = "its run.json belongs to something else"
        else:
            return True
        raise DataError(
            f"{self.path} holds something other than a run ({reason}): choose another place with "
            f"{self.out_option}"
        )

    def _unusable(self, error: OSError) -> DataError:
        return DataError(
            f"cannot use {shortened(str(self.path), 100)} as a folder ({error.strerror}): choose another "
            f"place with {self.out_option}"
        )

    def _require_same(
        self, asked: Mapping[str, Any], growing: str | None, deciding: Collection[str] | None
    ) -> bool:
        """Refuse other options than before; returns whether the number that may grow has grown."""
        before = dict(read_json(self.options, f"choose another place with {self.out_option}"))
        if deciding is not None:
            before = {name: before.get(name) for name in deciding}
            asked = {name: asked.get(name) for name in deciding}
        different = differences(before, asked)
        grown = [entry for entry in different if entry[0] == growing and _is_larger(entry[2], entry[1])]
        different = [entry for entry in different if entry not in grown]
        if different:
            listed = "; ".join(
                f"{name} was {shown(old, 80)}, now {shown(new, 80)}" for name, old, new in different[:3]
            )
            more = f" and {len(different) - 3} more" if len(different) > 3 else ""
            # A run that requires only some entries to agree wants the earlier work kept.
            restart = f", or start over there with {self.fresh_option}" if deciding is None else ""
            raise DataError(
                f"{self.path} was made with other options ({listed}{more}): choose another place with "
                f"{self.out_option}{restart}"
            )
        return bool(grown)

    def _clear(self) -> None:
        for entry in vars(RunDirectory).values():
            if isinstance(entry, _Entry) and "." in entry.name:
                (self.path / entry.name).unlink(missing_ok=True)
            elif isinstance(entry, _Entry):
                shutil.rmtree(self.path / entry.name, ignore_errors=True)


def folder_name(text: str) -> str:
    """A scenario's name as the name of a folder or file."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text).strip(".") or "custom"


def _is_ours(content: Mapping[str, Any]) -> bool:
    """Whether a ``run.json`` belongs to a run, and not to some other program."""
    kind = content.get("kind")
    if kind is not None:
        return kind in _KINDS
    return isinstance(content.get("scenario"), Mapping) and ("algo" in content or "agent" in content)


def _is_larger(now: object, before: object) -> bool:
    return isinstance(now, int) and isinstance(before, int) and now > before


def differences(before: Any, now: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """Places where two plain data differ, as dotted paths, with both values.

    Args:
        before: Mappings, lists, numbers, texts and ``None``.
        now: Data of the same kinds.
        place: Path of both, for nested data.
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = [*before, *(name for name in now if name not in before)]
        pairs = [(name, before.get(name), now.get(name)) for name in names]
    elif _records(before) and _records(now) and len(before) == len(now):
        pairs = [(str(index), *both) for index, both in enumerate(zip(before, now, strict=True))]
    else:
        return [] if before == now else [(place, before, now)]
    return [
        difference
        for name, old, new in pairs
        for difference in differences(old, new, f"{place}.{name}" if place else name)
    ]


def _records(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)
