"""Rows of local TSV, CSV and JSON lines files, plain or gzip-compressed; errors name file and line."""

from __future__ import annotations

import csv
import gzip
import re
import string
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from collapipe_env.ground.errors import DataError, nearest_name, shown
from collapipe_env.ground.files import parse_json, read_gzip, read_regular

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

Column = str | int | None
"""A column as requested: its name in the header or its index from 0; None detects it."""

NESTED = "translation"
"""Field of objects whose own fields are columns, as the Hugging Face hub writes pairs of sentences."""


@dataclass(frozen=True)
class Table:
    """Rows of a file or of a split of a data set.

    Attributes:
        source: Its name in errors.
        rows: At least one row, all with equally many cells: texts, or any values where there is a header.
        places: Place of each row, ``"file:line"``.
        header: Names of the columns, where they are known for certain; None if the first row may hold them.
        classes: Names of the columns that are declared to hold classes.
    """

    source: str
    rows: Sequence[Sequence[Any]]
    places: Sequence[str]
    header: list[str] | None = None
    classes: tuple[str, ...] = ()

    @cached_property
    def unread(self) -> dict[int, int]:
        """Columns that do not hold texts, truth values or whole numbers alone, with the first other row."""
        if self.header is None:  # texts, whose lines are sound
            return {}
        columns = [[cell_text(value) for value in column] for column in zip(*self.rows, strict=True)]
        return {i: column.index(None) for i, column in enumerate(columns) if None in column}

    @cached_property
    def cells(self) -> list[list[str]]:
        """The rows as texts; values that are no texts, truth values or whole numbers are empty.

        Raises:
            DataError: If a text is not sound, see :func:`require_sound`.
        """
        if self.header is None:
            return [list(row) for row in self.rows]
        rows = [[cell_text(value) or "" for value in row] for row in self.rows]
        for place, row in zip(self.places, rows, strict=True):
            for cell in row:
                require_sound(place, cell)
        return rows

    def body(self, headed: bool) -> tuple[list[str] | None, list[list[str]], Sequence[str]]:
        """Return header, rows as texts, and places; without a header, the first row is one if ``headed``."""
        if self.header is not None or not headed:
            return self.header, self.cells, self.places
        return [cell.strip() for cell in self.rows[0]], self.cells[1:], self.places[1:]

    def require_read(self, column: int, setting: str) -> None:
        """Refuse a column that is :attr:`unread`, rather than let another one take its place.

        Args:
            setting: Field of the scenario's ``learning`` that names columns.

        Raises:
            DataError: With the place and the value at fault.
        """
        row = self.unread.get(column)
        if row is not None and self.header is not None:
            raise DataError(
                f"{self.places[row]}: {self.header[column]!r} holds {shown(self.rows[row][column])}, which "
                "is no text, truth value or whole number; convert it, or set the scenario's "
                f"learning.{setting} to another column"
            )


def column_index(
    source: str, field: str, asked: str | int, header: Sequence[str], count: int | None = None
) -> int:
    """Return the index of a column of the table ``source`` that is requested by name or index.

    Args:
        field: Field of the scenario's ``learning`` that names it.
        header: Names of the columns; empty if they have none.
        count: Number of columns; None takes the header's.

    Raises:
        DataError: If there is no such column.
    """
    count = len(header) if count is None else count
    if isinstance(asked, int):
        if not 0 <= asked < count:
            raise DataError(f"{source}: {field} {asked} is out of range; there are columns 0 to {count - 1}")
        return asked
    if asked not in header:
        hint = nearest_name(asked, header) if header else "there is no header, so give its index, from 0"
        raise DataError(f"{source}: no column {asked!r} for {field}; {hint}")
    return list(header).index(asked)


def stem_of(file: Path, endings: Sequence[str]) -> str:
    """Return a file's name without ending (one of ``endings``, maybe ``.gz`` after it); else nothing."""
    name = Path(file.name.lower().removesuffix(".gz"))
    return name.stem if name.suffix in endings else ""


def read_table(path: Path) -> Table:
    """Read one TSV (never quoted), CSV (quoted where needed) or JSON lines file in UTF-8.

    Blank lines are skipped. CSV files may be separated by semicolons or tabs, and begin with Excel's line
    ``sep=;``. In them backslashes become spaces: data sets use them for line breaks. JSON lines are objects
    whose fields are the columns. The header of a TSV or CSV file, if any, is the first of the rows.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    if stem_of(path, ROW_ENDINGS):
        return read_objects(path)
    if not stem_of(path, ENDINGS):
        raise DataError(
            f"{path}: unknown ending {path.suffix!r}; use .tsv, .csv or .jsonl, with or without .gz"
        )
    text, quoted = read_text(path), bool(stem_of(path, (".csv",)))
    said = _EXCEL.match(text) if quoted else None
    if said:
        text = text[said.end() :]
    separators = said[1] if said else SEPARATORS if quoted else "\t"
    found: dict[str, Table] = {}
    faults: list[DataError] = []
    for separator in separators:
        try:
            found[separator] = _separated(path, text, separator, quoted=quoted)
        except DataError as fault:
            faults.append(fault)
    ranks = {separator: _rank(table) for separator, table in found.items() if len(table.rows[0]) > 1}
    best = [separator for separator in ranks if ranks[separator] == max(ranks.values())]
    if len(best) > 1:
        raise DataError(
            f"{path}: both {best[0]!r} and {best[1]!r} give every line {len(found[best[0]].rows[0])} "
            f"columns; add a first line sep={best[1]} or sep={best[0]}, or quote the texts"
        )
    chosen = best[0] if best else separators[0]
    if chosen not in found:
        raise faults[0]
    return found[chosen]


def _rank(table: Table) -> tuple[int, int]:
    """Rank of a way to separate a file: no quoted cell is cut in two, then the most columns."""
    halves = sum(cell.count('"') % 2 for row in table.rows for cell in row)
    return -halves, len(table.rows[0])


def _separated(path: Path, text: str, separator: str, *, quoted: bool) -> Table:
    kind = "separators and quotes" if quoted else "separators"
    # In strict mode the reader refuses a quote inside a quoted cell, which would shift the columns unnoticed.
    reader = csv.reader(
        (line + "\n" for line in text.split("\n")),
        delimiter=separator,
        strict=True,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    rows: list[list[str]] = []
    places: list[str] = []
    start = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                if rows and len(row) != len(rows[0]):
                    raise DataError(
                        f"{path}:{start}: {len(row)} columns where {places[0]} has {len(rows[0])}; check the "
                        f"{kind}"
                    )
                rows.append([_LINE_BREAK.sub(" ", cell) for cell in row] if quoted else row)
                places.append(f"{path}:{start}")
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{start}: {error}; check the {kind} of this line") from error
    if not rows:
        raise DataError(f"{path}: empty file; it needs one sample a line")
    return Table(str(path), rows, places)


def read_objects(path: Path) -> Table:
    """Read JSON lines; blank ones are skipped, and fields that an object lacks are None.

    Raises:
        DataError: If the file cannot be read, is empty, or a line is not a JSON object.
    """
    places: list[str] = []
    objects: list[dict[str, Any]] = []
    # Not splitlines, which would also cut at Unicode separators within a string.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        places.append(f"{path}:{number}")
        try:
            row = parse_json(line.encode())
        except ValueError as error:
            raise DataError(f"{places[-1]}: not JSON ({error}); write one object a line") from None
        if not isinstance(row, dict):
            raise DataError(
                f"{places[-1]}: {shown(row)} where an object is expected; write one object a line"
            )
        objects.append(row)
    if not objects:
        raise DataError(f"{path}: empty file; it needs one JSON object a line")
    return table_of(str(path), objects, places)


def table_of(
    source: str, objects: Sequence[Mapping[str, Any]], places: Sequence[str], classes: tuple[str, ...] = ()
) -> Table:
    """Return the table whose columns are the fields of objects, or of their field :data:`NESTED`."""
    rows = [row[NESTED] if isinstance(row.get(NESTED), dict) else row for row in objects]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Table(source, [[row.get(name) for name in names] for row in rows], places, names, classes)


def cell_text(value: Any) -> str | None:
    """Return a value as a cell, empty for None; None if it is no text, truth value or whole number.

    Floats such as 1.0 count as whole numbers: pandas writes whole numbers so where some are missing.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return "" if value is None else str(value) if isinstance(value, str | int) else None


def read_text(path: Path, carriage_return: str = "\n") -> str:
    """Return a file's text without byte order mark, decompressed if its name ends in ``.gz``.

    Line feeds are its only line ends: form feeds and Unicode separators stay parts of a line.

    Args:
        carriage_return: What a carriage return becomes that no line feed follows.

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
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = content.count(b"\n", 0, error.start)
        raise DataError(
            f"{path}:{before + 1}: not UTF-8 text; convert the file to UTF-8 (an old Western European one "
            "with iconv -f LATIN1 -t UTF-8 OLD > NEW)"
        ) from error
    # No data set has such lines, and it takes minutes to learn from them.
    for number, line in enumerate(text.split("\n"), start=1):
        for part in line.split("\r") if len(line) > LONGEST_WORD else ():
            if len(part) > LONGEST_LINE:
                raise DataError(
                    f"{path}:{number}: {len(part):,} characters in a line, above the limit of "
                    f"{LONGEST_LINE:,}; break it up, one sample a line"
                )
            require_sound(f"{path}:{number}", part)
    return text.replace("\r", carriage_return)


def require_sound(place: str, text: str) -> None:
    """Refuse a text that is not valid Unicode, or with a word that takes minutes to learn from.

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
