"""Frames as Flower's records hold them: named arrays, and a header as bytes [X].

What arrives is checked like frames of the package's own transport, and nothing of it is executed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from collapipe_env.errors import shown
from collapipe_env.execution.frames import DTYPES, LIMITS, Frame, FrameError, Limits, decode, encode
from collapipe_env.execution.parts import FROZEN, VALUES, Arrays


def to_plain(frame: Frame) -> tuple[Arrays, bytes]:
    """Return a frame's arrays, and the rest of the frame as bytes.

    Args:
        frame: The frame.

    Raises:
        FrameError: If it holds something that frames cannot carry, or is above a limit.
    """
    encode(frame)  # refused here already, because its receiver would refuse it
    return dict(frame.arrays), b"".join(encode(Frame(frame.kind, frame.tag, frame.at_s, frame.meta)))


def from_plain(
    arrays: Mapping[str, np.ndarray[Any, Any]],
    header: object,
    kinds: Collection[str],
    limits: Limits = LIMITS,
) -> Frame:
    """Return the frame that arrays and a header make up.

    Args:
        arrays: The arrays.
        header: The header, as it arrived.
        kinds: Expected kinds.
        limits: Sizes that the frame may have.

    Raises:
        FrameError: If it is damaged, of another kind, or above a limit.
    """
    if not isinstance(header, bytes):
        raise FrameError(
            f"a Flower message has {shown(header)} instead of a header: its sender is not a server or client "
            "of this package"
        )
    if len(header) > limits.header:
        raise FrameError(f"a Flower message has a header of {len(header):,} bytes, above {limits.header:,}")
    bare = decode(header, limits)
    if bare.arrays:
        raise FrameError("a Flower message has arrays in its header: install the same release on both sides")
    if bare.kind not in kinds:
        raise FrameError(f"a Flower message is {shown(bare.kind)}, expected {' or '.join(kinds)}")
    frame = Frame(bare.kind, bare.tag, bare.at_s, bare.meta, dict(arrays))
    encode(frame, limits)
    return frame


def is_moment(name: str) -> bool:
    """Whether an array, named with its part, belongs to an optimiser's memory rather than to the model."""
    _, _, inside = name.partition("/")
    return inside != VALUES and not inside.startswith(FROZEN)


def without_moments(frame: Frame) -> tuple[Frame, Arrays]:
    """Return a frame without the optimisers' memory, and that memory.

    Args:
        frame: A round's command or its update.
    """
    moments = {name: array for name, array in frame.arrays.items() if is_moment(name)}
    rest = {name: array for name, array in frame.arrays.items() if name not in moments}
    return Frame(frame.kind, frame.tag, frame.at_s, frame.meta, rest), moments


def remaining_moments(moments: Mapping[str, np.ndarray[Any, Any]], lost: Iterable[str]) -> Arrays:
    """Return the memory that is left after some parts have lost theirs.

    Args:
        moments: Memory of all parts.
        lost: Names of the parts whose memory was lost.
    """
    gone = set(lost)
    return {name: array for name, array in moments.items() if name.partition("/")[0] not in gone}


def require_update(frame: Frame, sizes: Mapping[str, int], cluster: int) -> None:
    """Refuse an update that does not fit the model.

    Args:
        frame: The update, without moments.
        sizes: Trained weights of each part of the model.
        cluster: Cluster that sent it.

    Raises:
        FrameError: If parts are missing, unknown, or of another size or type, or numbers are not finite.
    """
    where = f"the update of cluster {cluster}"
    expected = {f"{name}/{VALUES}": size for name, size in sizes.items() if size}
    missing, unknown = expected.keys() - frame.arrays.keys(), frame.arrays.keys() - expected.keys()
    if missing or unknown:
        raise FrameError(
            f"{where} lacks {', '.join(sorted(missing)) or 'nothing'} and has "
            f"{', '.join(sorted(unknown)) or 'nothing'} that the model does not have: install the same "
            "release everywhere"
        )
    for name, size in expected.items():
        array = frame.arrays[name]
        if array.shape != (size,) or array.dtype != DTYPES["float32"]:
            raise FrameError(
                f"{where} has {name} of shape {array.shape} and type {array.dtype}, expected ({size},) and "
                "float32: install the same release everywhere"
            )
        if not np.isfinite(array).all():
            raise FrameError(f"{where} has {name} with numbers that are not finite: lower the step size")
