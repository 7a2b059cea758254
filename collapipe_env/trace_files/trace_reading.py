"""Traces from CSV files; every error names the file, the line, the value and the remedy."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
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

    Returns:
        The traces in their order in the file; ``None`` for parts in which the quantity was not measured in
        at least half of the rows.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    require_columns(columns)
    layout, quantity = columns.layout, columns.quantity
    values: list[float | None] = []
    times: list[float] = []
    starts, before = [0], None
    for row in _rows(path, columns):
        if not values:
            _require_there(path, columns, row.cells)
        values.append(_value(row, columns))
        if layout.time is not None:
            now = row.number(layout.time, "a time in seconds")
            if times and now <= times[-1]:
                raise DataError(
                    f"{row.place}: the time {now:g} s comes after {times[-1]:g} s: sort the rows, or count "
                    "them with row_s, the seconds from row to row"
                )
            times.append(now)
        if layout.cut is not None:
            date = row.date(layout.cut)
            if before is not None and not 0.0 <= (date - before).total_seconds() <= JUMP_S:
                starts.append(len(values) - 1)
            before = date
    if layout.time is None:
        spacing = columns.row_s if columns.format == "csv" else 1.0
        seconds = spacing * np.arange(len(values), dtype=np.float64)
    else:
        seconds = np.array(times)
        # The last row lasts as long as rows usually do.
        spacing = float(np.median(np.diff(seconds))) if len(seconds) > 1 else 0.0
    parts = [slice(a, b) for a, b in pairwise([*starts, len(values)])]
    names = [path.name] if len(parts) == 1 else [f"{path.name}#{number}" for number in range(len(parts))]
    unit = "dBm" if quantity == "rsrp" else "bit/s"
    return [
        _trace(path, name, seconds[part], values[part], unit, spacing)
        for name, part in zip(names, parts, strict=True)
    ]


def _require_there(path: Path, columns: Columns, there: Mapping[str, str]) -> None:
    """Refuse a file without one of the columns to read."""
    layout, quantity = columns.layout, columns.quantity
    wanted = {columns.column or layout.columns[quantity], layout.time, layout.cut}
    if quantity in layout.only:
        wanted.add(layout.only[quantity][0])
    for name in sorted(wanted - {None, *there}, key=str):
        remedy = "set column and time_column" if columns.format == "csv" else f"is it {layout.title}?"
        raise DataError(f"{path}:1: there is no column {name!r}; {nearest_name(name, there)}; {remedy}")


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
        value = _number(self.cells[column])
        if value is None or not math.isfinite(value):
            raise DataError(
                f"{self.place}: {shown(self.cells[column])} is not {what}; correct it or take the row out"
            )
        return value

    def date(self, column: str) -> datetime:
        """Return a cell as a date."""
        cell = self.cells[column]
        try:
            return datetime.strptime(cell, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            raise DataError(
                f"{self.place}: {shown(cell)} is not a date; write it like 2021-01-23 07:09:06"
            ) from None


def _rows(path: Path, columns: Columns) -> Iterator[_Row]:
    """Yield the rows of a file, which have equally many cells."""
    reader = csv.reader(_text(path).splitlines(), delimiter=columns.delimiter, strict=True)
    header = list(columns.layout.header)
    names: list[str] = []
    start, first, found = 1, 0, False
    try:
        for row in reader:
            cells, line, start = [cell.strip() for cell in row], start, reader.line_num + 1
            if not any(cells):
                continue
            if not first:
                first, names = line, header or cells
                if len(cells) != len(names):
                    raise DataError(
                        f"{path}:{line}: {len(cells)} columns where {columns.layout.title} has {len(names)}; "
                        "choose another format"
                    )
                if not header and None not in map(_number, cells):
                    names = [str(1 + place) for place in range(len(cells))]
                elif not header:
                    continue
            if len(cells) != len(names):
                raise DataError(
                    f"{path}:{line}: {len(cells)} columns where line {first} has {len(names)}; is "
                    f"the delimiter {columns.delimiter!r}, and is the row complete?"
                )
            found = True
            yield _Row(f"{path}:{line}", dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        raise DataError(f"{path}:{start}: {error}; check the quotes of this line") from None
    if not found:
        what = "a header without rows" if first else "empty file"
        raise DataError(f"{path}: {what}; give a row for each sample")


def _text(path: Path) -> str:
    """Return the text of a file, decompressed."""
    read = read_gzip if path.suffix.lower() == ".gz" else read_regular
    try:
        return content_of(path, read).decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a complete gzip file ({error}); compress it again") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8 text; give traces as CSV files in UTF-8") from None


def content_of(path: Path, read: Callable[[Path, int], bytes] = read_regular) -> bytes:
    """Return the content of a file.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        return read(path, LARGEST)
    except gzip.BadGzipFile:  # an error of the system by its class only
        raise
    except OSError as error:
        reason = error.strerror
        raise DataError(f"{path}: cannot be read ({reason}); check the path and its permissions") from None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


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
        value, unit, scale, (low, high) = row.number(name, "a received power in dBm"), "", 1.0, RSRP_DBM
        right = f"a received power, {low:g} to {high:g} dBm: name the column that holds RSRP"
    else:
        value, low, high = row.number(name, f"a rate in {layout.rate_unit}"), 0.0, MOST_RATE
        unit, scales = layout.rate_unit, UNITS
        if layout.units is not None:
            column, scales = layout.units
            unit = row.cells[column]
        if unit not in scales:
            hint = nearest_name(unit, scales)
            raise DataError(f"{row.place}: the unit {shown(unit)} is not known; {hint}")
        unit, scale = f" {unit}", scales[unit]
        right = f"a rate, {low:g} to {high:g} bit/s: correct it, or name the unit"
    if not low <= value * scale <= high:
        raise DataError(f"{row.place}: {name} = {value:g}{unit} is not {right}")
    return value * scale
