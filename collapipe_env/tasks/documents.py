"""Documents from local text files, folders of them and JSON lines; errors name the file and the line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.ground.errors import DataError, nearest_name, shown
from collapipe_env.ground.typed_paths import why_unusable
from collapipe_env.tasks.data_parts import choose_named, held_out
from collapipe_env.tasks.table_files import ROW_ENDINGS, json_rows, read_text, require_sound

TEXT_ENDINGS = (".txt", ".md", ".rst")
"""Endings of plain text files; each may be followed by ``.gz``."""
TEXT_FIELD = "text"
"""Field of the text by default."""
KIND_FIELD = "source"
"""Field of a document's kind by default, where every training document has it."""

Field = str | int | None


@dataclass(frozen=True)
class Documents:
    """Texts, none empty, without white space at their ends.

    Attributes:
        texts: The texts.
        kinds: Kind of each, for partitions that skew by class; empty if they have none.
    """

    texts: tuple[str, ...]
    kinds: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.texts)

    def subset(self, indices: np.ndarray) -> Documents:
        """Return the documents at ``indices``, in that order."""
        chosen = indices.tolist()
        kinds = tuple(self.kinds[i] for i in chosen) if self.kinds else ()
        return Documents(tuple(self.texts[i] for i in chosen), kinds)


def load_documents(
    path: Path, text: Field = None, kind: Field = None
) -> tuple[Documents, Documents, Documents]:
    """Read the training, dev and test documents of a file or a folder.

    In a folder, a file's name gives its part; see :func:`collapipe_env.tasks.data_parts.part_of`. In a folder
    without such names every plain text file is one document, and so is every line of a file of JSON lines. A
    plain text file that is a whole part, or that ``path`` names, holds documents separated by blank lines, or
    one a line if no line is blank. A missing part is a tenth of the training documents, by a fixed random
    choice.

    Args:
        path: The file or the folder.
        text: Field of the text in JSON lines; None takes ``text``.
        kind: Field of the kind in JSON lines; None takes ``source`` if all training documents have it.

    Returns:
        Training, dev and test documents, at least one each.

    Raises:
        DataError: If something is missing or malformed.
    """
    if path.is_dir():
        files = _files(path)
        named = choose_named(list(files), str(path))
        if named and "train" not in named:
            raise DataError(
                f"{path}: {files[next(iter(named.values()))].name} but no train.txt or train.jsonl in this "
                "folder; add it, or rename the file if all files are documents to be split"
            )
        if named:
            parts = {part: read_file(files[name], text, kind) for part, name in named.items()}
        else:
            parts = {"train": _joined(_read(file, text, kind, whole=True) for file in files.values())}
    elif path.is_file():
        parts = {"train": read_file(path, text, kind)}
    else:
        raise DataError(
            f"{path}: {why_unusable(path)}; give the path of a text file, of a file of JSON lines (.jsonl), "
            "or of a folder of them"
        )
    return with_held_out(parts, str(path))


def with_held_out(parts: Mapping[str, Documents], source: str) -> tuple[Documents, Documents, Documents]:
    """Return the training, dev and test part; missing ones are taken from the training part.

    Args:
        parts: The documents of ``"train"`` and possibly of ``"dev"`` and ``"test"``.
        source: Name of the data set, for errors.
    """
    missing = [part for part in ("dev", "test") if part not in parts]
    chosen = held_out(len(parts["train"]), missing, source)
    found = {**parts, **{part: parts["train"].subset(indices) for part, indices in chosen.items()}}
    return found["train"], found["dev"], found["test"]


def read_file(path: Path, text: Field = None, kind: Field = None) -> Documents:
    """Read the documents of one file; see :func:`load_documents`.

    Raises:
        DataError: If it cannot be read, has another ending or holds no document.
    """
    return _read(path, text, kind, whole=False)


def _read(path: Path, text: Field, kind: Field, *, whole: bool) -> Documents:
    """Read a file, a plain one as a single document if ``whole``."""
    ending = _ending(path)
    if ending in ROW_ENDINGS:
        return _rows(path, text, kind)
    if ending not in TEXT_ENDINGS:
        raise DataError(
            f"{path}: unknown ending {path.suffix!r}; use {', '.join(TEXT_ENDINGS)} for plain text or "
            f"{', '.join(ROW_ENDINGS)} for JSON lines, with or without .gz"
        )
    content = read_text(path).replace("\r\n", "\n").replace("\r", "\n").strip()
    if not content:
        raise DataError(f"{path}: empty file; it needs text")
    if whole:
        return Documents((content,))
    between = re.compile(r"\n[^\S\n]*\n\s*")
    found = between.split(content)
    # A file without blank lines is a list of sentences.
    return Documents(tuple(one.strip() for one in (found if len(found) > 1 else content.split("\n"))))


def _rows(path: Path, text: Field, kind: Field) -> Documents:
    """Read JSON lines."""
    name, kind_name = TEXT_FIELD if text is None else str(text), KIND_FIELD if kind is None else str(kind)
    texts: list[str] = []
    kinds: list[str | None] = []
    for place, row in json_rows(path):
        texts.append(checked_text(place, _entry(place, row, name, "text_column")))
        if kind is not None:
            _entry(place, row, kind_name, "label_column")
        kinds.append(_kind(row.get(kind_name)))
    if not texts:
        raise DataError(f"{path}: empty file; it needs a JSON object with a {name!r} a line")
    complete = tuple(one for one in kinds if one is not None)
    return Documents(tuple(texts), complete if len(complete) == len(texts) else ())


def checked_text(place: str, value: Any) -> str:
    """Return a document's text without white space at its ends.

    Args:
        place: Its place, for errors.
        value: The text, not checked yet.

    Raises:
        DataError: If it is not a string, is empty, is not valid Unicode, or holds a word above the limit.
    """
    if not isinstance(value, str):
        raise DataError(f"{place}: the text is {shown(value)}; it must be a string")
    document = value.replace("\r\n", "\n").replace("\r", "\n").strip()
    if not document:
        raise DataError(f"{place}: the text is empty; fill it in or drop the line")
    require_sound(place, document)
    return document


def _entry(place: str, row: Mapping[str, Any], name: str, option: str) -> Any:
    if name not in row:
        raise DataError(f"{place}: no field {name!r} for {option}; {nearest_name(name, list(row))}")
    return row[name]


def _kind(value: Any) -> str | None:
    """Return the name of a kind that is a string, a whole number or a truth value; None for anything else."""
    return str(value) if isinstance(value, str | int) else None


def _joined(parts: Iterable[Documents]) -> Documents:
    """Return the documents of several files, with kinds if all have them."""
    parts = list(parts)
    texts = tuple(one for part in parts for one in part.texts)
    kinds = tuple(one for part in parts for one in part.kinds)
    return Documents(texts, kinds if len(kinds) == len(texts) else ())


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of documents in a folder by their names without ending."""
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        ending = _ending(file)
        if ending not in TEXT_ENDINGS + ROW_ENDINGS or not file.is_file() or file.name.startswith("."):
            continue
        stem = file.name[: len(file.name.lower().removesuffix(".gz")) - len(ending)]
        if stem in files:
            raise DataError(f"{folder}: both {files[stem].name} and {file.name} exist; keep one")
        files[stem] = file
    if not files:
        raise DataError(
            f"{folder}: no file that ends in {', '.join(TEXT_ENDINGS + ROW_ENDINGS)} (or these with .gz) in "
            "this folder; add one or name a file"
        )
    return files
