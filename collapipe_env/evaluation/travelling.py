"""Episodes played without access to this process's files: their inputs and outputs travel with the task."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from collapipe_env.evaluation.executor import Executor, Hooks
from collapipe_env.evaluation.plan import Unit
from collapipe_env.ground.errors import CollaPipeError, DataError, shown
from collapipe_env.ground.files import ARCHIVE_BYTES, read_regular, write_bytes
from collapipe_env.schedulers import LEARNED

Files = dict[str, bytes]
"""Contents of files by their paths below a folder, with forward slashes."""


def files_below(folder: Path) -> Files:
    """Return all files below a folder.

    Args:
        folder: The folder; the result is empty if it does not exist.
    """
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_below(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder, in order, each whole or not at all.

    Args:
        folder: The folder; created if it is missing.

    Raises:
        DataError: If a path leads out of the folder, or a file cannot be written.
    """
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"a worker sent a file {shown(name)}, which leads out of its folder")
        write_bytes(folder / path, content)


@dataclass(frozen=True)
class EpisodeParcel:
    """Files of a finished episode, on their way to the process that requested it.

    Attributes:
        files: The files of its folder.
    """

    files: Files

    def store(self, unit: Unit) -> None:
        """Write the files to the places where the episode itself would have written them.

        Args:
            unit: The episode.

        Raises:
            DataError: If a file cannot be written.
        """
        own, files = unit.files, dict(self.files)
        model = {name: files.pop(name) for name in self.files if name.startswith(f"{own.model.name}/")}
        if model:
            own.remove_unfinished_model()
            inside = {name.partition("/")[2]: content for name, content in model.items()}
            write_below(own.new_model, inside)
            own.keep_model()
        # Written last: its presence marks the episode as finished.
        figures = files.pop(own.figures.name)
        write_below(unit.plan.folder, {**files, own.figures.name: figures})


@dataclass(frozen=True)
class UnitParcel:
    """One scheduler on one episode, with what a worker without this process's files needs.

    Attributes:
        unit: The unit.
        work: Plays a unit, and writes into the folder of its plan.
        agent: Content of the learned scheduler's file.
        keeps_model: Whether the trained model is kept, on request or to replace that of an earlier run.
    """

    unit: Unit
    work: Callable[[Unit, Any], None] = field(repr=False)
    agent: bytes | None = field(default=None, repr=False)
    keeps_model: bool = False

    def __str__(self) -> str:
        return str(self.unit)

    def play(self, on_round: Any) -> EpisodeParcel:
        """Play the unit in a folder of its own, and return the files that it wrote there."""
        unit = self.unit
        with tempfile.TemporaryDirectory(prefix="collapipe-") as folder:
            plan = replace(unit.plan, folder=Path(folder) / "evaluation")
            if self.agent is not None:
                file = Path(folder) / "agent" / unit.plan.agents[unit.run].name
                write_bytes(file, self.agent)
                agents = (*plan.agents[: unit.run], file, *plan.agents[unit.run + 1 :])
                plan = replace(plan, agents=agents)
            here = replace(unit, plan=plan)
            if self.keeps_model:
                here.files.model.mkdir(parents=True)
            self.work(here, on_round)
            return EpisodeParcel(files_below(plan.folder))


def packed(unit: Unit, work: Callable[[Unit, Any], None]) -> UnitParcel:
    """Return a unit with the files that it needs.

    Args:
        work: Plays the unit.

    Raises:
        DataError: If the learned scheduler's file cannot be read.
    """
    file = unit.plan.agent_of(unit.run) if unit.scheduler == LEARNED else None
    try:
        agent = None if file is None else read_regular(file, ARCHIVE_BYTES)
    except OSError as error:
        raise DataError(f"cannot read the agent {file} ({error.strerror}): give it again") from None
    return UnitParcel(unit, work, agent, unit.keeps_model or unit.files.model.exists())


def _play(parcel: UnitParcel, on_round: Any) -> EpisodeParcel:
    return parcel.play(on_round)


def execute_apart(
    work: Callable[[Unit, Any], None], executor: Executor, units: Sequence[Unit], hooks: Hooks
) -> None:
    """Play units on an executor whose workers may lack access to this process's files.

    Args:
        work: Plays a unit, and writes into the folder of its plan.
        units: The units to play.
        hooks: Functions to call on events, by unit; ``done`` receives the episode's files.

    Raises:
        CollaPipeError: As for :meth:`~collapipe_env.evaluation.executor.Executor.run`.
    """

    def failed(parcel: UnitParcel, error: CollaPipeError) -> None:
        hooks.failed(parcel.unit, error)

    by_unit = Hooks(
        lambda parcel, result: hooks.done(parcel.unit, result),
        lambda parcel: hooks.progress(parcel.unit),
        failed,
        lambda parcel, reason: hooks.again(parcel.unit, reason),
        lambda parcel: hooks.wanted(parcel.unit),
    )
    executor.run(_play, [packed(unit, work) for unit in units], by_unit)
