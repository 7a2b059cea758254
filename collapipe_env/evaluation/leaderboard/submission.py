"""A submission to the leaderboard: a folder with ``submission.json``, and a scheduler's code or weights.

Reading it executes nothing. ``scheduler.py`` is code, which runs only when the submission is played, in a
process of its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import safetensors.numpy
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from collapipe_env.envs.suite import SuiteEntry
from collapipe_env.evaluation.declared_sight import is_marked
from collapipe_env.evaluation.leaderboard.season import CELLS, chosen_cells
from collapipe_env.evaluation.own_scheduler import LONGEST_NAME
from collapipe_env.evaluation.scheduler_loading import (
    full_names,
    own_factory,
    package_title,
    require_scheduler,
)
from collapipe_env.ground.errors import DataError, fault_line, fits_a_line, reason
from collapipe_env.ground.files import read_json, read_regular
from collapipe_env.schedulers import LEARNED, scheduler_names
from collapipe_env.zoo.shipped_agents import agent_path, shipped_agents

FILE = "submission.json"
CODE = "scheduler.py"
FACTORY = "make"
"""Function of :data:`CODE` that is called with the scenario and returns the scheduler."""
FOLDER_BYTES = 50 * 1024**2
"""Largest size of all files of a submission [byte]."""
MOST_FILES = 200
SUFFIXES = (".safetensors", ".py", ".json", ".md", ".txt", ".csv", "")
"""Endings of the files that a submission may have; no file of weights can hold code."""
BLIND = "observation-only"


def _line(text: str) -> str:
    """Text that may be shown: a line break or a control character would act on the terminal."""
    if not fits_a_line(text) or text != text.strip():
        raise ValueError("use one line without spaces around it")
    return text


def _apart(name: str) -> str:
    """A name that no scheduler of the package has, spaces, case and marks aside."""
    own, others = scheduler_names(), ("even split", LEARNED)
    if not name.isascii() or is_marked(name):
        raise ValueError("use plain letters, which look like no others, and no mark of tables")
    if _plain(name) in map(_plain, (*own, *map(package_title, own), *shipped_agents(), *others)):
        raise ValueError("a scheduler of the package has this name: choose another")
    return name


def _plain(name: str) -> str:
    """The letters, digits and plus signs of a name."""
    folded = name.casefold().removeprefix("zoo:")
    return "".join(character for character in folded if character.isalnum() or character == "+")


Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_line)]
Title = Annotated[Line, Field(max_length=LONGEST_NAME)]


class Form(BaseModel):
    """Fields of ``submission.json``; others are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[Title, AfterValidator(_apart)]
    authors: Annotated[list[Line], Field(min_length=1, max_length=50)]
    track: Literal["model-based", "observation-only"]
    cells: Annotated[list[Literal[*CELLS]], Field(min_length=1)]  # type: ignore[valid-type]
    licence: Line
    about: Annotated[str, Field(max_length=2000)] = ""
    weights: Annotated[list[Line], Field(max_length=20)] = []


@dataclass(frozen=True)
class Player:
    """A player for the leaderboard.

    Attributes:
        name: Title in tables.
        scheduler: Name from which it is built; ``"agent"`` for weights.
        agents: Files of weights, one for each training run.
        blind: Whether it gets no state, and decides from the observation alone.
        runs_code: Whether it is code that came with a submission.
        digest: SHA-256 of the files of the submission or the agents; empty for a scheduler given by name.
        cells: Cells that it plays; empty for a scheduler given by name.
    """

    name: str
    scheduler: str
    agents: tuple[Path, ...] = ()
    blind: bool = False
    runs_code: bool = False
    digest: str = ""
    cells: tuple[SuiteEntry, ...] = ()


def named_player(name: str) -> Player:
    """Return a scheduler given by name: of the package, of its zoo, or a user's own code.

    Raises:
        CollaPipeError: If there is no such scheduler.
    """
    require_scheduler(name)
    (full,) = full_names([name])
    return Player(package_title(full) if own_factory(full) is None else full, full)


def trained_player(files: Sequence[Path]) -> Player:
    """Return saved agents, the training runs of one row.

    Args:
        files: What ``collapipe train`` or ``collapipe zoo export`` wrote, or ``zoo:NAME``.

    Raises:
        CheckpointError: If the zoo has no such agent.
        DataError: If a file cannot be read.
    """
    paths = tuple(map(agent_path, files))
    try:
        digest = _digest({str(run): path for run, path in enumerate(paths)})
    except OSError as error:
        raise DataError(f"--agent: {error.filename} cannot be read ({error.strerror})") from None
    return Player(LEARNED, LEARNED, agents=paths, digest=digest)


def read_submission(folder: Path) -> Player:
    """Read a submission; nothing is executed.

    Args:
        folder: Folder of the submission.

    Raises:
        DataError: Names the file and field at fault, and the remedy.
    """
    files = _files(folder)
    place = folder / FILE
    try:
        form = Form.model_validate(read_json(place, f"a submission is a folder with {FILE}"))
    except ValidationError as error:
        raise DataError(f"{place}: {fault_line(error.errors()[0])}: see docs/suite.md") from None
    if (CODE in files) == bool(form.weights):
        raise DataError(f"{folder}: give either {CODE} with {FACTORY}(scenario), or weights in {FILE}")
    for name in form.weights:
        if name not in files or not name.endswith(".safetensors") or form.weights.count(name) > 1:
            raise DataError(
                f"{place}: weights: {name!r}: name each agent once, as collapipe zoo export wrote it into "
                "the folder (.safetensors)"
            )
    return Player(
        name=form.name,
        scheduler=LEARNED if form.weights else f"{folder.resolve() / CODE}:{FACTORY}",
        agents=tuple(files[name] for name in form.weights),
        blind=form.track == BLIND,
        runs_code=CODE in files,
        digest=_digest(files),
        cells=chosen_cells(tuple(form.cells)),
    )


def _files(folder: Path) -> dict[str, Path]:
    """Files of a submission by their paths in it, within limits."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: a submission is a folder with {FILE}")
    found: dict[str, Path] = {}
    size = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in [*sorted(names), *folders]:
            path = Path(place) / name
            if not name.isprintable() or name in ("__pycache__", ".git") or path.is_symlink():
                raise DataError(
                    f"{folder}: {name!r}: a submission holds no links, no compiled files, no .git, and only "
                    "names in plain text: remove it"
                )
            if name in folders:
                continue
            if not path.is_file() or path.suffix.lower() not in SUFFIXES:
                raise DataError(
                    f"{path}: a submission holds regular files that end in {', '.join(SUFFIXES[:-1])}: "
                    "convert or remove it"
                )
            size += path.stat().st_size
            found[path.relative_to(folder).as_posix()] = path
            if size > FOLDER_BYTES or len(found) > MOST_FILES:
                raise DataError(
                    f"{folder} has more than {FOLDER_BYTES // 1024**2} MB or {MOST_FILES} files: make it "
                    "smaller"
                )
    for path in found.values():
        if path.suffix.lower() == ".safetensors":
            _require_plain_weights(path)
    return dict(sorted(found.items()))


def _require_plain_weights(path: Path) -> None:
    """Refuse weights that are damaged."""
    try:
        safetensors.numpy.load(read_regular(path, FOLDER_BYTES))
    except Exception as error:  # the library may raise anything for a damaged file
        raise DataError(
            f"{path}: no plain weights ({reason(error)}): save plain arrays, without pickle"
        ) from None


def _digest(files: dict[str, Path]) -> str:
    """SHA-256 of all files, names and contents."""
    digest = hashlib.sha256()
    for name, path in files.items():
        content = read_regular(path, FOLDER_BYTES)
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
