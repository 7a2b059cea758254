"""Transports: how frames get from one process of an execution to another [X]."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, Protocol

from collapipe_env.errors import CollaPipeError, shown
from collapipe_env.execution.frames import Frame

Channel = Literal["data", "control"]
"""Way to a peer: each keeps its own order, so that large data on one never delay the other."""
CHANNELS: tuple[Channel, ...] = ("data", "control")

CONTROL_KINDS = frozenset({"heartbeat", "abort", "stop", "ping", "pong"})
"""Kinds of frames that go by the control channel unless their sender says otherwise."""

BYE = "bye"
"""Kind of the frame by which an endpoint ends a connection on purpose; transports send it themselves."""

OnFrame = Callable[[str, Frame], None]
"""Takes the name of a peer and a frame of it."""
OnLost = Callable[[str, str], None]
"""Takes the name of a peer that was lost, and the reason."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


class TransportError(CollaPipeError):
    """A transport is used wrongly, or a connection is refused."""


class Endpoint(Protocol):
    """One process's end of a transport.

    Attributes:
        name: Name of this process, by which its peers know it.
    """

    name: str

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a peer, without waiting until it arrives.

        Frames of one thread to one peer arrive in order on each channel. The arrays may be written to as soon
        as the call returns. Nothing is sent to a peer that was dropped, was lost or has left, nor
        after :meth:`close`: such frames vanish without an error.

        Args:
            to: Name of the peer.
            frame: The frame.
            channel: The way to it; by default control for :data:`CONTROL_KINDS`, else data.

        Raises:
            TransportError: If there is no such peer.
            FrameError: If frames cannot carry what the frame holds.
        """

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Begin to hand on frames and losses; once, before the first frame is sent.

        Args:
            on_frame: Called with every frame that arrives, in a thread of the transport: one at a time for
                each peer and channel, at once for several. What it waits for holds up that peer's channel.
                Where it raises an error, the peer counts as lost.
            on_lost: Called once for each peer whose connection ends without a goodbye, after the frames that
                had arrived from it before. Not called for peers that were dropped.

        Raises:
            TransportError: If it listens already.
        """

    def drop(self, peer: str) -> None:
        """Cut all connections with a peer, for good.

        What is being sent to it ends at once, even if the peer no longer reads. It is not reported as lost.

        Args:
            peer: Its name; one that was never heard of is refused if it turns up.
        """

    def close(self) -> None:
        """Send what is still to be sent, say goodbye to all peers and end all threads; twice is as once.

        Peers that do not read are waited for a short time only.
        """


def channel_of(frame: Frame) -> Channel:
    """Return the channel of a frame for which its sender names none."""
    return "control" if frame.kind in CONTROL_KINDS else "data"


def is_name(name: object) -> bool:
    """Return whether something may be the name of a process."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def require_name(name: object) -> None:
    """Refuse what cannot be the name of a process.

    Raises:
        TransportError: With the name.
    """
    if not is_name(name):
        raise TransportError(
            f"the name {shown(name)} cannot be that of a process: use 1 to 64 ASCII letters, digits and "
            "'_.-', the first one a letter or digit"
        )


def require_sendable(name: str, to: str, frame: Frame) -> None:
    """Refuse a frame to oneself, and one that only transports send.

    Args:
        name: The sender.
        to: The peer.
        frame: The frame.

    Raises:
        TransportError: With the frame's kind.
    """
    if to == name:
        raise TransportError(f"{name} sends a frame {frame.kind!r} to itself: name another process")
    if frame.kind == BYE:
        raise TransportError(
            f"the kind {BYE!r} is kept for transports: call close(), or name the kind otherwise"
        )
