"""Endpoint that keeps some frames out of its transport, for another carrier to bring them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from collapipe_env.execution.frames import Frame
from collapipe_env.execution.transport import Channel, Endpoint, OnFrame, OnLost

Diverted = Callable[[str, Frame], None]
"""Takes the name of the peer that a frame is for, and the frame."""


class DivertedEndpoint:
    """An endpoint some of whose frames go another way.

    Attributes:
        name: Name of this process.

    Args:
        inner: The transport's endpoint.
        kinds: Kinds of frames that are diverted when they are sent.
        divert: Takes them.
    """

    def __init__(self, inner: Endpoint, kinds: Collection[str], divert: Diverted) -> None:
        self.name = inner.name
        self._inner, self._kinds, self._divert = inner, frozenset(kinds), divert
        self._lock = threading.Lock()
        self._beside = [0, 0]

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a peer, by the transport or the other way."""
        if frame.kind in self._kinds:
            self._divert(to, frame)
            return
        self._count(0, frame)
        self._inner.send(to, frame, channel)

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Begin to hand on frames and losses of the transport."""

        def counted(sender: str, frame: Frame) -> None:
            self._count(1, frame)
            on_frame(sender, frame)

        self._inner.listen(counted, on_lost)

    def drop(self, peer: str) -> None:
        """Cut all connections with a peer."""
        self._inner.drop(peer)

    def close(self) -> None:
        """Close the transport's endpoint."""
        self._inner.close()

    def take_beside(self) -> tuple[int, int]:
        """Return the bytes of arrays that were sent and received by the transport since the last call."""
        with self._lock:
            sent, received = self._beside
            self._beside = [0, 0]
            return sent, received

    def _count(self, direction: int, frame: Frame) -> None:
        with self._lock:
            self._beside[direction] += sum(array.nbytes for array in frame.arrays.values())
