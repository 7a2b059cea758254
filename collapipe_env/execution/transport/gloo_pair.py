"""Pairs of gloo: process groups of two of torch.distributed, which carry frames in both directions [X].

A frame travels as one message of a fixed size, and a second one if it is longer. Receivers ask for some
messages of the fixed size in advance, because gloo sends nothing unasked.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from collapipe_env.execution.frames import Buffer, Frame, FrameError, Limits, encode, read_frame
from collapipe_env.execution.transport import BYE, TransportError
from collapipe_env.execution.transport.connection import StartThread, said

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

MEET_S = 10.0
"""Time in which both sides must have connected [s]."""
LINGER_S = 2.0
"""Time for which the last frames may be on their way [s]."""
FOREVER = timedelta(days=365)
"""Longest wait for the next frame; a wait that times out ends its group."""
FIRST_BYTES = 16_384
"""Bytes of the message with which every frame begins."""
HELD_BYTES = 2**20
"""Bytes of frames that may be kept after sending, so that no thread needs to wake up for each frame."""
_AHEAD = 8
_FIRST, _REST, _NEVER = 0, 1, 2
"""Tags of the two messages of a frame, and of one that nobody sends."""
_HEAD = struct.Struct("!QQ")
_ALIGNED = 16


class Meeting(dist.Store):  # type: ignore[misc, name-defined] # whose types torch makes known at run time
    """Store by which the two sides of a pair learn each other's addresses, through their control channel.

    So the addresses come from a peer that has proven to know the token, no further server is needed, and the
    wait for them ends when the peer is lost.

    Args:
        tell: Sends a key and its value to the peer.
    """

    def __init__(self, tell: Callable[[str, bytes], None]) -> None:
        super().__init__()
        self._tell = tell
        self._changed = threading.Condition()
        self._values: dict[str, bytes] = {}
        self._over = False

    def set(self, key: str, value: Any) -> None:
        """Store gloo's value of a key, and send it to the peer."""
        self.hear(key, bytes(value))
        self._tell(key, bytes(value))

    def hear(self, key: str, value: bytes) -> None:
        """Store the peer's value of a key."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there.

        Raises:
            TransportError: If they do not come in time, or the peer is gone.
        """
        longest = MEET_S if timeout is None else timeout.total_seconds()
        with self._changed:
            there = self._changed.wait_for(
                lambda: self._over or all(key in self._values for key in keys), longest
            )
            if self._over:
                raise TransportError("the peer is gone")
            if not there:
                raise TransportError("it did not answer in time")

    def get(self, key: str) -> bytes:
        """Return a value, once it is there."""
        self.wait([key])
        return self._values[key]

    def end(self) -> None:
        """End all waits."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


class Pair:
    """This side of a group of two.

    Attributes:
        meeting: Store by which both sides find each other.
        over: Whether no more frames come.

    Args:
        names: Names of this side and of the peer.
        meeting: Store by which both find each other.
        device: Returns the gloo device of this process.
        on_frame: Called with each frame.
        on_end: Called once at the end: with the reason, or ``None`` if one side ended it on purpose.
        start: Starts a thread.
        limits: Sizes of frames.
    """

    def __init__(
        self,
        names: tuple[str, str],
        meeting: Meeting,
        device: Callable[[], Any],
        on_frame: Callable[[Frame], None],
        on_end: Callable[[str | None], None],
        start: StartThread,
        limits: Limits,
    ) -> None:
        own, peer = names
        self.meeting = meeting
        self._rank = int(own > peer)
        self._device, self._on_frame, self._on_end = device, on_frame, on_end
        self._start, self._limits = start, limits
        self._changed = threading.Condition()
        self._group: Any = None
        self._waiting: list[Bytes] = []
        self._posted: list[tuple[Any, torch.Tensor]] = []
        self._held_bytes = 0
        self._finishing = self._ended = self._flushed = False
        self.over = False
        start(self._run)

    def send(self, content: Bytes) -> None:
        """Send a frame after all that were sent before; it vanishes if the pair has ended.

        Args:
            content: Result of :func:`packed`, which must not change any more.
        """
        with self._changed:
            if self._ended or self._finishing:
                return
            if self._group is None:
                self._waiting.append(content)
            else:
                self._post(content)

    def finish(self) -> None:
        """Say goodbye after all frames that are still to be sent; return at once."""
        with self._changed:
            if not self._ended and not self._finishing:
                goodbye = packed(Frame(BYE), self._limits)
                if self._group is None:
                    self._waiting.append(goodbye)
                else:
                    self._post(goodbye)
                self._finishing = True
                self._changed.notify_all()

    def cut(self) -> None:
        """End the group at once, and with it all waits of other threads, on either side."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            group, self._group = self._group, None
            self._waiting.clear()
            self._changed.notify_all()
        self.meeting.end()
        if group is not None:
            self._break(group)

    def _break(self, group: Any) -> None:
        """Close the group's connection.

        ``shutdown`` and ``abort`` of gloo's groups release no thread that waits, and a peer that is stopped
        sends nothing. But a wait that times out closes the connection and ends all other waits of its group,
        so one is made to time out here.
        """
        with contextlib.suppress(RuntimeError):
            never = group.recv([torch.empty(1, dtype=torch.uint8)], 1 - self._rank, _NEVER)
            never.wait(timedelta(milliseconds=1))

    def _post(self, content: Bytes) -> None:
        """Hand a frame to gloo, which sends it once the peer asks for it."""
        whole = torch.from_numpy(content)
        try:
            for part, tag in ((whole[:FIRST_BYTES], _FIRST), (whole[FIRST_BYTES:], _REST)):
                if len(part):
                    self._posted.append((self._group.send([part], 1 - self._rank, tag), part))
            self._held_bytes += len(whole)
            if self._held_bytes > HELD_BYTES:
                self._changed.notify_all()
        except RuntimeError:  # the connection has ended: the reader learns of it too, and reports it
            pass

    def _run(self) -> None:
        """Meet the peer, and read until the end."""
        why: str | None = "closed the connection"
        group = None
        try:
            group = self._meet()
            with self._changed:
                if self._ended:
                    self._break(group)
                    return
                self._group = group
                for content in self._waiting:
                    self._post(content)
                self._waiting.clear()
            self._start(self._flush)
            self._read(group)
            why = None
            self.finish()  # answers the goodbye
            with self._changed:
                self._changed.wait_for(lambda: self._flushed or self._ended, LINGER_S)
        except RuntimeError as error:  # gloo's, whose message is about other things
            why = f"no connection: {said(error)}" if self._group is None else "closed the connection"
        except Exception as error:  # whatever it is, the peer must be reported
            why = said(error)
        finally:
            with self._changed:
                on_purpose = self._ended or self._finishing
            self.cut()
            del group
            self.over = True
            self._on_end(None if on_purpose else why)

    def _meet(self) -> Any:
        """Connect with the peer."""
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [self._device()]
        options._timeout = timedelta(seconds=MEET_S)
        options._threads = 1
        return dist.ProcessGroupGloo(self.meeting, self._rank, 2, options)

    def _read(self, group: Any) -> None:
        """Pass on frames until the peer's goodbye."""
        other, work = 1 - self._rank, None
        asked: deque[tuple[Bytes, Any]] = deque()

        def ask(buffer: Bytes) -> None:
            asked.append((buffer, group.recv([torch.from_numpy(buffer)], other, _FIRST)))

        try:
            for _ in range(_AHEAD):
                ask(np.empty(FIRST_BYTES, np.uint8))
            while True:
                first, work = asked.popleft()
                work.wait(FOREVER)
                total, used = _HEAD.unpack_from(first.data)
                self._require_sizes(total, used)
                content = np.empty(total, np.uint8)
                content[:used] = first[_HEAD.size : _HEAD.size + used]
                ask(first)
                if used < total:
                    group.recv([torch.from_numpy(content[used:])], other, _REST).wait(FOREVER)
                frame = unpacked(content, self._limits)
                if frame.kind == BYE:
                    return
                self._on_frame(frame)
        finally:
            # A logged error keeps the variables of this call alive, and so the group's sockets.
            asked.clear()
            group = work = None

    def _require_sizes(self, total: int, used: int) -> None:
        """Refuse sizes that no frame can have, before memory is taken for them."""
        room = FIRST_BYTES - _HEAD.size
        largest = self._limits.header + 2 * self._limits.payload + FIRST_BYTES
        if used != min(total, room) or total > largest:
            raise FrameError(f"a frame announces {total:,} bytes, above the limit of {largest:,}")

    def _flush(self) -> None:
        """Wait until frames are sent, and forget them; ends with the pair or with the goodbye."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._held_bytes > HELD_BYTES or self._finishing or self._ended
                )
                posted, self._posted, self._held_bytes = self._posted, [], 0
                if self._ended or (self._finishing and not posted):
                    self._flushed = True
                    self._changed.notify_all()
                    return
            with contextlib.suppress(RuntimeError):  # the reader learns of it too, and reports it
                for work, _ in posted:
                    work.wait(FOREVER)


def packed(frame: Frame, limits: Limits) -> Bytes:
    """Return copies of a frame's messages, one after another, each part aligned for its type."""
    parts = encode(frame, limits)
    total = sum(_room(len(part)) for part in parts)
    content = np.empty(max(_HEAD.size + total, FIRST_BYTES), np.uint8)
    _HEAD.pack_into(content.data, 0, total, min(total, FIRST_BYTES - _HEAD.size))
    place = _HEAD.size
    for part in parts:
        content[place : place + len(part)] = np.frombuffer(part, np.uint8)
        place += _room(len(part))
    return content


def unpacked(content: Bytes, limits: Limits) -> Frame:
    """Return the frame that the messages hold, its arrays as views of them."""
    place, reads = 0, 0

    def read_exactly(count: int) -> Buffer:
        nonlocal place, reads
        found = content[place : place + count].data
        reads += 1
        # Prefix and header are one part.
        place = place + count if reads == 1 else _room(place + count)
        return found

    return read_frame(read_exactly, limits)


def _room(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
