"""Labelled texts from tables: their columns, and their training, dev and test parts."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collapipe_env.ground.errors import DataError, fits_a_line, nearest_name, shown
from collapipe_env.ground.typed_paths import why_unusable
from collapipe_env.tasks.data_parts import held_out
from collapipe_env.tasks.table_files import Table, read_table, read_tables, tables_in

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

Column = str | int | None


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with their labels as written in the file, and their places there.

    Attributes:
        texts: The texts, none empty.
        labels: As many labels.
        places: ``"file:line"`` of each.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    places: tuple[str, ...]

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.texts)

    def subset(self, indices: np.ndarray) -> LabelledTexts:
        """Return the samples at ``indices``, in that order."""
        return LabelledTexts(
            tuple(self.texts[i] for i in indices),
            tuple(self.labels[i] for i in indices),
            tuple(self.places[i] for i in indices),
        )


@dataclass(frozen=True)
class Columns:
    """Columns of a table that are read.

    Attributes:
        count: Columns of the table.
        header: Their names, if the table has them.
        text: Indices of the columns that are joined to the text.
        label: Index of the label column.
    """

    count: int
    header: list[str] | None
    text: tuple[int, ...]
    label: int


def load_splits(
    path: Path, text: Column = None, label: Column = None
) -> tuple[LabelledTexts, LabelledTexts, LabelledTexts]:
    """Read the training, dev and test texts of a file or a folder.

    In a folder, a file's name gives its part (see :func:`collapipe_env.tasks.data_parts.part_of`); a folder
    without a training part must hold a single table. Each missing part (all of them, for a single file) is a
    tenth of the training samples, by a fixed random choice that gives every part its share of every class
    (see :func:`collapipe_env.tasks.data_parts.held_out`). A dev or test part without labels, as public
    benchmarks have, counts as missing, with a warning.

    Args:
        path: The file or the folder.
        text: Header name or 0-based index of the text column, or several joined by plus signs (``"1+2"``,
            ``"title+body"``), whose cells are then joined by spaces; None detects one column.
        label: Header name or 0-based index of the label column; None detects it.

    Returns:
        Training, dev and test texts.

    Raises:
        DataError: If something is missing or malformed.
    """
    if path.is_dir():
        tables = read_tables(tables_in(path), path)
    elif path.is_file():
        tables = {"train": read_table(path)}
    else:
        raise DataError(
            f"{path}: {why_unusable(path)}; give the path of a TSV, CSV or JSON lines file or of a folder of "
            "them"
        )
    return labelled_parts(tables, str(path), text, label)


def labelled_parts(
    tables: Mapping[str, Table], source: str, text: Column = None, label: Column = None
) -> tuple[LabelledTexts, LabelledTexts, LabelledTexts]:
    """Return the labelled texts of a data set's tables; see :func:`load_splits`.

    Args:
        tables: Table of the training part (``"train"``) and possibly of ``"dev"`` and ``"test"``.
        source: Name of the data set, for errors.
        text: Column or columns of the text; None detects it.
        label: Column of the label; None detects it.

    Raises:
        DataError: If a table is malformed, the training part has one class only or too few samples, or a
            held-out table has a class that training lacks.
    """
    train, columns = labelled_texts(tables["train"], text, label)
    if len(set(train.labels)) == 1:
        raise DataError(
            f"{tables['train'].source}: every label is {train.labels[0]!r}, so there is nothing to learn; "
            "add samples of another class, or name the right label_column"
        )
    known = set(train.labels)
    parts: dict[str, LabelledTexts] = {}
    for part in ("dev", "test"):
        if part in tables and _without_labels(tables[part], columns, text, label, known):
            warnings.warn(
                f"{tables[part].source} has no labels, so a tenth of the training part is the {part} part",
                stacklevel=2,
            )
        elif part in tables:
            parts[part] = labelled_texts(tables[part], text, label, columns)[0]
    for found in parts.values():
        for name, place in zip(found.labels, found.places, strict=True):
            if name not in known:
                raise DataError(
                    f"{place}: label {name!r} never occurs in training; add it there or drop the line"
                )
    missing = [part for part in ("dev", "test") if part not in parts]
    chosen = held_out(len(train), missing, source, train.labels)
    parts |= {part: train.subset(indices) for part, indices in chosen.items()}
    return parts["train"], parts["dev"], parts["test"]


def labelled_texts(
    table: Table, text: Column = None, label: Column = None, like: Columns | None = None
) -> tuple[LabelledTexts, Columns]:
    """Pick texts and labels out of a table, with or without a header.

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

    Returns:
        The labelled texts in the table's order, and the columns they are from.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    _require_read(table, text, label)
    if len(table.rows[0]) < 2:
        raise DataError(
            f"{table.places[0]}: one column only; separate text and label by a tab (.tsv) or comma (.csv), "
            "or add the labels if there are none"
        )
    header, rows, places = _cut_header(table, text, label)
    if like is not None and like.count == len(rows[0]) and header in (None, like.header):
        columns = like
    else:
        columns = _find_columns(table.source, header, rows, text, label)
    texts = [" ".join(cell for i in columns.text if (cell := row[i].strip())) for row in rows]
    labels = [row[columns.label].strip() for row in rows]
    for name, cells in (("text", texts), ("label", labels)):
        if "" in cells:
            raise DataError(f"{places[cells.index('')]}: the {name} is empty; fill it in or drop the line")
    counts = Counter(labels)
    if len(counts) > MAX_CLASSES:
        raise DataError(
            f"{table.source}: column {columns.label} has {len(counts)} distinct values, more than the "
            f"{MAX_CLASSES} classes allowed; name the right label_column"
        )
    wrong = next((name for name in counts if not fits_a_line(name)), None)
    if wrong is not None:
        raise DataError(
            f"{places[labels.index(wrong)]}: label {shown(wrong)} holds a line break or a control character; "
            "leave it out"
        )
    # In a held-out part a class that training lacks is refused anyway.
    if header is None and like is None and not _by_index(text, label) and _like_header(texts, labels, counts):
        raise DataError(
            f"{places[0]}: label {labels[0]!r} occurs in this line only; if the line is a header, set the "
            "scenario's learning.text_column and learning.label_column to its names, otherwise to the "
            "columns' indices (from 0)"
        )
    return LabelledTexts(tuple(texts), tuple(labels), tuple(places)), columns


def _without_labels(table: Table, like: Columns, text: Column, label: Column, known: Collection[str]) -> bool:
    """Whether a held-out table lacks the label column, as far as its header tells, or all its values.

    Args:
        like: Columns of the training part.
        text: Requested text column.
        label: Requested label column.
        known: Labels of the training part.
    """
    ours = like.header[like.label] if like.header else label
    _require_read(table, text, ours if ours in table.left_out else label)
    if len(table.rows[0]) < 2:
        return True
    header, rows, _ = _cut_header(table, text, label)
    column = like.label
    if header not in (None, like.header):
        names = [name.lower() for name in header or ()]
        theirs = [name.lower() for name in like.header or ()]
        usual = [*theirs[like.label : like.label + 1], "label", *sorted(LABEL_NAMES)]
        label_name = next((name for name in usual if name in names), None)
        if label_name is None:
            return any(name in names for name in (*TEXT_NAMES, *(theirs[i] for i in like.text if theirs)))
        column = names.index(label_name)
    elif len(rows[0]) != like.count:
        return False
    return {row[column].strip() for row in rows} <= UNLABELLED - set(known)


def _cut_header(
    table: Table, text: Column, label: Column
) -> tuple[list[str] | None, list[list[str]], list[str]]:
    """Return the header of a table, if it has one, and the other rows with their places."""
    header, rows, places = table.header, table.rows, table.places
    if header is None and _has_header(rows, text, label):
        header, rows, places = [cell.strip() for cell in rows[0]], rows[1:], places[1:]
        if not rows:
            raise DataError(f"{table.source}: a header and no samples; add at least three lines")
    return header, rows, places


def _column_list(asked: str | int) -> list[str | int]:
    """Return the columns of ``"1+2"`` or ``"title+body"``; whole numbers in a list are indices."""
    if isinstance(asked, int) or "+" not in asked:
        return [asked]
    names = [name.strip() for name in asked.split("+")]
    return [int(name) if name.isdecimal() else name for name in names]


def _require_read(table: Table, text: Column, label: Column) -> None:
    """Refuse to let another column take the place of one that is requested, or usual, and was left out."""
    for field, asked, usual in (("text_column", text, TEXT_NAMES), ("label_column", label, LABEL_NAMES)):
        named = any(name.lower() in usual for name in table.header or ())
        for name in table.left_out:
            expected = name.lower() in usual and (not named or name.lower() == "label")
            if name == asked or (asked is None and expected):
                raise table.unread(name, field)


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


def _like_header(texts: list[str], labels: list[str], counts: Counter[str]) -> bool:
    """Whether the first line, with a text as short as a column's name, alone has a class unlike others."""
    if counts[labels[0]] > 1 or len(texts[0].split()) > NAME_WORDS:
        return False
    others = {name: count for name, count in counts.items() if name != labels[0]}
    numbers = [_is_number(name) for name in others]
    rare = sum(count == 1 for count in others.values())
    return (all(numbers) and not _is_number(labels[0])) or rare <= (len(labels) > 10)


def _is_number(label: str) -> bool:
    return label.lstrip("+-").replace(".", "", 1).isdecimal()


def _find_columns(
    source: str, header: list[str] | None, rows: list[list[str]], text: Column, label: Column
) -> Columns:
    count = len(rows[0])
    names = [name.lower() for name in header or []]
    text_columns: tuple[int, ...] = ()
    if text is not None:
        asked = [text] if text in (header or []) else _column_list(text)
        text_columns = tuple(_asked_column(source, "text_column", name, header, count) for name in asked)
    label_column = None if label is None else _asked_column(source, "label_column", label, header, count)
    if not text_columns:
        text_columns = (_detect_text(rows, names, label_column),)
    if label_column is None:
        label_column = _detect_label(source, rows, names, text_columns)
    if label_column in text_columns:
        raise DataError(
            f"{source}: column {label_column} is requested both as text and as label; name two columns"
        )
    return Columns(count, header, text_columns, label_column)


def _asked_column(source: str, field: str, asked: str | int, header: list[str] | None, count: int) -> int:
    """Return the index of the column that was requested by name or index."""
    if isinstance(asked, int):
        if not 0 <= asked < count:
            raise DataError(f"{source}: {field} {asked} is out of range; there are columns 0 to {count - 1}")
        return asked
    names = header or []
    if asked not in names:
        raise DataError(f"{source}: no column {asked!r} for {field}; {nearest_name(asked, names)}")
    return names.index(asked)


def _detect_text(rows: list[list[str]], names: list[str], label: int | None) -> int:
    """Return the column named like a text, otherwise the one with the longest cells."""
    named = [i for i, name in enumerate(names) if name in TEXT_NAMES and i != label]
    candidates = named or [i for i in range(len(rows[0])) if i != label]
    return max(candidates, key=lambda i: sum(len(row[i]) for row in rows))


def _detect_label(source: str, rows: list[list[str]], names: list[str], text: tuple[int, ...]) -> int:
    """Return the column named like a label, otherwise the one whose values look like classes."""
    others = [i for i in range(len(rows[0])) if i not in text]
    if len(others) == 1:
        return others[0]
    few = min(MAX_CLASSES, max(2, len(rows) // 2))
    values = {i: {row[i].strip() for row in rows} for i in others}
    named = [i for i in others if i < len(names) and names[i] in LABEL_NAMES]
    candidates = [i for i in named if names[i] == "label"] or named
    if not candidates:
        candidates = [i for i in others if 2 <= len(values[i]) <= few]
        numbers = [i for i in candidates if all(value.lstrip("+-").isdecimal() for value in values[i])]
        candidates = numbers if len(numbers) == 1 else candidates
    if len(candidates) != 1:
        listed = f" ({', '.join(names)})" if names else ""
        raise DataError(
            f"{source}: {len(candidates)} of the {len(rows[0])} columns{listed} look like a class label; set "
            "the scenario's learning.label_column to the right one's index (from 0) or header name"
        )
    return candidates[0]
