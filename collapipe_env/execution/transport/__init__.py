"""Transports, which carry frames from one process of an execution to another [X]."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from collapipe_env.execution.frames import Frame
from collapipe_env.ground.errors import CollaPipeError, shown

Channel = Literal["data", "control"]
"""Channel to a peer: each keeps its own order, so that large data on one never delay the other."""
CHANNELS: tuple[Channel, ...] = ("data", "control")

CONTROL_KINDS = frozenset({"heartbeat", "abort", "stop", "ping", "pong"})
"""Kinds of frames that go by the control channel unless their sender says otherwise."""

BYE = "bye"
"""Kind of the frame by which an endpoint ends a connection on purpose; transports send it themselves."""

OnFrame = Callable[[str, Frame], None]
"""Called with the name of a peer and a frame from it."""
OnLost = Callable[[str, str], None]
"""Called with the name of a peer that was lost, and the reason."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


class TransportError(CollaPipeError):
    """A transport is used wrongly, or a connection is refused."""


class Endpoint(Protocol):
    """One process's end of a transport.

    Attributes:
        name: Name of this process, by which its peers know it.
    """

    name: str

    def connect(self, directory: Mapping[str, tuple[str, int]]) -> None:
        """Take note of peers' addresses; connections are made as frames are sent.

        Args:
            directory: Host and port of each peer by its name; added to those already known.

        Raises:
            TransportError: If a name or an address is invalid.
        """

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a peer, without waiting until it arrives.

        Frames of one thread to one peer arrive in order on each channel. The arrays may be written to as soon
        as the call returns. Nothing is sent to a peer that was dropped, was lost or has left, nor
        after :meth:`close`: such frames vanish without an error.

        Args:
            to: Name of the peer.
            channel: The channel; by default control for :data:`CONTROL_KINDS`, data for other kinds.

        Raises:
            TransportError: If there is no such peer.
            FrameError: If the frame holds something that frames cannot carry.
        """

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Start to pass on frames and losses; call this once, before the first frame is sent.

        Args:
            on_frame: Called with every frame that arrives, in a thread of the transport: one at a time for
                each peer and channel, concurrently for several. While it runs, that peer's channel waits.
                If it raises an error, the peer counts as lost.
            on_lost: Called once for each peer whose connection ends without a goodbye, after the frames that
                had arrived from it before. Not called for peers that were dropped.

        Raises:
            TransportError: If it listens already.
        """

    def drop(self, peer: str) -> None:
        """Cut all connections with a peer, for good.

        A send in progress ends at once, even if the peer no longer reads. The peer is not reported as lost.

        Args:
            peer: Its name; a peer that is not known yet is refused if it turns up.
        """

    def close(self) -> None:
        """Send queued frames, say goodbye to all peers and end all threads; a second call does nothing.

        Peers that do not read are waited for only a short time.
        """


def channel_of(frame: Frame) -> Channel:
    """Return the channel of a frame whose sender names none."""
    return "control" if frame.kind in CONTROL_KINDS else "data"


def is_name(name: object) -> bool:
    """Return whether something may be the name of a process."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def require_name(name: object) -> None:
    """Refuse anything that cannot be the name of a process.

    Raises:
        TransportError: If it cannot be one; the message shows it.
    """
    if not is_name(name):
        raise TransportError(
            f"the name {shown(name)} cannot be that of a process: use 1 to 64 ASCII letters, digits and "
            "'_.-', the first one a letter or digit"
        )


def require_sendable(name: str, to: str, frame: Frame) -> None:
    """Refuse a frame to oneself, and a frame that only transports send.

    Args:
        name: The sender.
        to: The peer.

    Raises:
        TransportError: In either case; the message shows the frame's kind.
    """
    if to == name:
        raise TransportError(f"{name} sends a frame {frame.kind!r} to itself: name another process")
    if frame.kind == BYE:
        raise TransportError(
            f"the kind {BYE!r} is kept for transports: call close(), or name the kind otherwise"
        )
