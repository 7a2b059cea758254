"""Rows of local TSV, CSV and JSON lines files, plain or gzip-compressed; errors name file and line."""

from __future__ import annotations

import csv
import gzip
import io
import re
import string
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from collapipe_env.ground.errors import DataError, shown
from collapipe_env.ground.files import parse_json, read_gzip, read_regular
from collapipe_env.tasks.data_parts import choose_named

ROW_ENDINGS = (".jsonl", ".ndjson")
"""Endings of files with a JSON object a line; each may be followed by ``.gz``."""
ENDINGS = (".tsv", ".csv", ".txt", *ROW_ENDINGS)
"""Endings of table files; each may be followed by ``.gz``. A .txt file is read as .tsv."""
SEPARATORS = ",;\t"
"""Separators of CSV files; the one counts that gives every line equally many columns, the most of them."""

LARGEST = 8 * 1024**3
"""Most bytes of a data file, compressed or not."""
LONGEST_LINE = 200_000
"""Most characters of a line."""
LONGEST_WORD = 5_000
"""Most characters of a word, between spaces and punctuation marks: the time of learning sub-words grows with
their square."""

# In AG News and its relatives a backslash, or a backslash and an n, stands for a line break. Before a small
# letter the n belongs to the word that follows: "gave\no sign" has a backslash alone.
_LINE_BREAK = re.compile(r"(?:\\n)+(?![a-z])|\\+")

# Excel's own first line of a CSV file.
_EXCEL = re.compile(r'"?sep=([^"\n])"?(?=\n|$)', re.IGNORECASE)

_NESTED = "translation"
"""Field of JSON lines whose own fields are columns, as the Hugging Face hub writes pairs of sentences."""


@dataclass(frozen=True)
class Table:
    """Cells of a file or of a part of a data set.

    Attributes:
        source: Its name in errors.
        rows: At least one row, all with equally many cells.
        places: Place of each row, ``"file:line"``.
        header: Names of the columns, where they are known for certain; None if the first row may hold them.
        left_out: Place and value that kept a column from being read, by its name.
    """

    source: str
    rows: list[list[str]]
    places: list[str]
    header: list[str] | None = None
    left_out: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def unread(self, column: str, setting: str) -> DataError:
        """Return the error for a column of :attr:`left_out` whose place no other column may take.

        Args:
            column: Its name.
            setting: Field of the scenario's ``learning`` that names columns.
        """
        place, value = self.left_out[column]
        return DataError(
            f"{place}: {column!r} holds {value}, which is no text, truth value or whole number; convert it, "
            f"or set the scenario's learning.{setting} to another column"
        )


def table_ending(path: Path) -> str:
    """Return a file's ending, one of :data:`ENDINGS` without ``.gz``; empty if it has none of them."""
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    return ending if ending in ENDINGS else ""


def tables_in(folder: Path, endings: Sequence[str] = ENDINGS) -> dict[str, Path]:
    """Return the table files of a folder by their names without ending.

    Raises:
        DataError: If two have the same name.
    """
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        ending = table_ending(file)
        if ending in endings and file.is_file():
            stem = file.name.lower().removesuffix(".gz").removesuffix(ending)
            if stem in files:
                raise DataError(f"{folder}: both {files[stem].name} and {file.name} exist; keep one")
            files[stem] = file
    return files


def read_tables(files: Mapping[str, Path], folder: Path) -> dict[str, Table]:
    """Read the table of each part of a folder; see :func:`~collapipe_env.tasks.data_parts.choose_named`.

    Args:
        files: From :func:`tables_in`. A sole one is for training, whatever its name.
        folder: The folder, for errors.

    Raises:
        DataError: If there is no training part, or a table cannot be read.
    """
    named = {part: files[stem] for part, stem in choose_named(list(files), str(folder)).items()}
    if "train" not in named:
        sole = [file for file in files.values() if table_ending(file) != ".txt"]
        if len(sole) != 1:
            raise DataError(
                f"{folder}: no train.tsv, train.csv or train.jsonl in this folder, and {len(sole)} tables "
                "where a single one could be split; add a training file or name a file"
            )
        named = {"train": sole[0]}
    return {part: read_table(file) for part, file in named.items()}


def read_table(path: Path) -> Table:
    """Read one TSV (never quoted), CSV (quoted where needed) or JSON lines file in UTF-8.

    Blank lines are skipped. CSV files may be separated by semicolons or tabs, and begin with Excel's line
    ``sep=;``. In them backslashes become spaces: data sets use them for line breaks. JSON lines are objects
    whose fields are the columns; fields other than strings, whole numbers (also 1.0) and truth values are
    left out.

    Args:
        path: A file with one of the :data:`ENDINGS`.

    Returns:
        Its rows; the header of a TSV or CSV file, if any, is the first of them.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    ending = table_ending(path)
    if not ending:
        raise DataError(
            f"{path}: unknown ending {path.suffix!r}; use .tsv, .csv or .jsonl, with or without .gz"
        )
    if ending in ROW_ENDINGS:
        return _json_table(path)
    # Only \n and \r end a line: str.splitlines would also cut at form feeds and Unicode separators in a text.
    text = read_text(path).replace("\r\n", "\n").replace("\r", "\n")
    if ending != ".csv":
        return _separated(path, text, "\t", quoted=False)
    said = _EXCEL.match(text)
    if said:
        return _separated(path, text[said.end() :], said[1], quoted=True)
    found: dict[str, Table] = {}
    faults: list[DataError] = []
    for separator in SEPARATORS:
        try:
            found[separator] = _separated(path, text, separator, quoted=True)
        except DataError as fault:
            faults.append(fault)
    ranks = {separator: _rank(table) for separator, table in found.items() if len(table.rows[0]) > 1}
    best = [separator for separator in ranks if ranks[separator] == max(ranks.values())]
    if len(best) > 1:
        raise DataError(
            f"{path}: both {best[0]!r} and {best[1]!r} give every line {len(found[best[0]].rows[0])} "
            f"columns; add a first line sep={best[1]} or sep={best[0]}, or quote the texts"
        )
    if not best and SEPARATORS[0] not in found:
        raise faults[0]
    return found[best[0] if best else SEPARATORS[0]]


def _rank(table: Table) -> tuple[int, int]:
    """Rank of a way to separate a file: no quoted cell is cut in two, then the most columns."""
    cut = sum(cell.count('"') % 2 for row in table.rows for cell in row)
    return -cut, len(table.rows[0])


def _separated(path: Path, text: str, separator: str, *, quoted: bool) -> Table:
    # In strict mode the reader refuses a quote inside a quoted cell, which would shift the columns unnoticed.
    lines = (line + "\n" for line in text.split("\n"))
    if quoted:
        reader = csv.reader(lines, delimiter=separator, strict=True)
    else:
        reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
    rows: list[list[str]] = []
    places: list[str] = []
    start = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                if rows and len(row) != len(rows[0]):
                    raise DataError(
                        f"{path}:{start}: {len(row)} columns where {places[0]} has {len(rows[0])}; check the "
                        "separators" + (" and quotes" if quoted else "")
                    )
                rows.append([_LINE_BREAK.sub(" ", cell) for cell in row] if quoted else row)
                places.append(f"{path}:{start}")
            start = reader.line_num + 1
    except csv.Error as error:
        kind = "quotes" if quoted else "separators"
        raise DataError(f"{path}:{start}: {error}; check the {kind} of this line") from error
    if not rows:
        raise DataError(f"{path}: empty file; it needs one sample a line")
    return Table(str(path), rows, places)


def json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and object of every line of a JSON lines file; blank ones are skipped.

    Raises:
        DataError: If it cannot be read, or a line is not a JSON object.
    """
    # Not splitlines, which would also cut at Unicode separators within a string.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = parse_json(line.encode())
        except ValueError as error:
            raise DataError(f"{place}: not JSON ({error}); write one object a line") from None
        if not isinstance(row, dict):
            raise DataError(f"{place}: {shown(row)} where an object is expected; write one object a line")
        yield place, row


def _json_table(path: Path) -> Table:
    places: list[str] = []
    objects: list[dict[str, Any]] = []
    for place, row in json_rows(path):
        places.append(place)
        objects.append(row[_NESTED] if isinstance(row.get(_NESTED), dict) else row)
    if not objects:
        raise DataError(f"{path}: empty file; it needs one sample a line")
    names = list(dict.fromkeys(name for row in objects for name in row))
    columns = {name: [cell_text(row.get(name)) for row in objects] for name in names}
    left_out = {}
    for name, column in columns.items():
        if None in column:
            first = column.index(None)
            left_out[name] = places[first], shown(objects[first][name])
    usable = [name for name in names if name not in left_out]
    if not usable:
        raise DataError(f"{path}: no fields of strings or whole numbers; write one object of them a line")
    rows = [[cell or "" for cell in row] for row in zip(*(columns[name] for name in usable), strict=True)]
    for place, cells in zip(places, rows, strict=True):
        for cell in cells:
            require_sound(place, cell)
    return Table(str(path), rows, places, usable, left_out)


def cell_text(value: Any) -> str | None:
    """Return a value as a cell, empty for None; None if it is no text, truth value or whole number.

    Floats such as 1.0 count as whole numbers: pandas writes whole numbers so where some are missing.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return "" if value is None else str(value) if isinstance(value, str | int) else None


def read_text(path: Path) -> str:
    """Return a file's text without byte order mark, decompressed if its name ends in ``.gz``.

    Raises:
        DataError: If it cannot be read, is cut short, is not a regular file, is not UTF-8, or exceeds the
            limits.
    """
    try:
        content = (read_gzip if path.suffix.lower() == ".gz" else read_regular)(path, LARGEST)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a complete gzip file ({error}); compress it again") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{line}: not UTF-8 text; convert the file to UTF-8 (an old Western European one with "
            "iconv -f LATIN1 -t UTF-8 OLD > NEW)"
        ) from error
    _require_short_lines(path, content)
    return text


def _require_short_lines(path: Path, content: bytes) -> None:
    """Refuse UTF-8 text with lines or words that no data set has and that take minutes to learn from."""
    for number, line in enumerate(io.BytesIO(content), start=1):
        if len(line) <= LONGEST_WORD:  # bytes are at least as many as characters
            continue
        for part in line.decode("utf-8").rstrip("\r\n").split("\r"):
            if len(part) > LONGEST_LINE:
                raise DataError(
                    f"{path}:{number}: {len(part):,} characters in a line, above the limit of "
                    f"{LONGEST_LINE:,}; break it up, one sample a line"
                )
            require_sound(f"{path}:{number}", part)


def require_sound(place: str, text: str) -> None:
    """Refuse a text that is not valid Unicode, or with a word that takes minutes to learn from.

    Args:
        place: Place of the text, for the error.

    Raises:
        DataError: If it has a lone surrogate, or a word is longer than :data:`LONGEST_WORD`.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{place}: the text is not valid Unicode (it has a lone surrogate); correct it or drop the line"
        ) from None
    if len(text) <= LONGEST_WORD:
        return
    longest = max(map(len, _between_words().split(text)))
    if longest > LONGEST_WORD:
        raise DataError(
            f"{place}: {longest:,} characters without a space or punctuation mark, above "
            f"the limit of {LONGEST_WORD:,}; separate the words, or leave the line out"
        )


@cache
def _between_words() -> re.Pattern[str]:
    """Return the separators of words for the tokenisers: spaces and punctuation marks of all scripts."""
    marks = {chr(code) for code in range(0x10000) if unicodedata.category(chr(code)).startswith("P")}
    return re.compile(rf"[\s{re.escape(''.join(sorted(marks | set(string.punctuation))))}]+")
