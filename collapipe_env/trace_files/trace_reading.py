"""Traces from CSV files; every error names the file, the line, the value and the remedy."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import DataError, nearest_name, shown
from collapipe_env.ground.files import read_gzip, read_regular
from collapipe_env.trace_files.trace import LEAST_S, Trace
from collapipe_env.trace_files.trace_formats import FORMATS, UNITS, Quantity, TraceFormat

LARGEST = 256 * 1024**2
"""Most bytes of a trace file, compressed or not."""
JUMP_S = 60.0
"""Jump of a file's dates at which a new part begins [s]."""
RSRP_DBM = (-160.0, -20.0)
"""Received powers that a phone may report, with some room (3GPP reports -156 to -31 dBm) [dBm]."""
LEAST_MEASURED = 0.5
"""Least share of rows with a value; below it a trace would consist mostly of gaps."""
MOST_RATE = 1e12
"""Largest plausible rate [bit/s]."""
LONGEST_S = 1e9
"""Longest plausible trace; sums over longer ones would lose digits [s]."""


@dataclass(frozen=True)
class Columns:
    """Columns to read from a CSV file.

    Attributes:
        format: A key of :data:`~collapipe_env.trace_files.trace_formats.FORMATS`, or ``csv``.
        quantity: Received power in dBm, or a rate.
        column: Column of the values; empty for that of the format. Files without a header name their columns
            ``1``, ``2``, ...
        time_column: Column of times [s], with the format ``csv``.
        row_s: Seconds from row to row, with the format ``csv``, to count rows instead of reading times; 0 to
            read times.
        unit: Unit of rates, with the format ``csv``: ``bit/s``, ``kbit/s`` or ``Mbit/s``.
        delimiter: Character between columns.
    """

    format: str = "csv"
    quantity: Quantity = "rsrp"
    column: str = ""
    time_column: str = "time_s"
    row_s: float = 0.0
    unit: str = "Mbit/s"
    delimiter: str = ","

    @property
    def layout(self) -> TraceFormat:
        """The format, including that of a user's own CSV file."""
        if self.format != "csv":
            return FORMATS[self.format]
        time = None if self.row_s > 0.0 else self.time_column
        column = self.column or "value"
        return TraceFormat("CSV", {"rsrp": column, "rate": column}, rate_unit=self.unit, time=time)


def require_columns(columns: Columns) -> None:
    """Refuse columns that a format does not have.

    Raises:
        DataError: Naming the format or the column.
    """
    if columns.format != "csv" and columns.format not in FORMATS:
        hint = nearest_name(columns.format, known_formats())
        raise DataError(f"there is no trace format {shown(columns.format)}; {hint}")
    layout = columns.layout
    if columns.quantity not in layout.columns:
        known = ", ".join(layout.columns)
        raise DataError(f"the format {columns.format} has no {columns.quantity}: choose the mode {known}")
    if columns.column in layout.wrong:
        raise DataError(
            f"the column {columns.column} of {columns.format} is not a {columns.quantity}: "
            f"{layout.wrong[columns.column]}; use {layout.columns[columns.quantity]}"
        )


def known_formats() -> tuple[str, ...]:
    """Names of all formats, ``csv`` first."""
    return ("csv", *FORMATS)


def read_traces(path: Path, columns: Columns) -> list[Trace | None]:
    """Read the traces of a file: one, or one of each part where the format cuts files.

    Args:
        path: A file in CSV, which may be compressed by gzip.
        columns: Columns to read.

    Returns:
        The traces in their order in the file; ``None`` for parts in which the quantity was not measured in
        at least half of the rows.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    require_columns(columns)
    layout, quantity = columns.layout, columns.quantity
    table = _table(path, columns)
    wanted = {columns.column or layout.columns[quantity], layout.time, layout.cut}
    if quantity in layout.only:
        wanted.add(layout.only[quantity][0])
    for name in sorted(wanted - {None, *table.names}, key=str):
        remedy = "set column and time_column" if columns.format == "csv" else f"is it {layout.title}?"
        raise DataError(f"{path}:1: there is no column {name!r}; {nearest_name(name, table.names)}; {remedy}")
    values = [_value(row, columns) for row in table]
    if layout.time is None:
        spacing = columns.row_s if columns.format == "csv" else 1.0
        times = spacing * np.arange(len(values), dtype=np.float64)
    else:
        times = _times(table, layout.time)
        # The last row lasts as long as rows usually do.
        spacing = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    bounds = [0, *([] if layout.cut is None else _jumps(table, layout.cut)), len(values)]
    parts = [slice(a, b) for a, b in pairwise(bounds)]
    names = [path.name] if len(parts) == 1 else [f"{path.name}#{number}" for number in range(len(parts))]
    unit = "dBm" if quantity == "rsrp" else "bit/s"
    return [
        _trace(path, name, times[part], values[part], unit, spacing)
        for name, part in zip(names, parts, strict=True)
    ]


def _trace(
    path: Path, name: str, times: FloatArray, values: list[float | None], unit: str, spacing: float
) -> Trace | None:
    """Return a trace of the rows that have a value; ``None`` where too few have one."""
    there = np.array([value is not None for value in values], dtype=np.bool_)
    if there.mean() < LEAST_MEASURED:
        return None
    first = int(there.argmax())
    duration = float(times[-1] - times[first] + spacing)
    if duration < LEAST_S:
        raise DataError(
            f"{path}: {int(there.sum())} values over {duration:g} s are too short for a trace; give at least "
            f"{LEAST_S:g} s"
        )
    if duration > LONGEST_S:
        raise DataError(
            f"{path}: times span {duration:g} s, more than the {LONGEST_S:g} s that a trace may last; "
            "give times in seconds"
        )
    found = np.array([value for value in values if value is not None])
    return Trace(name, times[there] - times[first], found, unit, duration, len(values) - first - len(found))


class _Row(NamedTuple):
    """Cells of a row by column, and its place for errors."""

    place: str
    cells: Mapping[str, str]

    def number(self, column: str, what: str) -> float:
        """Return a cell as a finite number."""
        cell = self.cells[column]
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise DataError(f"{self.place}: {shown(cell)} is not {what}; correct it or take the row out")
        return value


class _Table:
    """Rows of a file, and the names of its columns."""

    def __init__(self, path: Path, names: list[str], rows: list[list[str]], lines: list[int]) -> None:
        self._path, self.names, self._rows, self._lines = path, names, rows, lines

    def __iter__(self) -> Iterator[_Row]:
        for line, cells in zip(self._lines, self._rows, strict=True):
            yield _Row(f"{self._path}:{line}", dict(zip(self.names, cells, strict=True)))


def _table(path: Path, columns: Columns) -> _Table:
    """Return the rows of a file, which have equally many cells."""
    reader = csv.reader(_text(path).splitlines(), delimiter=columns.delimiter, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                if rows and len(row) != len(rows[0]):
                    raise DataError(
                        f"{path}:{start}: {len(row)} columns where line {lines[0]} has {len(rows[0])}; is "
                        f"the delimiter {columns.delimiter!r}, and is the row complete?"
                    )
                rows.append([cell.strip() for cell in row])
                lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{start}: {error}; check the quotes of this line") from None
    if not rows:
        raise DataError(f"{path}: empty file; give a row for each sample")
    header = columns.layout.header
    if header:
        if len(rows[0]) != len(header):
            raise DataError(
                f"{path}:{lines[0]}: {len(rows[0])} columns where {columns.layout.title} has {len(header)}; "
                "choose another format"
            )
        return _Table(path, list(header), rows, lines)
    if all(_is_number(cell) for cell in rows[0]):
        return _Table(path, [str(1 + place) for place in range(len(rows[0]))], rows, lines)
    if len(rows) == 1:
        raise DataError(f"{path}: a header without rows; give a row for each sample")
    return _Table(path, rows[0], rows[1:], lines[1:])


def _text(path: Path) -> str:
    """Return the text of a file, decompressed."""
    try:
        content = (read_gzip if path.suffix.lower() == ".gz" else read_regular)(path, LARGEST)
        return content.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a complete gzip file ({error}); compress it again") from None
    except OSError as error:
        reason = error.strerror
        raise DataError(f"{path}: cannot be read ({reason}); check the path and its permissions") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8 text; give traces as CSV files in UTF-8") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _value(row: _Row, columns: Columns) -> float | None:
    """Return the value of a row in dBm or bit/s; ``None`` if by the format it has none."""
    layout, quantity = columns.layout, columns.quantity
    usual = layout.columns[quantity]
    name = columns.column or usual
    if row.cells[name] in layout.missing:
        return None
    if quantity in layout.only and name == usual:
        column, entries = layout.only[quantity]
        if row.cells[column] not in entries:
            return None
    if quantity == "rsrp":
        value = row.number(name, "a received power in dBm")
        low, high = RSRP_DBM
        if not low <= value <= high:
            raise DataError(
                f"{row.place}: {name} = {value:g} is not a received power, {low:g} to {high:g} dBm: name the "
                "column that holds RSRP"
            )
        return value
    value = row.number(name, f"a rate in {layout.rate_unit}")
    unit, scale = layout.rate_unit, UNITS[layout.rate_unit]
    if layout.units is not None:
        column, scales = layout.units
        unit = row.cells[column]
        if unit not in scales:
            hint = nearest_name(unit, scales)
            raise DataError(f"{row.place}: the unit {shown(unit)} is not known; {hint}")
        scale = scales[unit]
    if not 0.0 <= value * scale <= MOST_RATE:
        raise DataError(
            f"{row.place}: {name} = {value:g} {unit} is not a rate, 0 to {MOST_RATE:g} bit/s: correct it, or "
            "name the unit"
        )
    return value * scale


def _times(table: _Table, column: str) -> FloatArray:
    """Return the times of all rows, strictly ascending [s]."""
    times: list[float] = []
    for row in table:
        now = row.number(column, "a time in seconds")
        if times and now <= times[-1]:
            raise DataError(
                f"{row.place}: the time {now:g} s comes after {times[-1]:g} s: sort the rows, or count them "
                "with row_s, the seconds from row to row"
            )
        times.append(now)
    return np.array(times)


def _jumps(table: _Table, column: str) -> list[int]:
    """Return the rows at which a new part of the file begins."""
    found = []
    before = None
    for place, row in enumerate(table):
        cell = row.cells[column]
        try:
            now = datetime.strptime(cell, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            raise DataError(
                f"{row.place}: {shown(cell)} is not a date; write it like 2021-01-23 07:09:06"
            ) from None
        if before is not None and not 0.0 <= (now - before).total_seconds() <= JUMP_S:
            found.append(place)
        before = now
    return found
