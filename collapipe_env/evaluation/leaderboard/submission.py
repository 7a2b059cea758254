"""A submission to the leaderboard: a folder with ``submission.yaml``, and a scheduler or weights.

Reading it executes nothing. ``scheduler.py`` is code, which runs only when the submission is played.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from dataclasses import dataclass, field
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from collapipe_env.evaluation.leaderboard.result_folders import is_results
from collapipe_env.evaluation.leaderboard.season import BOARD_SIZES, BOARD_TIERS, Cell, chosen_cells
from collapipe_env.evaluation.own_code import is_reference
from collapipe_env.evaluation.scheduler_loading import full_names, package_title, require_scheduler
from collapipe_env.ground.archives import open_zip
from collapipe_env.ground.errors import CollaPipeError, DataError, SchedulerError, fits_a_line, reason, shown
from collapipe_env.ground.files import read_regular
from collapipe_env.scenario.plain_data import line_of, open_brackets
from collapipe_env.schedulers import LEARNED, SCHEDULERS
from collapipe_env.zoo.shipped_agents import is_shipped

FILE = "submission.yaml"
CODE = "scheduler.py"
FACTORY = "make"
"""Function of :data:`CODE` that is called with the scenario and returns the scheduler."""
CACHE = "__pycache__"
"""Python's folder of compiled files, which may hold other code than the source that people read."""
YAML_BYTES = 16 * 1024
"""Largest ``submission.yaml``."""
FOLDER_BYTES = 50 * 1024**2
"""Largest size of all files of a submission without its results [byte]."""
UNPACKED_BYTES = 256 * 1024**2
"""Largest unpacked size of an ``.npz`` file [byte]."""
MOST_FILES = 200
MOST_NESTED = 8
"""Most brackets open at once, or dashes in a row: the time of parsing grows with their square."""
WEIGHTS = (".safetensors", ".npz")
"""Endings of files of weights; none of these formats can hold code."""
SUFFIXES = (*WEIGHTS, ".py", ".yaml", ".yml", ".md", ".txt", ".json", ".csv", "")
"""Endings of all files that a submission may have."""
TRACKS = ("model-based", "observation-only")
Track = Literal["model-based", "observation-only"]

Line = Annotated[str, Field(min_length=1, max_length=60)]
Text = Annotated[str, Field(min_length=1, max_length=200)]


class _Form(BaseModel):
    """Fields of ``submission.yaml``; others are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Line
    authors: Annotated[list[Text], Field(min_length=1, max_length=50)]
    track: Track
    zero_shot: bool
    tiers: Annotated[list[Literal[BOARD_TIERS]], Field(min_length=1)]  # type: ignore[valid-type]
    sizes: Annotated[list[Literal[BOARD_SIZES]], Field(min_length=1)]  # type: ignore[valid-type]
    training_transitions: Annotated[int, Field(ge=0, lt=2**63)]
    cpu_hours: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    licence: Text
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")]
    scheduler: Text | None = None
    weights: Text | Annotated[list[Text], Field(min_length=1, max_length=20)] | dict[str, Any] | None = None


@dataclass(frozen=True)
class Player:
    """A player for the leaderboard.

    Attributes:
        name: Title in tables.
        scheduler: Name from which it is built; ``"agent"`` for weights.
        agents: Files of weights of each size, one for each training run; empty without weights.
        blind: Whether it gets no state, and decides from the observation alone.
        runs_code: Whether it is code that came with a submission.
        digest: SHA-256 of the submission's files; empty for a scheduler given by name.
        about: Fields of ``submission.yaml``; empty for a scheduler given by name.
        cells: Cells that it plays; empty for a scheduler given by name.
    """

    name: str
    scheduler: str
    agents: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    blind: bool = False
    runs_code: bool = False
    digest: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    cells: tuple[Cell, ...] = ()

    @property
    def shown_scheduler(self) -> str:
        """The name from which it is built, without the folder of a submission."""
        return f"{CODE}:{FACTORY}" if self.runs_code else self.scheduler

    def agents_of(self, cell: Cell) -> tuple[Path, ...]:
        """Files of weights of a cell's size."""
        return self.agents.get(cell.size, ())


def is_own(name: str) -> bool:
    """Whether a name stands for a user's own code."""
    return name in SCHEDULERS.added() or (is_reference(name) and not is_shipped(name))


def named_player(name: str) -> Player:
    """Return a scheduler given by name: of the package, of its zoo, or a user's own code.

    Raises:
        CollaPipeError: If there is no such scheduler.
    """
    require_scheduler(name)
    (full,) = full_names([name])
    return Player(name=full if is_own(full) else package_title(full), scheduler=full)


def read_submission(folder: Path) -> Player:
    """Read a submission; nothing is executed.

    Args:
        folder: Folder of the submission.

    Raises:
        DataError: Names the file and field at fault, and the remedy.
    """
    files = _files(folder)
    form = _form(folder)
    if not fits_a_line(form.name) or form.name != form.name.strip():
        raise _fault(folder, "name", form.name, "use one line without spaces around it")
    for name, values in (("tiers", form.tiers), ("sizes", form.sizes)):
        if len(set(values)) < len(values):
            raise _fault(folder, name, values, "name each once")
    code = folder / CODE
    given = [
        what
        for what, there in (
            (f"the field scheduler ({shown(form.scheduler)})", form.scheduler is not None),
            (CODE, CODE in files),
            ("the field weights", form.weights is not None and CODE not in files),
        )
        if there
    ]
    if len(given) != 1:
        raise DataError(
            f"{folder}: the scheduler is given by {' and '.join(given) or 'nothing'}: give one of {CODE} "
            f"with {FACTORY}(scenario), scheduler: NAME or weights: FILE in {FILE}"
        )
    weights = _weights(folder, form, files)
    scheduler = LEARNED
    if form.scheduler is not None:
        if is_own(form.scheduler):
            raise _fault(folder, "scheduler", form.scheduler, f"put code of your own into {CODE}")
        try:
            require_scheduler(form.scheduler)
            (scheduler,) = full_names([form.scheduler])
        except CollaPipeError as error:
            raise DataError(f"{folder / FILE}: scheduler: {error}") from None
    elif CODE in files:
        scheduler, weights = f"{code}:{FACTORY}", {}
    return Player(
        name=form.name,
        scheduler=scheduler,
        agents=weights,
        blind=form.track == TRACKS[1],
        runs_code=CODE in files,
        digest=_digest(folder, files),
        about=form.model_dump(exclude_none=True),
        cells=chosen_cells(tuple(form.tiers), tuple(form.sizes)),
    )


def require_trust(player: Player, trusted: bool, folder: Path) -> None:
    """Refuse to run a submission's code unless the user trusts it.

    Args:
        player: The submission.
        trusted: Whether the user trusts the code.
        folder: Folder of the submission.

    Raises:
        SchedulerError: Names the option.
    """
    if player.runs_code and not trusted:
        raise SchedulerError(
            f"{folder / CODE} is code, which verify would run with all your rights: read it, use a container "
            "without network, and add --trust-code"
        )


def _fault(folder: Path, name: str, value: object, remedy: str) -> DataError:
    return DataError(f"{folder / FILE}: {name} = {shown(value)}: {remedy}")


def _form(folder: Path) -> _Form:
    place = folder / FILE
    try:
        text = read_regular(place, YAML_BYTES).decode("utf-8")
    except OSError as error:
        raise DataError(
            f"{place}: cannot be read ({error.strerror}): a submission is a folder with {FILE}"
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{place}: not UTF-8 text: save it as UTF-8") from None
    if _nested(text) > MOST_NESTED:
        raise DataError(f"{place}: nested more than {MOST_NESTED} deep: write plain YAML")
    try:
        data = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        problem = " ".join(str(error.problem).split())
        raise DataError(f"{place}{line_of(error)}: {problem}: write plain YAML") from None
    except (YAMLError, ValueError, RecursionError, KeyError) as error:
        raise DataError(f"{place}: {reason(error)}: write plain YAML") from None
    if not isinstance(data, dict):
        raise DataError(f"{place}: {shown(data)} where fields such as 'name: My scheduler' are expected")
    try:
        return _Form.model_validate(data)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        fault = faults[0]
        path = ".".join(
            str(part) for part in fault["loc"] if not str(part).startswith(("constrained", "list["))
        )
        if fault["type"] == "missing":
            missing = [str(each["loc"][0]) for each in faults if each["type"] == "missing"]
            verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
            raise DataError(
                f"{place}: {', '.join(missing)} {verb} missing: add {them} "
                "(docs/leaderboard.md lists all fields)"
            ) from None
        if fault["type"] == "extra_forbidden":
            raise DataError(
                f"{place}: {shown(path)} is not a field: leave it out; there are "
                f"{', '.join(_Form.model_fields)}"
            ) from None
        hint = ""
        if fault["type"] == "string_type" and isinstance(fault["input"], int | float):
            hint = ': YAML reads it as a number: put it in quotes, as in "0123456"'
        raise DataError(f"{place}: {path} = {shown(fault['input'])}: {fault['msg']}{hint}") from None


def _nested(text: str) -> int:
    """Largest depth of brackets, or number of dashes and question marks that begin a line."""
    depths = [depth for _, depth in open_brackets(text)]
    rows = re.finditer(r"^(?:[ \t]*[-?](?=[ \t]))+", text, re.MULTILINE)
    return max([0, *depths, *(row[0].count("-") + row[0].count("?") for row in rows)])


def _files(folder: Path) -> dict[str, Path]:
    """Files of a submission without its results, by their paths in it, within limits.

    Results are left out, but must not bring in code or files from elsewhere.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: a submission is a folder with {FILE}")
    found: dict[str, Path] = {}
    size = 0
    for place, folders, names in os.walk(folder):
        here = Path(place)
        parts = here.relative_to(folder).parts
        is_result = bool(parts) and is_results(parts[0])
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in [*sorted(names), *folders]:
            path = here / name
            if not name.isprintable():  # messages, and the digest, could not name it
                raise DataError(f"{folder}: {name!r}: name files in plain UTF-8 text: rename it")
            if path.is_symlink():
                raise DataError(f"{path} is a link: put the file itself into the submission")
            if name == CACHE:
                raise DataError(f"{path} may hold other code than the sources beside it: remove it")
            if name in folders:
                continue
            if is_result:
                if not path.is_file() or name.lower().endswith(tuple(all_suffixes())):
                    raise DataError(f"{path}: {parts[0]} holds the results of a run, and no code: remove it")
                continue
            if not path.is_file() or path.suffix.lower() not in SUFFIXES:
                raise DataError(
                    f"{path}: a submission holds regular files that end in {', '.join(SUFFIXES[:-1])}, and "
                    f"weights as {' or '.join(WEIGHTS)}: convert or remove it"
                )
            size += path.stat().st_size
            found[path.relative_to(folder).as_posix()] = path
            if size > FOLDER_BYTES or len(found) > MOST_FILES:
                raise DataError(
                    f"{folder} has more than {FOLDER_BYTES // 1024**2} MB or {MOST_FILES} files: make it "
                    "smaller"
                )
    for path in found.values():
        _require_plain_weights(path)
    return dict(sorted(found.items()))


def _require_plain_weights(path: Path) -> None:
    """Refuse weights that are damaged, or that hold pickled objects."""
    try:
        if path.suffix.lower() == ".npz":
            content = read_regular(path, FOLDER_BYTES)
            open_zip(content, UNPACKED_BYTES).close()
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                for name in arrays.files:
                    arrays[name]
        elif path.suffix.lower() == ".safetensors":
            import safetensors.numpy

            safetensors.numpy.load(read_regular(path, FOLDER_BYTES))
    except Exception as error:  # the libraries may raise anything for a damaged archive
        raise DataError(
            f"{path}: no plain weights ({reason(error)}): save plain arrays, without pickle"
        ) from None


def _weights(folder: Path, form: _Form, files: dict[str, Path]) -> dict[str, tuple[Path, ...]]:
    """Files of weights of each size."""
    if form.weights is None:
        return {}
    by_size: dict[str, Any] = (
        form.weights if isinstance(form.weights, dict) else dict.fromkeys(form.sizes, form.weights)
    )
    if set(by_size) != set(form.sizes):
        raise _fault(folder, "weights", sorted(by_size), f"name the sizes {', '.join(form.sizes)}, each once")
    found = {}
    for size, value in by_size.items():
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise _fault(folder, f"weights.{size}", value, "name a file, or a list of files")
        if len(set(names)) < len(names):
            raise _fault(folder, f"weights.{size}", value, "each training run has a file of its own")
        for name in names:
            if name not in files or files[name].suffix not in WEIGHTS:
                raise _fault(
                    folder,
                    "weights",
                    name,
                    f"name a file of the submission that ends in {' or '.join(WEIGHTS)}",
                )
            if CODE not in files and files[name].suffix != ".safetensors":
                raise _fault(
                    folder, "weights", name, f"without {CODE}, an agent of collapipe zoo export is expected"
                )
        found[size] = tuple(files[name] for name in names)
    if form.zero_shot and len(set(found.values())) > 1:
        raise _fault(folder, "zero_shot", form.zero_shot, "the sizes have different weights: say false")
    return found


def _digest(folder: Path, files: dict[str, Path]) -> str:
    """SHA-256 of all files, names and contents."""
    digest = hashlib.sha256()
    for name, path in files.items():
        try:
            content = read_regular(path, FOLDER_BYTES)
        except OSError as error:
            raise DataError(f"{folder / name}: cannot be read ({error.strerror})") from None
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
