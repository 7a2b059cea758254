"""Documents from text files, folders of them, and tables; errors name the file and the line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from collapipe_env.ground.errors import DataError, shown
from collapipe_env.tasks.data_parts import Parts, Samples, complete, part_files, require_path, stem_of
from collapipe_env.tasks.hub import hub_tables
from collapipe_env.tasks.table_files import (
    ROW_ENDINGS,
    Column,
    Table,
    cell_text,
    column_index,
    read_objects,
    read_text,
    require_sound,
)

TEXT_ENDINGS = (".txt", ".md", ".rst")
"""Endings of plain text files; each may be followed by ``.gz``."""
TEXT_FIELD = "text"
"""Field of the text by default."""
KIND_FIELD = "source"
"""Field of a document's kind by default, where every training document has it."""


@dataclass(frozen=True)
class Documents(Samples):
    """Texts, none empty, without white space at their ends, and their kinds if all have one."""

    texts: tuple[str, ...]
    kinds: tuple[str, ...] = ()


def load_documents(path: Path | str, text: Column = None, kind: Column = None) -> Parts[Documents]:
    """Read the training, dev and test documents of a data set.

    In a folder, a file's name gives its part; see :func:`collapipe_env.tasks.data_parts.part_of`. In a folder
    without such names every plain text file is one document, and so is every line of a file of JSON lines. A
    plain text file that is a whole part, or that ``path`` names, holds documents separated by blank lines, or
    one a line if no line is blank. A missing part is a tenth of the training documents, by a fixed random
    choice.

    Args:
        path: The file or the folder, or the name of a data set of the Hugging Face hub, whose rows without
            text are left out.
        text: Field of the text; None takes ``text``, and from the hub otherwise the only one of strings.
        kind: Field of the kind; None takes ``source`` if all training documents have it.

    Raises:
        DataError: If something is missing or malformed.
    """
    if isinstance(path, str):
        found = {part: _of_table(table, text, kind, of_hub=True) for part, table in hub_tables(path).items()}
        return complete(found, path)
    require_path(
        path, "give the path of a text file, of a file of JSON lines (.jsonl), or of a folder of them"
    )
    if not path.is_dir():
        return complete({"train": read_file(path, text, kind)}, str(path))
    named, files = part_files(path, lambda file: stem_of(file, TEXT_ENDINGS + ROW_ENDINGS))
    if not files:
        raise DataError(
            f"{path}: no file that ends in {', '.join(TEXT_ENDINGS + ROW_ENDINGS)} (or these with .gz) in "
            "this folder; add one or name a file"
        )
    if named and "train" not in named:
        raise DataError(
            f"{path}: {next(iter(named.values())).name} but no train.txt or train.jsonl in this "
            "folder; add it, or rename the file if all files are documents to be split"
        )
    if named:
        return complete({part: read_file(file, text, kind) for part, file in named.items()}, str(path))
    stems = [stem_of(file, TEXT_ENDINGS + ROW_ENDINGS) for file in files]
    last = dict(zip(stems, files, strict=True))
    for stem, file in zip(stems, files, strict=True):
        if last[stem] != file:
            raise DataError(f"{path}: both {file.name} and {last[stem].name} exist; keep one")
    whole = [read_file(file, text, kind, whole=True) for file in files]
    texts = tuple(one for part in whole for one in part.texts)
    kinds = tuple(one for part in whole for one in part.kinds)
    return complete({"train": Documents(texts, kinds if len(kinds) == len(texts) else ())}, str(path))


def read_file(path: Path, text: Column = None, kind: Column = None, *, whole: bool = False) -> Documents:
    """Read the documents of one file, or plain text as a whole; see :func:`load_documents`.

    Raises:
        DataError: If it cannot be read, has another ending or holds no document.
    """
    if stem_of(path, ROW_ENDINGS):
        return _of_table(read_objects(path), text, kind)
    if not stem_of(path, TEXT_ENDINGS):
        raise DataError(
            f"{path}: unknown ending {path.suffix!r}; use {', '.join(TEXT_ENDINGS)} for plain text or "
            f"{', '.join(ROW_ENDINGS)} for JSON lines, with or without .gz"
        )
    content = read_text(path).strip()
    if not content:
        raise DataError(f"{path}: empty file; it needs text")
    if whole:
        return Documents((content,))
    found = re.split(r"\n[^\S\n]*\n\s*", content)
    # A file without blank lines is a list of sentences.
    return Documents(tuple(one.strip() for one in (found if len(found) > 1 else content.split("\n"))))


def _of_table(table: Table, text: Column, kind: Column, *, of_hub: bool = False) -> Documents:
    """Return the documents of a table with a header.

    Args:
        of_hub: Whether rows without text are left out, and a sole column of strings is the text.
    """
    names = table.header or []
    if of_hub and text is None and TEXT_FIELD not in names:
        held = zip(names, zip(*table.rows, strict=True), strict=True)
        strings = [name for name, column in held if any(isinstance(one, str) for one in column)]
        strings = [name for name in strings if name not in table.classes]
        text = strings[0] if len(strings) == 1 else None
    column = column_index(table.source, "text_column", TEXT_FIELD if text is None else text, names)
    kind_column = names.index(KIND_FIELD) if KIND_FIELD in names else None
    if kind is not None:
        kind_column = column_index(table.source, "label_column", kind, names)
        table.require_read(kind_column, "label_column")
    texts, kinds = [], []
    for place, row in zip(table.places, table.rows, strict=True):
        found = row[column]
        if isinstance(found, str):
            found = found.replace("\r\n", "\n").replace("\r", "\n").strip()
        if of_hub and (found is None or found == ""):
            continue
        if not isinstance(found, str):
            raise DataError(f"{place}: the text is {shown(found)}; it must be a string")
        if not found:
            raise DataError(f"{place}: the text is empty; fill it in or drop the line")
        require_sound(place, found)
        texts.append(found)
        kinds.append(None if kind_column is None else row[kind_column])
    if not texts:
        raise DataError(f"{table.source}: no text in column {names[column]!r}; choose another text_column")
    said = tuple(name for one in kinds if one is not None and (name := cell_text(one)) is not None)
    return Documents(tuple(texts), said if len(said) == len(texts) else ())
