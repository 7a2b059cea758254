"""Rows of local TSV and CSV files, plain or gzip-compressed; every error names the file and the line."""

from __future__ import annotations

import csv
import gzip
import io
import re
import string
import unicodedata
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collapipe_env.errors import DataError
from collapipe_env.files import read_gzip, read_regular

ENDINGS = (".tsv", ".csv", ".txt")
"""Endings of table files; each may be followed by ``.gz``. A .txt file is read as .tsv."""

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


@dataclass(frozen=True)
class Table:
    """Cells of a file or of a part of a data set.

    Attributes:
        source: Its name in errors.
        rows: At least one row, all with equally many cells, at least two.
        places: Place of each row, ``"file:line"``.
        header: Names of the columns, where they are known for certain; None if the first row may hold them.
    """

    source: str
    rows: list[list[str]]
    places: list[str]
    header: list[str] | None = None


def table_ending(path: Path) -> str:
    """Return a file's ending, one of :data:`ENDINGS` without ``.gz``; empty if it has none of them."""
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    return ending if ending in ENDINGS else ""


def read_table(path: Path) -> Table:
    """Read one TSV (never quoted) or CSV (quoted where needed) file in UTF-8.

    Blank lines are skipped. In CSV files backslashes become spaces: data sets use them for line breaks.

    Args:
        path: A file with one of the :data:`ENDINGS`.

    Returns:
        Its rows; the header, if any, is the first of them.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    ending = table_ending(path)
    if not ending:
        raise DataError(f"{path}: unknown ending {path.suffix!r}; use .tsv or .csv, with or without .gz")
    decoded = read_text(path)
    # Only \n and \r end a line: str.splitlines would also cut at form feeds and Unicode separators in a text.
    source = (part + "\n" for part in decoded.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    quoted = ending == ".csv"
    if quoted:
        reader = csv.reader(source, delimiter=",", strict=True)
    else:
        reader = csv.reader(source, delimiter="\t", quoting=csv.QUOTE_NONE)
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
    if len(rows[0]) < 2:
        raise DataError(
            f"{places[0]}: one column only; separate text and label by a tab (.tsv) or comma (.csv)"
        )
    return Table(str(path), rows, places)


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
        raise DataError(f"{path}:{line}: not UTF-8 text; convert the file to UTF-8") from error
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
            require_short_words(f"{path}:{number}", part)


def require_short_words(place: str, text: str) -> None:
    """Refuse a text with a word that takes minutes to learn from.

    Args:
        place: Place of the text, for the error.
        text: The text.

    Raises:
        DataError: If a word is longer than :data:`LONGEST_WORD`.
    """
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
