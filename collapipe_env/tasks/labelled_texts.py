"""Labelled texts from tables: their columns, and their training, dev and test parts."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from collapipe_env.ground.errors import DataError, fits_a_line, shown
from collapipe_env.tasks.data_parts import Parts, Samples, complete
from collapipe_env.tasks.data_sets import samples_of, tables_at
from collapipe_env.tasks.table_files import Column, Table, column_index

TEXT_NAMES = frozenset(
    ("text", "sentence", "review", "content", "title", "description", "body", "phrase", "comment", "tweet")
)
"""Header names that mark a text column."""
LABEL_NAMES = frozenset(
    ("label", "labels", "class", "category", "sentiment", "target", "polarity", "rating", "topic", "intent")
)
"""Header names that mark a label column."""
MAX_CLASSES = 200
"""A column with more distinct values is not a class label."""
UNLABELLED = frozenset(("", "-1"))
"""Labels of a held-out part that has none, where training lacks them, too."""
NAME_WORDS = 2
"""Most words in a column's name; a first line with a longer text is no header."""


class Columns(NamedTuple):
    """Number of a table's columns, their names if it has them, and indices of those that are read."""

    width: int
    header: list[str] | None
    text: tuple[int, ...]
    label: int


def load_splits(path: Path | str, text: Column = None, label: Column = None) -> Parts:
    """Read the training, dev and test texts of a data set.

    In a folder, a file's name gives its part (see :func:`collapipe_env.tasks.data_parts.part_of`); a folder
    without a training part must hold a single table. Each missing part (all of them, for a single file) is a
    tenth of the training samples, by a fixed random choice that gives every part its share of every class
    (see :func:`collapipe_env.tasks.data_parts.held_out`). A dev or test part without labels, as public
    benchmarks have, counts as missing, with a warning.

    Args:
        path: The file or the folder, or the name of a data set of the Hugging Face hub.
        text: Header name or 0-based index of the text column, or several joined by plus signs (``"1+2"``,
            ``"title+body"``), whose cells are then joined by spaces; None detects one column.
        label: Header name or 0-based index of the label column; None takes the only column that is declared
            to hold classes, otherwise detects it.

    Raises:
        DataError: If a table is missing or malformed, the training part has one class only or too few
            samples, or a held-out table has a class that training lacks.
    """
    tables = tables_at(path)
    if label is None and len(tables["train"].classes) == 1:
        label = tables["train"].classes[0]
    train, columns = labelled_texts(tables["train"], text, label)
    known = set(train.answers)
    if len(known) == 1:
        raise DataError(
            f"{tables['train'].source}: every label is {train.answers[0]!r}, so there is nothing to learn; "
            "add samples of another class, or name the right label_column"
        )
    parts = {"train": train}
    for part, table in tables.items():
        if part == "train":
            continue
        if _without_labels(table, columns, text, label, known):
            warnings.warn(
                f"{table.source} has no labels, so a tenth of the training part is the {part} part",
                stacklevel=2,
            )
            continue
        parts[part] = found = labelled_texts(table, text, label, columns)[0]
        for name, place in zip(found.answers, found.places, strict=True):
            if name not in known:
                raise DataError(
                    f"{place}: label {name!r} never occurs in training; add it there or drop the line"
                )
    return complete(parts, str(path), train.answers)


def labelled_texts(
    table: Table, text: Column = None, label: Column = None, like: Columns | None = None
) -> tuple[Samples, Columns]:
    """Pick texts and labels out of a table, with or without a header; return their columns, too.

    The first row is a header if a column is requested by name, or if one of its cells is a usual name of a
    text or label column, which no other row has in that column. If both columns are requested by index, only
    usual names at these indices count.

    Args:
        text: Column or columns of the text; None takes the one that is named like a text, otherwise the one
            with the longest cells.
        label: Column of the label; None takes the one that is named ``label``, otherwise the only one named
            like a label, otherwise the only other one with few distinct values, otherwise the only one of
            these that holds nothing but whole numbers.
        like: Columns of another part of the same data set, used if this table has no header or the same one.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    header, rows, places = table.body(_has_header(table.cells, text, label))
    if not rows:
        raise DataError(f"{table.source}: a header and no samples; add at least three lines")
    if like is not None and like.width == len(rows[0]) and header in (None, like.header):
        columns = like
    else:
        columns = _find_columns(table, header, rows, text, label)
    asked = [("text", "text_column", columns.text), ("label", "label_column", (columns.label,))]
    found = samples_of(table, rows, places, asked)
    counts = Counter(found.answers)
    if len(counts) > MAX_CLASSES:
        raise DataError(
            f"{table.source}: column {columns.label} has {len(counts)} distinct values, more than the "
            f"{MAX_CLASSES} classes allowed; name the right label_column"
        )
    wrong = next((name for name in counts if not fits_a_line(name)), None)
    if wrong is not None:
        raise DataError(
            f"{places[found.answers.index(wrong)]}: label {shown(wrong)} holds a line break or a control "
            "character; leave it out"
        )
    # In a held-out part a class that training lacks is refused anyway.
    if header is None and like is None and not _by_index(text, label) and _like_header(found, counts):
        raise DataError(
            f"{places[0]}: label {found.answers[0]!r} occurs in this line only; if the line is a header, set "
            "the scenario's learning.text_column and learning.label_column to its names, otherwise to the "
            "columns' indices (from 0)"
        )
    return found, columns


def _without_labels(table: Table, like: Columns, text: Column, label: Column, known: Collection[str]) -> bool:
    """Whether a held-out table lacks the label column, as far as its header tells, or all its values.

    Columns ``like`` and labels ``known`` are those of the training part.
    """
    if len(table.rows[0]) < 2:
        return True
    header, rows, _ = table.body(_has_header(table.cells, text, label))
    column = like.label
    if header not in (None, like.header):
        names = [name.lower() for name in header or ()]
        theirs = [name.lower() for name in like.header or ()]
        usual = [*theirs[like.label : like.label + 1], "label", *sorted(LABEL_NAMES)]
        label_name = next((name for name in usual if name in names), None)
        if label_name is None:
            return any(name in names for name in (*TEXT_NAMES, *(theirs[i] for i in like.text if theirs)))
        column = names.index(label_name)
    elif rows and len(rows[0]) != like.width:
        return False
    return column not in table.unread and {row[column].strip() for row in rows} <= UNLABELLED - set(known)


def _column_list(asked: str | int) -> list[str | int]:
    """Return the columns of ``"1+2"`` or ``"title+body"``; whole numbers in a list are indices."""
    if isinstance(asked, int) or "+" not in asked:
        return [asked]
    names = [name.strip() for name in asked.split("+")]
    return [int(name) if name.isdecimal() else name for name in names]


def _has_header(rows: list[list[str]], text: Column, label: Column) -> bool:
    first = rows[0]
    asked = [] if text is None else _column_list(text)
    if isinstance(label, str) or any(isinstance(name, str) for name in asked):
        return True
    usual = dict.fromkeys(range(len(first)), TEXT_NAMES | LABEL_NAMES)
    if _by_index(text, label):
        usual = {i: LABEL_NAMES if i == label else TEXT_NAMES for i in usual if i == label or i in asked}
    # A class may be called "comment" or "topic"; then other samples are of it, too.
    named = [i for i, names in usual.items() if first[i].strip().lower() in names]
    return any(all(row[i] != first[i] or row == first for row in rows) for i in named)


def _by_index(text: Column, label: Column) -> bool:
    """Whether both columns are requested by index, as by users who know that there is no header."""
    return isinstance(label, int) and text is not None and all(isinstance(i, int) for i in _column_list(text))


def _like_header(found: Samples, counts: Counter[str]) -> bool:
    """Whether the first line, with a text as short as a column's name, alone has a class unlike others."""
    first = found.answers[0]
    if counts[first] > 1 or len(found.inputs[0].split()) > NAME_WORDS:
        return False
    others = [name for name in counts if name != first]
    rare = sum(counts[name] == 1 for name in others)
    return (all(map(_is_number, others)) and not _is_number(first)) or rare <= (len(found) > 10)


def _is_number(label: str) -> bool:
    return label.lstrip("+-").replace(".", "", 1).isdecimal()


def _find_columns(
    table: Table, header: list[str] | None, rows: list[list[str]], text: Column, label: Column
) -> Columns:
    count, source = len(rows[0]), table.source

    def index(field: str, asked: str | int) -> int:
        return column_index(source, field, asked, header or [], count)

    names = [name.lower() for name in header or []]
    readable = [i for i in range(count) if i not in table.unread]

    def named(*usual: str) -> list[int]:
        """Columns with usual names; no other takes the place of one that cannot be read."""
        found = [i for i, name in enumerate(names) if name in usual and i != label_column]
        return [i for i in found if i in readable] or found

    label_column = None if label is None else index("label_column", label)
    if text is not None:
        asked = [text] if text in (header or []) else _column_list(text)
        text_columns = tuple(index("text_column", name) for name in asked)
    else:
        others = named(*TEXT_NAMES) or [i for i in readable if i != label_column]
        text_columns = tuple(sorted(others, key=lambda i: -sum(len(row[i]) for row in rows))[:1])
    if label_column is None:
        found = named("label") or named(*LABEL_NAMES)
        others = [i for i in readable if i not in text_columns]
        candidates = [i for i in found if i not in text_columns] or _like_classes(rows, others)
        if len(candidates) == 1:
            label_column = candidates[0]
        elif others:
            listed = f" ({', '.join(names)})" if names else ""
            raise DataError(
                f"{source}: {len(candidates)} of the {count} columns{listed} look like a class label; set "
                "the scenario's learning.label_column to the right one's index (from 0) or header name"
            )
    if label_column is None or not text_columns:
        few = "fewer than two columns of texts, truth values or whole numbers"
        raise DataError(
            f"{table.places[0]}: {few if table.unread else 'one column only'}; separate text and label by "
            "a tab (.tsv) or comma (.csv), or add the labels if there are none"
        )
    if label_column in text_columns:
        raise DataError(
            f"{source}: column {label_column} is requested both as text and as label; name two columns"
        )
    return Columns(count, header, text_columns, label_column)


def _like_classes(rows: list[list[str]], others: list[int]) -> list[int]:
    """Return the only one of some columns, or those whose values look like classes."""
    if len(others) == 1:
        return others
    few = min(MAX_CLASSES, max(2, len(rows) // 2))
    values = {i: {row[i].strip() for row in rows} for i in others}
    found = [i for i in others if 2 <= len(values[i]) <= few]
    numbers = [i for i in found if all(value.lstrip("+-").isdecimal() for value in values[i])]
    return numbers if len(numbers) == 1 else found
