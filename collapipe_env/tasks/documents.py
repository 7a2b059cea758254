"""Documents from text files, folders of them, and tables; errors name the file and the line."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from collapipe_env.ground.errors import DataError, shown
from collapipe_env.tasks.data_parts import Parts, Samples, complete
from collapipe_env.tasks.data_sets import part_files, tables_at
from collapipe_env.tasks.table_files import (
    ROW_ENDINGS,
    Column,
    Table,
    cell_text,
    column_index,
    read_objects,
    read_text,
    require_sound,
    stem_of,
)

TEXT_ENDINGS = (".txt", ".md", ".rst")
"""Endings of plain text files; each may be followed by ``.gz``."""
TEXT_FIELD = "text"
"""Field of the text by default."""
KIND_FIELD = "source"
"""Field of a document's kind by default, where every training document has it."""

_stem = partial(stem_of, endings=TEXT_ENDINGS + ROW_ENDINGS)


def load_documents(path: Path | str, text: Column = None, kind: Column = None) -> Parts:
    """Read the training, dev and test documents of a data set, and their kinds if all of a part have one.

    In a folder, a file's name gives its part; see :func:`collapipe_env.tasks.data_parts.part_of`. In a folder
    without such names every plain text file is one document, and so is every line of a file of JSON lines. A
    plain text file that is a whole part, or that ``path`` names, holds documents separated by blank lines, or
    one a line if no line is blank. A missing part is a tenth of the training documents, by a fixed random
    choice. Texts have no white space at their ends.

    Args:
        path: The file or the folder, or the name of a data set of the Hugging Face hub, whose rows without
            text are left out.
        text: Field of the text; None takes ``text``, and from the hub otherwise the only one of strings.
        kind: Field of the kind; None takes ``source`` if all training documents have it.

    Raises:
        DataError: If something is missing or malformed.
    """
    of_hub = isinstance(path, str)
    if isinstance(path, Path) and path.is_dir():
        named, files = part_files(path, _stem)
        if files and not named:
            stems = {_stem(file): file for file in files}
            for file in files:
                if stems[_stem(file)] != file:
                    raise DataError(f"{path}: both {file.name} and {stems[_stem(file)].name} exist; keep one")
            whole = [documents_of(read_file(file, whole=True), text, kind) for file in files]
            texts = tuple(one for part in whole for one in part.inputs)
            kinds = tuple(one for part in whole for one in part.answers)
            return complete({"train": Samples(texts, kinds if len(kinds) == len(texts) else ())}, str(path))
    tables = tables_at(path, read_file, _stem, train="train.txt or train.jsonl", sole=False)
    found = {part: documents_of(table, text, kind, of_hub=of_hub) for part, table in tables.items()}
    return complete(found, str(path))


def read_file(path: Path, *, whole: bool = False) -> Table:
    """Read the documents of one file, or plain text as a whole; see :func:`load_documents`.

    Raises:
        DataError: If it cannot be read, has another ending or holds no document.
    """
    if stem_of(path, ROW_ENDINGS):
        return read_objects(path)
    if not stem_of(path, TEXT_ENDINGS):
        raise DataError(
            f"{path}: unknown ending {path.suffix!r}; use {', '.join(TEXT_ENDINGS)} for plain text or "
            f"{', '.join(ROW_ENDINGS)} for JSON lines, with or without .gz"
        )
    content = read_text(path).strip()
    if not content:
        raise DataError(f"{path}: empty file; it needs text")
    found = [content] if whole else re.split(r"\n[^\S\n]*\n\s*", content)
    if len(found) == 1 and not whole:  # a file without blank lines is a list of sentences
        found = content.split("\n")
    return Table(str(path), [[one.strip()] for one in found], [str(path)] * len(found))


def documents_of(table: Table, text: Column = None, kind: Column = None, *, of_hub: bool = False) -> Samples:
    """Return the documents of a table, which are its only column if it has no header.

    Of the hub's tables rows without text are left out, and a sole column of strings is the text.
    """
    names = table.header
    if names is None:
        return Samples(tuple(row[0] for row in table.rows))
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
        if kind_column is not None and row[kind_column] is not None:
            kinds.append(cell_text(row[kind_column]))
    if not texts:
        raise DataError(f"{table.source}: no text in column {names[column]!r}; choose another text_column")
    return Samples(tuple(texts), tuple(kinds) if None not in kinds and len(kinds) == len(texts) else ())
