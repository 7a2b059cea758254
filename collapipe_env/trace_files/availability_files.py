"""Availability of clients over time, from JSON in the format that FedScale documents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.arrays import BoolArray, FloatArray
from collapipe_env.errors import DataError, nearest_name, shown
from collapipe_env.files import read_json
from collapipe_env.trace_files.trace_sources import checksum, found_path

MOST_BYTES = 1024**3
"""Largest size of a file of availability [byte]."""
PERIODS_S = (1.0, 1e9)
"""Shortest and longest period of a client, the same as for stays in ``presence`` [s]."""
_REMEDY = "give JSON of the shape that docs/traces.md shows; convert a pickle to JSON yourself first"


@dataclass(frozen=True, eq=False)
class Availability:
    """Windows in which a client is available, repeated for ever.

    Attributes:
        client: Its key in the file.
        begin_s: Starts of the windows (W,), ascending [s].
        end_s: Ends of the windows (W,), none before its own start or after the next one's [s].
        period_s: Time after which the windows repeat, ``finish_time``, 1 to 1e9 [s].
        model: Model of the device, from the file.
    """

    client: str
    begin_s: FloatArray
    end_s: FloatArray
    period_s: float
    model: str

    @property
    def share(self) -> float:
        """Share of the time in which it is available."""
        return float(np.sum(self.end_s - self.begin_s) / self.period_s)


def available(trace: Availability, seconds: FloatArray | float) -> BoolArray:
    """Whether a client is available at the given times: from a window's start to its end, both included.

    Args:
        trace: The client.
        seconds: Times, any shape, finite [s]; they count modulo the period.
    """
    times = np.mod(np.asarray(seconds, dtype=np.float64), trace.period_s)
    last = np.searchsorted(trace.begin_s, times, side="right") - 1
    ends = trace.end_s[np.maximum(last, 0)]
    there: BoolArray = (last >= 0) & (times <= ends)
    return there


def read_availability(path: Path) -> tuple[Availability, ...]:
    """Read a file of clients, in the order of the file. Nothing is unpickled.

    Args:
        path: A JSON object: by client ``duration``, ``inactive``, ``active``, ``finish_time``, ``model``.

    Raises:
        DataError: If the file is malformed; the message names the file, the client, the field and the remedy.
    """
    content = read_json(path, _REMEDY, MOST_BYTES)
    if not content:
        raise DataError(f"{path}: no clients; {_REMEDY}")
    return tuple(_client(path, name, fields) for name, fields in content.items())


FIELDS = ("duration", "inactive", "active", "finish_time", "model")
"""Fields of a client."""


def _client(path: Path, name: str, fields: Any) -> Availability:
    place = f"{path}: client {shown(name)}"
    if not isinstance(fields, Mapping):
        raise DataError(f"{place} is {shown(fields)}, not an object; {_REMEDY}")
    for field in FIELDS:
        if field not in fields:
            raise DataError(f"{place} has no {field}; {_REMEDY}")
    for field in fields:
        if field not in FIELDS:
            raise DataError(f"{place} has a field {shown(field)}; {nearest_name(field, FIELDS)}")
    period = _seconds(fields["finish_time"], f"{place}: finish_time")
    low, high = PERIODS_S
    if not low <= period <= high:
        raise DataError(f"{place}: finish_time is {period:g} s; give the period, {low:g} to {high:g} s")
    _seconds(fields["duration"], f"{place}: duration")
    begin, end = (_times(fields[field], f"{place}: {field}") for field in ("active", "inactive"))
    if len(begin) != len(end) or not len(begin):
        raise DataError(
            f"{place}: {len(begin)} times in active and {len(end)} in inactive; give one of each per window"
        )
    if (end < begin).any() or (begin[1:] < end[:-1]).any() or begin[0] < 0.0 or end[-1] > period:
        wrong = np.flatnonzero((end < begin) | (np.append(begin[1:], period) < end) | (begin < 0.0))
        at = int(wrong[0])
        raise DataError(
            f"{place}: window {at} from {begin[at]:g} to {end[at]:g} s does not lie between its neighbours "
            f"within 0 to {period:g} s; sort the windows and join those that overlap"
        )
    model = fields["model"]
    if not isinstance(model, str):
        raise DataError(f"{place}: model is {shown(model)}, not a string; {_REMEDY}")
    return Availability(name, begin, end, period, model)


def _times(given: Any, place: str) -> FloatArray:
    if not isinstance(given, list):
        raise DataError(f"{place} is {shown(given)}, not a list of seconds; {_REMEDY}")
    return np.array([_seconds(value, f"{place}[{index}]") for index, value in enumerate(given)])


def _seconds(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"{place} is {shown(value)}, not a number of seconds; correct it")
    return float(value)


def availability_file(source: str) -> Path:
    """Path of a file of availability that a scenario names.

    Args:
        source: The path. A relative path that does not exist is also looked up in the folder that the
            environment variable ``COLLAPIPE_DATA`` names.

    Raises:
        DataError: If it does not exist or is not a file.
    """
    path = found_path(source, "availability")
    if path.is_dir():
        raise DataError(f"availability: {path} is a folder: name the JSON file in it")
    return path


def availability_checksum(source: str) -> str:
    """SHA-256 of the name and content of a file of availability.

    Args:
        source: The path, as for :func:`availability_file`.

    Raises:
        DataError: If it cannot be read.
    """
    return checksum((availability_file(source),), MOST_BYTES)


def require_same_file(source: str, given: str) -> None:
    """Refuse a file of availability with another checksum; a missing file passes.

    Args:
        source: The path, as for :func:`availability_file`.
        given: The expected checksum.

    Raises:
        DataError: If the checksums differ.
    """
    try:
        found = availability_checksum(source)
    except DataError:
        return
    if found != given:
        raise DataError(
            f"availability {shown(source)} has the checksum {found[:12]}..., not {shown(given[:12])}...: it "
            "is not the file of this scenario; give that one, or take availability_checksum out for this one"
        )
