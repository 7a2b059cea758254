"""Handshake: first words of a connection, by which both sides prove that they know the token [X].

The side that has accepted sends a challenge. The side that has connected names itself and the channel, and
proves that it knows the token. The first answers with a welcome and its own proof, or with a refusal. Every
word is a frame, so that strangers and other versions of the format are noticed at the first word.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from collapipe_env.execution.frames import Frame, FrameError, Limits, StreamEndedError, encode, read_frame
from collapipe_env.execution.tokens import new_nonce, proof, proven
from collapipe_env.execution.transport import CHANNELS, Channel, TransportError, is_name
from collapipe_env.ground.errors import shown

WORDS = Limits(header=4096, payload=0)
"""Limits of a word of the handshake, and of a goodbye."""


class HungUpError(FrameError):
    """The other side has closed the connection before its next word."""


class Hello(NamedTuple):
    """The other side's account of itself.

    Attributes:
        name: Its name.
        to: Name of the process that it means to reach.
        channel: Channel for which it will use the connection.
        instance: A number that tells its process from another one of the same name.
    """

    name: str
    to: str
    channel: Channel
    instance: str


def reader(connection: socket.socket, deadline: float | None = None) -> Callable[[int], memoryview]:
    """Return a function that reads a number of bytes, or fewer if the connection ends.

    Args:
        deadline: Moment of ``time.monotonic`` at which reading ends with a ``TimeoutError``, if any.
    """

    def read_exactly(count: int) -> memoryview:
        # Not zeroed first: memory is taken only as bytes arrive, whatever the other side has announced.
        view = np.empty(count, np.uint8).data
        got = 0
        while got < count:
            if deadline is not None:
                connection.settimeout(max(deadline - time.monotonic(), 1e-3))
            more = connection.recv_into(view[got:])
            if not more:
                break
            got += more
        return view[:got]

    return read_exactly


def say(connection: socket.socket, kind: str, **meta: str) -> None:
    """Send a word of the handshake, or a goodbye."""
    connection.sendall(b"".join(encode(Frame(kind, meta=meta), WORDS)))


def introduce(connection: socket.socket, hello: Hello, token: str, deadline: float) -> None:
    """Go through the handshake on the side that has connected.

    Args:
        hello: This side's account of itself.
        deadline: Moment of ``time.monotonic`` by which it must have ended.

    Raises:
        TransportError: If the other side refuses, or does not know the token.
        FrameError: If the other side is of another version, or something else altogether.
        OSError: If the connection fails, or the deadline passes.
    """
    read = reader(connection, deadline)
    nonce, own = _word(read, "challenge"), new_nonce()
    said = (nonce.get("nonce", ""), own, *hello)
    say(connection, "hello", nonce=own, proof=proof(token, "hello", *said), **hello._asdict())
    answer = _word(read, "welcome")
    if not proven(answer.get("proof"), token, "welcome", *said):
        raise TransportError("it does not know the token: give the same one to all processes")


def receive(
    connection: socket.socket, name: str, token: str, deadline: float, admitted: Callable[[Hello], str | None]
) -> Hello:
    """Go through the handshake on the side that has accepted.

    Args:
        name: Name of this side.
        deadline: Moment of ``time.monotonic`` by which it must have ended.
        admitted: Called last, once the other side has proven itself; returns why it is refused, or ``None``.

    Returns:
        Its account of itself.

    Raises:
        TransportError: If the other side is refused, with the reason; it has been told.
        FrameError: If the other side is of another version, or something else altogether.
        OSError: If the connection fails, or the deadline passes.
    """
    own = new_nonce()
    say(connection, "challenge", nonce=own)
    meta = _word(reader(connection, deadline), "hello")
    hello = _hello(meta)
    said = (own, meta.get("nonce", ""), *hello)
    # A side that has not proven itself is told only that.
    if not proven(meta.get("proof"), token, "hello", *said):
        why: str | None = "its token differs: give the same token to all processes"
    elif hello.to != name:
        why = f"it wants to reach {hello.to}, but this is {name}: correct the address of {hello.to}"
    else:
        why = admitted(hello)
    if why is not None:
        say(connection, "refused", reason=why)
        raise TransportError(f"{hello.name}: {why}")
    say(connection, "welcome", proof=proof(token, "welcome", *said))
    return hello


def _word(read: Callable[[int], memoryview], expected: str) -> dict[str, str]:
    """Return the meta data of the other side's next word."""
    try:
        frame = read_frame(read, WORDS)
    except StreamEndedError:
        raise HungUpError(f"it closed the connection before its {expected!r}") from None
    meta = {key: value for key, value in frame.meta.items() if isinstance(value, str)}
    if frame.kind == "refused" and expected == "welcome":
        raise TransportError(f"it refuses the connection: {shown(meta.get('reason'))}")
    if frame.kind != expected:
        raise FrameError(
            f"it says {frame.kind!r} instead of {expected!r}: install the same release on both sides"
        )
    return meta


def _hello(meta: dict[str, str]) -> Hello:
    """Return the other side's account of itself, with its form checked."""
    name, to, instance = meta.get("name"), meta.get("to"), meta.get("instance", "")
    for channel in CHANNELS:
        if meta.get("channel") == channel and is_name(name) and is_name(to) and len(instance) <= 64:
            return Hello(str(name), str(to), channel, instance)
    raise FrameError(f"it introduces itself as {shown(meta)}: install the same release on both sides")
