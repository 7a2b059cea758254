"""Frames as plain records: named arrays and a flat dictionary of settings, as federated frameworks carry them.

A framework's own records are not trusted more than frames of the network: what arrives is checked, and nothing
of it is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.errors import reason, shown
from collapipe_env.execution.frames import DTYPES, LIMITS, Frame, FrameError, Limits, Tag, encode
from collapipe_env.execution.parts import FROZEN, STEP, VALUES
from collapipe_env.files import parse_json

Arrays = dict[str, npt.NDArray[Any]]
Settings = dict[str, str]
"""Settings that go along with the arrays of a frame: its header, as JSON text."""

HEADER = "frame"
"""Name of the setting."""


def to_plain(frame: Frame) -> tuple[Arrays, Settings]:
    """Return a frame as arrays and settings.

    Args:
        frame: The frame.

    Raises:
        FrameError: It holds what frames cannot carry, or is above a limit.
    """
    encode(frame)  # refused here already, as its receiver would refuse it
    header = {"kind": frame.kind, "tag": list(frame.tag), "at_s": float(frame.at_s), "meta": dict(frame.meta)}
    return dict(frame.arrays), {HEADER: json.dumps(header, separators=(",", ":"))}


def from_plain(
    arrays: Mapping[str, npt.NDArray[Any]],
    settings: Mapping[str, Any],
    kinds: Iterable[str],
    limits: Limits = LIMITS,
) -> Frame:
    """Return the frame that arrays and settings hold.

    Args:
        arrays: The arrays.
        settings: The settings; others than the frame's are ignored.
        kinds: Kinds that are expected.
        limits: Sizes that the frame may have.

    Raises:
        FrameError: It is none of these, damaged, or above a limit.
    """
    text = settings.get(HEADER)
    if not isinstance(text, str):
        raise FrameError(
            f"a message has no setting {HEADER!r} but {', '.join(map(str, settings)) or 'none at all'}: its "
            "other side is no cluster or server of this package"
        )
    if len(text) > limits.header:
        raise FrameError(f"a message has a header of {len(text):,} letters, above {limits.header:,}")
    try:
        header = parse_json(text.encode())
        kind, tag, at_s, meta = (header[name] for name in ("kind", "tag", "at_s", "meta"))
        frame = Frame(kind, Tag(*tag), at_s, meta, dict(arrays))
    except (ValueError, TypeError, KeyError) as error:
        raise FrameError(f"a message's header is damaged: {reason(error)}") from None
    if kind not in set(kinds):
        raise FrameError(f"a message is {shown(kind)}, expected {' or '.join(kinds)}")
    encode(frame, limits)
    return frame


def payload_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Bytes of the numbers of arrays."""
    return sum(array.nbytes for array in arrays.values())


def is_moment(name: str) -> bool:
    """Whether an array of a part, named with the part, holds an optimiser's memory."""
    _, _, inside = name.partition("/")
    return inside != VALUES and not inside.startswith(FROZEN)


def without_moments(frame: Frame) -> tuple[Frame, Arrays]:
    """Return a frame without optimisers' memory, and this memory.

    Args:
        frame: A round's command or its update.
    """
    moments = {name: array for name, array in frame.arrays.items() if is_moment(name)}
    rest = {name: array for name, array in frame.arrays.items() if name not in moments}
    return Frame(frame.kind, frame.tag, frame.at_s, frame.meta, rest), moments


def with_moments(frame: Frame, moments: Mapping[str, npt.NDArray[Any]], lost: Iterable[str]) -> Frame:
    """Return a round's command with optimisers' memory from here.

    Args:
        frame: The command, without any.
        moments: The memory that was kept.
        lost: Parts whose memory was lost on the way from device to device.
    """
    gone = set(lost)
    kept = {name: array for name, array in moments.items() if name.partition("/")[0] not in gone}
    return Frame(frame.kind, frame.tag, frame.at_s, frame.meta, {**frame.arrays, **kept})


def require_update(frame: Frame, sizes: Mapping[str, int], cluster: int) -> None:
    """Refuse an update that does not fit the model.

    Args:
        frame: The update.
        sizes: Trained weights of each part of the model; parts without any are left out.
        cluster: Cluster that sent it.

    Raises:
        FrameError: Parts are missing or unknown, or have other sizes, types, or numbers that are not finite.
    """
    where = f"the update of cluster {cluster}"
    expected = {f"{name}/{VALUES}" for name, size in sizes.items() if size}
    found = {name for name in frame.arrays if not is_moment(name)}
    if expected != found:
        raise FrameError(
            f"{where} lacks {', '.join(sorted(expected - found)) or 'nothing'} and has "
            f"{', '.join(sorted(found - expected)) or 'nothing'} besides: train the same model everywhere"
        )
    for name, array in frame.arrays.items():
        part, _, inside = name.partition("/")
        size = sizes.get(part, 0)
        fits = array.shape == (() if inside == STEP else (size,)) and array.dtype == DTYPES["float32"]
        if not fits:
            raise FrameError(
                f"{where} has {name} of shape {array.shape} and type {array.dtype}, expected ({size},) and float32"
            )
        if not np.isfinite(array).all():
            raise FrameError(f"{where} has {name} with numbers that are not finite: lower the step size")
