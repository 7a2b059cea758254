"""Frames: the messages between the processes of an execution, as bytes without pickle [X].

A frame on the wire, numbers in network byte order::

    magic (4)  version (2)  header's length (4)  payload's length (8)  CRC-32 of all that and the header (4)
    header: JSON with kind, tag, time of arrival, meta, and name, type and shape of each array
    payload: the arrays one after another, in C order and little endian

Lengths are checked against limits before anything of that length is read, and nothing that is read is ever
executed. The checksum covers what is interpreted; the payload relies on the checksum of the transport.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.errors import CollaPipeError, reason, shown
from collapipe_env.ground.files import parse_json

Buffer = bytes | bytearray | memoryview

MAGIC = b"CPXF"
VERSION = 2
"""Version of the format and of the frames' meaning; raised with every change of either."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("float64", "float32", "float16", "int64", "int32", "int16", "uint8", "bool")
}
"""Types that an array may have; bfloat16 travels as the int16 of the same bits."""

_HEAD = struct.Struct("!4sHIQ")
_CHECKSUM = struct.Struct("!I")
_PREFIX_BYTES = _HEAD.size + _CHECKSUM.size
_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_LARGEST_NUMBER = 2**31
_MOST_AXES = 32
_FIELDS = ("kind", "tag", "at_s", "meta", "arrays")


class FrameError(CollaPipeError):
    """A frame is truncated, damaged, too large, of another version, or has content that cannot be sent."""


class StreamEndedError(FrameError):
    """A stream ended between two frames, where it may end."""


class Tag(NamedTuple):
    """Place of a frame in an execution.

    Attributes:
        round: Round, from 0.
        attempt: Attempt at the round: one more after every failure.
        step: Local step, from 0.
        place: Stage, hop or device that the frame is about, depending on its kind.
        micro_batch: Micro-batch, from 0.
    """

    round: int = 0
    attempt: int = 0
    step: int = 0
    place: int = 0
    micro_batch: int = 0


FIRST = Tag()
"""Tag of a frame whose place in the execution does not matter."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One message.

    Attributes:
        kind: Its meaning: a lower-case word of ASCII letters, digits and underscores, 32 at most.
        tag: Its place in the execution.
        at_s: Time at which it arrives by the virtual clock [s]; nan if unknown.
        meta: Small plain data, as JSON has it: tuples arrive as lists.
        arrays: Arrays of the types in :data:`DTYPES`, of any shape, by name.
        here_s: Machine's monotonic time at which the receiver was handed it [s]; it is not sent. It does not
            count from the start of the frame's round, which the receiver may not have begun yet.
    """

    kind: str
    tag: Tag = FIRST
    at_s: float = 0.0
    meta: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    here_s: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Sizes above which a frame is refused, by its sender and by its receiver.

    Attributes:
        header: Bytes of the header, which holds the meta data.
        payload: Bytes of all arrays together.
    """

    header: int = 2**20
    payload: int = 2**30


LIMITS = Limits()
"""Default limits."""


def encode(frame: Frame, limits: Limits = LIMITS) -> list[Buffer]:
    """Return the bytes of a frame, in parts.

    Args:
        limits: Sizes that it may have.

    Returns:
        Prefix and header, then each array that is not empty. Arrays in C order are not copied: the parts show
        what their owner writes to them later.

    Raises:
        FrameError: If the frame has content that frames cannot carry, or is above a limit.
    """
    if not (isinstance(frame.kind, str) and _KIND.fullmatch(frame.kind)):
        raise FrameError(
            f"the kind of a frame is {shown(frame.kind)}: use a lower-case word of at most 32 ASCII letters, "
            "digits and underscores"
        )
    where = f"the frame {frame.kind!r}"
    parts = {name: _plain(array, name, where) for name, array in frame.arrays.items()}
    fields = (
        frame.kind,
        [_whole(number, where) for number in frame.tag],
        _time(frame.at_s, where),
        dict(frame.meta),
        [[name, part.dtype.name, part.shape] for name, part in parts.items()],
    )
    content = dict(zip(_FIELDS, fields, strict=True))
    for name in (*frame.meta, *parts):
        if not isinstance(name, str):
            raise FrameError(f"{where} has the name {shown(name)}: name meta data and arrays by strings")
    try:
        header = json.dumps(content, separators=(",", ":")).encode("ascii")
        if frame.meta:  # refused here already, because its receiver would refuse it
            parse_json(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(
            f"{where} has meta data that JSON cannot express ({reason(error)}): use numbers, strings, lists "
            "and dictionaries of them; arrays belong into `arrays`"
        ) from None
    payload = sum(part.nbytes for part in parts.values())
    _require_sizes(len(header), payload, limits, where)
    head = _HEAD.pack(MAGIC, VERSION, len(header), payload)
    checksum = _CHECKSUM.pack(zlib.crc32(header, zlib.crc32(head)))
    raw = [part.reshape(-1).view(np.uint8).data for part in parts.values() if part.nbytes]
    return [head + checksum + header, *raw]


def read_frame(read_exactly: Callable[[int], Buffer], limits: Limits = LIMITS) -> Frame:
    """Return the next frame of a stream.

    Args:
        read_exactly: Returns the requested number of bytes, or fewer if the stream ends; called for one array
            at a time, whose memory the bytes become.
        limits: Sizes that the frame may have.

    Returns:
        The frame. Its arrays are writable if ``read_exactly`` returns writable memory.

    Raises:
        StreamEndedError: If the stream has ended and no byte of a frame is left.
        FrameError: If the frame is truncated, damaged, of another version, or above a limit.
    """
    prefix = read_exactly(_PREFIX_BYTES)
    if not len(prefix):
        raise StreamEndedError("the stream has ended")
    _require_length(prefix, _PREFIX_BYTES, "prefix")
    head = bytes(prefix[: _HEAD.size])
    magic, version, header_bytes, payload_bytes = _HEAD.unpack(head)
    if magic != MAGIC:
        raise FrameError(
            f"a frame begins with {magic!r} instead of {MAGIC!r}: the other side is not an execution of this "
            "package, or bytes were lost"
        )
    if version != VERSION:
        raise FrameError(
            f"a frame has version {version}, this side reads version {VERSION}: install the same release on "
            "both sides"
        )
    _require_sizes(header_bytes, payload_bytes, limits, "a frame that arrives")
    header = bytes(read_exactly(header_bytes))
    _require_length(header, header_bytes, "header")
    (checksum,) = _CHECKSUM.unpack(prefix[_HEAD.size :])
    if zlib.crc32(header, zlib.crc32(head)) != checksum:
        raise FrameError("a frame's header has another checksum than it was sent with: bytes were damaged")
    frame, layout = _header(header, payload_bytes)
    arrays = {}
    for name, dtype, shape, size in layout:
        raw = read_exactly(size) if size else bytearray()
        _require_length(raw, size, f"array {name!r}")
        try:
            arrays[name] = np.frombuffer(raw, dtype=dtype).reshape(shape)
        except ValueError as error:  # an empty array whose other axes exceed NumPy's limits
            raise _damaged(f"array {name!r}: {reason(error)}") from None
    return Frame(frame.kind, frame.tag, frame.at_s, frame.meta, arrays)


def decode(content: Buffer, limits: Limits = LIMITS) -> Frame:
    """Return the frame that bytes hold.

    Args:
        content: One frame, and nothing else. Its arrays become views of it.
        limits: Sizes that the frame may have.

    Raises:
        FrameError: If it is not exactly one frame.
    """
    view, place = memoryview(content), 0

    def read_exactly(count: int) -> memoryview:
        nonlocal place
        place += count
        return view[place - count : place]

    frame = read_frame(read_exactly, limits)
    if place < len(view):
        raise _damaged(f"{len(view) - place:,} bytes follow it")
    return frame


def _plain(array: npt.NDArray[Any], name: str, where: str) -> npt.NDArray[Any]:
    """Return an array in C order and little endian; the array itself if it is so already."""
    if not isinstance(array, np.ndarray) or array.dtype.name not in DTYPES:
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise FrameError(
            f"{where} has {shown(name)} of type {kind}: use NumPy arrays of type {', '.join(DTYPES)}"
        )
    if array.ndim > _MOST_AXES:
        raise FrameError(f"{where} has {shown(name)} of {array.ndim} axes: use at most {_MOST_AXES}")
    return np.asarray(array, dtype=DTYPES[array.dtype.name], order="C")


def _whole(number: Any, where: str) -> int:
    """Return a number of a tag."""
    if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer):
        raise FrameError(f"{where} has {shown(number)} in its tag: use whole numbers")
    if not -_LARGEST_NUMBER < number < _LARGEST_NUMBER:
        raise FrameError(f"{where} has {shown(number)} in its tag: use numbers below {_LARGEST_NUMBER:,}")
    return int(number)


def _time(at_s: Any, where: str) -> float | None:
    """Return a time for JSON: ``None`` for nan, which JSON does not know."""
    if isinstance(at_s, bool) or not isinstance(at_s, float | int | np.floating | np.integer):
        raise FrameError(f"{where} has the time {shown(at_s)}: use seconds, or nan if it is unknown")
    if math.isinf(at_s):
        raise FrameError(f"{where} has the time {at_s}: use finite seconds, or nan if it is unknown")
    return None if math.isnan(at_s) else float(at_s)


def _header(header: bytes, payload: int) -> tuple[Frame, list[tuple[str, np.dtype[Any], list[int], int]]]:
    """Return a frame without its arrays, and name, type, shape and bytes of each."""
    try:
        content = parse_json(header)
    except ValueError as error:
        raise _damaged(reason(error)) from None
    if not isinstance(content, dict) or tuple(content) != _FIELDS:
        raise _damaged(f"its header does not have the fields {', '.join(_FIELDS)}")
    kind, tag, at_s, meta, arrays = content.values()
    if not (isinstance(kind, str) and _KIND.fullmatch(kind)):
        raise _damaged(f"its kind is {shown(kind)}")
    if not (isinstance(tag, list) and len(tag) == len(Tag._fields)):
        raise _damaged(f"its tag is {shown(tag)}")
    if not isinstance(meta, dict):
        raise _damaged(f"its meta data are {shown(meta)}")
    where = f"the frame {kind!r} that arrives"
    place = Tag(*(_whole(number, where) for number in tag))
    time = _time(math.nan if at_s is None else at_s, where)
    layout = _layout(arrays)
    held = sum(size for *_, size in layout)
    if held != payload:
        raise _damaged(f"its arrays have {held:,} bytes by their shapes, its payload has {payload:,}")
    return Frame(kind, place, math.nan if time is None else time, meta), layout


def _layout(arrays: Any) -> list[tuple[str, np.dtype[Any], list[int], int]]:
    """Return name, type, shape and bytes of each array that a header lists."""
    if not isinstance(arrays, list):
        raise _damaged(f"its arrays are {shown(arrays)}")
    layout: dict[str, tuple[str, np.dtype[Any], list[int], int]] = {}
    for entry in arrays:
        match entry:
            case [str(name), str(dtype), list(shape)] if dtype in DTYPES and name not in layout:
                pass
            case _:
                raise _damaged(f"one of its arrays is {shown(entry)}")
        if len(shape) > _MOST_AXES or not all(type(size) is int and size >= 0 for size in shape):
            raise _damaged(f"array {shown(name)} has the shape {shown(shape)}")
        layout[name] = (name, DTYPES[dtype], shape, math.prod(shape) * DTYPES[dtype].itemsize)
    return list(layout.values())


def _require_sizes(header: int, payload: int, limits: Limits, where: str) -> None:
    """Refuse a frame above the limits."""
    if header > limits.header:
        raise FrameError(
            f"{where} has a header of {header:,} bytes, above the limit of {limits.header:,}: "
            "move large data to its arrays"
        )
    if payload > limits.payload:
        raise FrameError(
            f"{where} has arrays of {payload:,} bytes, above the limit of {limits.payload:,}: "
            "raise the limit on both sides, or send fewer at once"
        )


def _require_length(content: Sequence[int] | Buffer, expected: int, part: str) -> None:
    """Refuse a part that the end of the stream has cut short."""
    if len(content) != expected:
        raise FrameError(
            f"a frame is truncated: its {part} has {len(content):,} of {expected:,} bytes; the other side "
            "has gone, or the connection was cut"
        )


def _damaged(why: str) -> FrameError:
    return FrameError(f"a frame is damaged ({why}): install the same release on both sides")
