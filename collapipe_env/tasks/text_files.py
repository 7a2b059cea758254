"""Labelled texts from local TSV and CSV files; every complaint names the file and the line."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collapipe_env.errors import DataError, nearest_name

TEXT_NAMES = frozenset(
    ("text", "sentence", "review", "content", "title", "description", "body", "phrase", "comment", "tweet")
)
"""Header names that mark a text column."""
LABEL_NAMES = frozenset(
    ("label", "class", "category", "sentiment", "target", "polarity", "rating", "topic", "intent")
)
"""Header names that mark a label column."""
MAX_CLASSES = 200
"""A column with more distinct values is no class label."""
TRAIN_SHARE = 0.8
"""Share of a file without its own held-out part that is trained on."""

Column = str | int | None


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with the labels as written in the file, and where each came from.

    Attributes:
        texts: The texts, none empty.
        labels: As many labels.
        places: ``"file:line"`` of each.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    places: tuple[str, ...]

    def subset(self, indices: np.ndarray) -> LabelledTexts:
        """Return the samples at ``indices``, in that order."""
        return LabelledTexts(
            tuple(self.texts[i] for i in indices),
            tuple(self.labels[i] for i in indices),
            tuple(self.places[i] for i in indices),
        )


def load_splits(path: Path, text: Column = None, label: Column = None) -> tuple[LabelledTexts, LabelledTexts]:
    """Read the training and the held-out texts of a file or a folder.

    A folder holds ``train.tsv`` (or ``.csv``) and maybe ``test`` and ``dev``; the held-out part is ``test``,
    else ``dev``. Without either, and for a single file, a fixed permutation gives 80 % to training.

    Args:
        path: The file or the folder.
        text: Header name or 0-based index of the text column; None detects it.
        label: The same for the label column.

    Returns:
        Training texts and held-out texts.

    Raises:
        DataError: If something is missing or malformed.
    """
    if path.is_dir():
        train_file = _split_file(path, "train")
        if train_file is None:
            raise DataError(f"{path}: no train.tsv or train.csv in this folder; add one or name a file")
        held_out_file = _split_file(path, "test") or _split_file(path, "dev")
        train = read_labelled_texts(train_file, text, label)
        if held_out_file is not None:
            return train, read_labelled_texts(held_out_file, text, label)
    elif path.is_file():
        train = read_labelled_texts(path, text, label)
    else:
        raise DataError(
            f"{path}: no such file or folder; give the path of a TSV or CSV file or of a folder of them"
        )
    if len(train.texts) < 2:
        raise DataError(
            f"{path}: {len(train.texts)} sample cannot be split in training and held-out; add more"
        )
    order = np.random.default_rng(0).permutation(len(train.texts))
    cut = min(max(1, round(TRAIN_SHARE * len(order))), len(order) - 1)
    return train.subset(order[:cut]), train.subset(order[cut:])


def _split_file(folder: Path, split: str) -> Path | None:
    """Return the file of a split, or None; refuse two of them."""
    found = [
        folder / f"{split}{suffix}" for suffix in (".tsv", ".csv") if (folder / f"{split}{suffix}").is_file()
    ]
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name} exist; keep one")
    return found[0] if found else None


def read_labelled_texts(path: Path, text: Column = None, label: Column = None) -> LabelledTexts:
    """Read one TSV (never quoted) or CSV (quoted where needed) file in UTF-8, with or without a header.

    The first line is a header if one of its cells is a usual name of a text or label column, or if a column
    is asked for by name. Blank lines are skipped.

    Args:
        path: A file that ends in .tsv, .txt (read as TSV) or .csv.
        text: Header name or 0-based index of the text column; None takes the column with the longest cells.
        label: Header name or 0-based index of the label column; None takes the only other column that has few
            distinct values.

    Returns:
        The labelled texts in file order.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    rows, lines = _read_rows(path)
    first = [cell.strip().lower() for cell in rows[0]]
    has_header = (
        isinstance(text, str) or isinstance(label, str) or any(c in TEXT_NAMES | LABEL_NAMES for c in first)
    )
    header = rows[0] if has_header else None
    body, body_lines = (rows[1:], lines[1:]) if has_header else (rows, lines)
    if not body:
        raise DataError(f"{path}: a header and no samples; add at least two lines")
    text_index = _asked_column(path, "text_column", text, header, len(rows[0]))
    label_index = _asked_column(path, "label_column", label, header, len(rows[0]))
    if text_index is None:
        text_index = _detect_text(body, first if has_header else [], label_index)
    if label_index is None:
        label_index = _detect_label(path, body, first if has_header else [], text_index)
    if text_index == label_index:
        raise DataError(
            f"{path}: column {text_index} is asked for both as text and as label; name two columns"
        )
    texts = [row[text_index].strip() for row in body]
    labels = [row[label_index].strip() for row in body]
    for name, cells in (("text", texts), ("label", labels)):
        if "" in cells:
            raise DataError(
                f"{path}:{body_lines[cells.index('')]}: the {name} is empty; fill it in or drop the line"
            )
    counts = Counter(labels)
    if len(counts) > MAX_CLASSES:
        raise DataError(
            f"{path}: column {label_index} has {len(counts)} distinct values, more than the {MAX_CLASSES} "
            "classes "
            "allowed; name the right label_column"
        )
    if (
        not has_header
        and len(labels) > 10
        and counts[labels[0]] == 1
        and min(list(counts.values())[1:], default=1) > 1
    ):
        raise DataError(
            f"{path}:{body_lines[0]}: label {labels[0]!r} occurs in this line only; if the line is a "
            "header, set "
            "text_column and label_column to its names"
        )
    return LabelledTexts(tuple(texts), tuple(labels), tuple(f"{path}:{line}" for line in body_lines))


def _read_rows(path: Path) -> tuple[list[list[str]], list[int]]:
    """Return the rows that are not blank and their first line numbers; all rows have equally many cells."""
    suffix = path.suffix.lower()
    if suffix not in {".tsv", ".txt", ".csv"}:
        raise DataError(f"{path}: unknown ending {suffix!r}; use .tsv or .csv")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    try:
        decoded = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: not UTF-8 text; convert the file to UTF-8") from error
    # Only \n and \r end a line: str.splitlines would also cut at form feeds and Unicode separators in a text.
    source = (part + "\n" for part in decoded.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    if suffix == ".csv":
        reader = csv.reader(source, delimiter=",", strict=True)
    else:
        reader = csv.reader(source, delimiter="\t", quoting=csv.QUOTE_NONE)
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                if rows and len(row) != len(rows[0]):
                    raise DataError(
                        f"{path}:{start}: {len(row)} columns where line {lines[0]} has {len(rows[0])}; "
                        "check the "
                        "separators" + (" and quotes" if suffix == ".csv" else "")
                    )
                rows.append(row)
                lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{start}: {error}; check the quotes of this line") from error
    if not rows:
        raise DataError(f"{path}: empty file; it needs one sample a line")
    if len(rows[0]) < 2:
        raise DataError(
            f"{path}:{lines[0]}: one column only; separate text and label by a tab (.tsv) or comma (.csv)"
        )
    return rows, lines


def _asked_column(
    path: Path, field: str, asked: Column, header: list[str] | None, columns: int
) -> int | None:
    """Return the index of the column asked for by name or index, None if none was."""
    if asked is None:
        return None
    if isinstance(asked, int):
        if not 0 <= asked < columns:
            raise DataError(
                f"{path}: {field} {asked} is out of range; the file has columns 0 to {columns - 1}"
            )
        return asked
    names = [cell.strip() for cell in header or []]
    if asked not in names:
        raise DataError(f"{path}:1: no column {asked!r} for {field}; {nearest_name(asked, names)}")
    return names.index(asked)


def _detect_text(body: list[list[str]], header: list[str], label: int | None) -> int:
    """Return the column named like a text, else the one with the longest cells."""
    named = [i for i, cell in enumerate(header) if cell in TEXT_NAMES and i != label]
    candidates = named or [i for i in range(len(body[0])) if i != label]
    return max(candidates, key=lambda i: sum(len(row[i]) for row in body))


def _detect_label(path: Path, body: list[list[str]], header: list[str], text: int) -> int:
    """Return the column named like a label, else the only other one that has few distinct values."""
    named = [i for i, cell in enumerate(header) if cell in LABEL_NAMES and i != text]
    others = [i for i in range(len(body[0])) if i != text]
    if len(others) == 1:
        return others[0]
    few = min(MAX_CLASSES, max(2, len(body) // 2))
    candidates = named or [i for i in others if 2 <= len({row[i] for row in body}) <= few]
    if len(candidates) != 1:
        raise DataError(
            f"{path}: {len(candidates)} of the {len(body[0])} columns look like a class label; set "
            "label_column to "
            "the right one's index (from 0) or header name"
        )
    return candidates[0]
