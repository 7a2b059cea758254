"""Frames: round trips, what they refuse to carry, and bytes that are cut, damaged or of another version."""

import json
import math
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collapipe_env.execution.frames import (
    DTYPES,
    MAGIC,
    VERSION,
    Frame,
    FrameError,
    Limits,
    StreamEndedError,
    Tag,
    decode,
    encode,
    read_frame,
)

NUMBERS = st.integers(-(2**31) + 1, 2**31 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(lambda name: hnp.arrays(np.dtype(name), SHAPES))
FRAMES = st.builds(
    Frame,
    kind=st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True),
    tag=st.builds(Tag, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    at_s=st.floats(allow_infinity=False),
    meta=st.dictionaries(st.text(), PLAIN, max_size=3),
    arrays=st.dictionaries(st.text(), ARRAYS, max_size=3),
)
HEAD_BYTES = 22
"""Magic, version, two lengths and the checksum, by the description of the format."""


def joined(frame: Frame, *limits: Limits) -> bytes:
    return b"".join(encode(frame, *limits))


def framed(header: bytes, payload: bytes = b"", *, magic=MAGIC, version=VERSION, claimed=None) -> bytes:
    """Bytes of a frame, put together by hand."""
    head = struct.pack("!4sHIQ", magic, version, len(header), len(payload) if claimed is None else claimed)
    return head + struct.pack("!I", zlib.crc32(head + header)) + header + payload


def header(**changes) -> bytes:
    fields = {"kind": "forward", "tag": [0, 0, 0, 0, 0], "at_s": 0.5, "meta": {}, "arrays": []} | changes
    return json.dumps(fields).encode()


def require_same(one: Frame, other: Frame) -> None:
    assert (one.kind, one.tag, dict(one.meta)) == (other.kind, other.tag, dict(other.meta))
    assert one.at_s == other.at_s or (math.isnan(one.at_s) and math.isnan(other.at_s))
    assert list(one.arrays) == list(other.arrays)
    for name, array in one.arrays.items():
        found = other.arrays[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tobytes() == array.tobytes()  # nan by their bits, too


@given(FRAMES)
def test_frames_arrive_as_they_were_sent(frame: Frame) -> None:
    require_same(frame, decode(joined(frame)))


@given(st.lists(FRAMES, max_size=3))
def test_frames_follow_each_other_in_a_stream(frames: list[Frame]) -> None:
    stream, place = b"".join(joined(frame) for frame in frames), 0

    def read_exactly(count: int) -> bytearray:
        nonlocal place
        place += count
        return bytearray(stream[place - count : place])

    for frame in frames:
        found = read_frame(read_exactly)
        require_same(frame, found)
        assert all(array.flags.writeable for array in found.arrays.values() if array.size)
    with pytest.raises(StreamEndedError):
        read_frame(read_exactly)


@given(FRAMES, st.data())
def test_truncated_frames_are_refused(frame: Frame, data: st.DataObject) -> None:
    whole = joined(frame)
    kept = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(
        StreamEndedError if kept == 0 else FrameError, match="ended" if kept == 0 else "trunc"
    ):
        decode(whole[:kept])


@given(FRAMES, st.data())
def test_each_damaged_bit_of_what_is_interpreted_is_noticed(frame: Frame, data: st.DataObject) -> None:
    parts = encode(frame)
    damaged = bytearray(b"".join(parts))
    bit = data.draw(st.integers(0, 8 * len(parts[0]) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameError):
        decode(bytes(damaged))


DAMAGED = st.recursive(
    PLAIN | st.sampled_from(["float32", "int16"]) | st.integers(-3, 2**70),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


@given(st.sampled_from(["kind", "tag", "at_s", "meta", "arrays"]), DAMAGED)
def test_strange_fields_raise_nothing_else(name: str, value) -> None:
    content = framed(header(**{name: value}))
    try:
        frame = decode(content)
    except FrameError:
        return
    require_same(frame, decode(joined(frame)))


@given(
    st.lists(
        st.tuples(
            st.text(max_size=2),
            st.sampled_from(["bool", "float64"]),
            st.lists(
                st.sampled_from([-1, 0, 1, 2, 2**31, 2**62, 2**64, 2**900, True, 0.5, None]), max_size=34
            ),
        ),
        max_size=3,
    )
)
def test_strange_shapes_raise_nothing_else(arrays) -> None:
    try:
        frame = decode(framed(header(arrays=arrays)))
    except FrameError:
        return
    assert all(array.size == 0 for array in frame.arrays.values())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            framed(header(), version=VERSION + 1),
            f"version {VERSION + 1}, this side reads version {VERSION}: install",
        ),
        (framed(header(), magic=b"HTTP"), "begins with b'HTTP'"),
        (framed(header() + b" " * 2**20), "header of .* above the limit of 1,048,576"),
        (framed(header(arrays=[["x", "float32", [2**40]]]), b"1" * 8), "its payload has 8"),
        (framed(header(arrays=[["x", "object", [1]]]), b"1" * 8), "one of its arrays is"),
        (framed(header(arrays=[["x", "bool", [1]], ["x", "bool", [1]]]), b"11"), "one of its arrays is"),
        (framed(header(arrays=[["x", "bool", [-1]], ["y", "bool", [1]]])), "shape"),
        (framed(header(kind="Forward")), "its kind is 'Forward'"),
        (framed(header(tag=[0, 0, 0, 0])), "its tag is"),
        (framed(header(tag=[0, 0, 0, 0, 0.5])), "0.5 in its tag"),
        (framed(header(at_s=math.inf)), "finite"),
        (framed(header(more=1)), "fields"),
        (framed(b"[" * 500_000 + b"]" * 500_000), "nested deeper"),
        (framed(header(meta={"n": 0}).replace(b"0}", b"9" * 5000 + b"}")), "damaged"),
        (framed(header()) + b"x", "1 bytes follow it"),
    ],
)
def test_refusals_say_why(content: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        decode(content)


def test_nothing_is_read_beyond_a_refused_length() -> None:
    """A length above a limit is refused before memory of that size is asked for."""
    asked = []

    def read_exactly(count: int) -> bytes:
        asked.append(count)
        return framed(header(), claimed=2**50)[:count]

    with pytest.raises(FrameError, match="limit"):
        read_frame(read_exactly)
    assert asked == [HEAD_BYTES]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (Frame("a" * 33), "at most 32"),
        (Frame("a", Tag(round=True)), "True in its tag"),
        (Frame("a", Tag(step=2**31)), "below 2,147,483,648"),
        (Frame("a", at_s=-math.inf), "finite"),
        (Frame("a", at_s="1"), "seconds"),  # type: ignore[arg-type]
        (Frame("a", meta={"x": np.zeros(2)}), "arrays belong into `arrays`"),
        (Frame("a", meta={"x": 1 << 2000}), "2,001 bits"),
        (Frame("a", meta={1: 2}), "has the name 1"),  # type: ignore[dict-item]
        (Frame("a", meta={"x": "y" * 2**20}), "above the limit of 1,048,576: move large data"),
        (Frame("a", arrays={"x": np.zeros(2, complex)}), "'x' of type complex128: use NumPy arrays"),
        (Frame("a", arrays={"x": [1.0]}), "type list"),  # type: ignore[dict-item]
        (Frame("a", arrays={"x": np.zeros((1,) * 33)}), "33 axes"),
    ],
)
def test_senders_are_told_what_frames_cannot_carry(frame: Frame, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        encode(frame)


def test_limits_hold_on_both_sides() -> None:
    frame, small = Frame("a", arrays={"x": np.zeros(3)}), Limits(payload=23)
    with pytest.raises(FrameError, match="24 bytes, above the limit of 23: raise the limit"):
        encode(frame, small)
    whole = joined(frame)
    with pytest.raises(FrameError, match="24 bytes, above the limit of 23"):
        decode(whole, small)
    assert decode(joined(frame, Limits(payload=24)), Limits(payload=24)).arrays["x"].size == 3


def test_arrays_of_any_layout_arrive_in_c_order() -> None:
    base = np.arange(24.0).reshape(2, 3, 4)
    frame = Frame(
        "a", arrays={"f": np.asfortranarray(base), "t": base.T, "s": base[:, ::2], "b": base.astype(">f8")}
    )
    found = decode(joined(frame)).arrays
    for name, array in frame.arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.c_contiguous
        assert found[name].dtype == np.float64


def test_arrays_in_c_order_are_not_copied() -> None:
    array = np.zeros(1000)
    _, part = encode(Frame("a", arrays={"x": array}))
    assert np.shares_memory(np.frombuffer(part, np.uint8), array)
    whole = bytearray(b"".join(encode(Frame("a", arrays={"x": array}))))
    assert np.shares_memory(decode(whole).arrays["x"], np.frombuffer(whole, np.uint8))
