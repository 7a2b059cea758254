"""Transport over TCP: for processes on one machine, or on several [X].

Every endpoint listens at one address. A sender connects with its first frame, once for each channel and
direction; each connection has a thread at either end, so that no peer holds up another.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from collapipe_env.execution.frames import LIMITS, Frame, Limits, encode
from collapipe_env.execution.tokens import new_nonce, require_token
from collapipe_env.execution.transport import (
    Channel,
    OnFrame,
    OnLost,
    TransportError,
    channel_of,
    require_name,
    require_sendable,
)
from collapipe_env.execution.transport.connection import Incoming, Outgoing, cut, said
from collapipe_env.execution.transport.few_lines import FewLines
from collapipe_env.execution.transport.handshake import Hello, introduce, receive
from collapipe_env.execution.transport.worker_threads import WorkerThreads
from collapipe_env.ground.errors import nearest_name, reason, shown

Address = tuple[str, int]
"""Host and port."""

HANDSHAKE_S = 10.0
"""Time in which a connection must be there, its handshake included [s]."""
GRACE_S = 1.0
"""Time for which a lost peer's other connections may still bring frames that it had sent [s]. When a process
ends, all its connections end at once: the time matters only if a single connection breaks."""
LINGER_S = 2.0
"""Time in which peers may take the frames still to be sent when an endpoint closes [s]."""
_STUCK_S = 5.0
_MOST_STRANGERS = 64
_BACKLOG = 128
_LAST_PORT = 65_535

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Peer:
    """A peer's connections and its state."""

    outgoing: dict[Channel, Outgoing] = field(default_factory=dict)
    incoming: dict[Channel, Incoming] = field(default_factory=dict)
    instance: str | None = None
    """Number of its process, once the process has connected."""
    ending: bool = False
    """Whether a connection of it has failed."""
    gone: str | None = None
    """Reason why no more frames go to it or come from it, if they do not."""
    left: bool = False
    """Whether it has said goodbye."""

    def connections(self) -> list[Outgoing | Incoming]:
        """Return all connections with it."""
        return [*self.outgoing.values(), *self.incoming.values()]


class TcpEndpoint:
    """One process's end of TCP connections to its peers.

    See :class:`~collapipe_env.execution.transport.Endpoint` for what its methods promise.

    Attributes:
        name: Name of this process, by which its peers know it.
        address: Host and port at which it listens.
    """

    def __init__(
        self, name: str, bind: Address = ("127.0.0.1", 0), token: str = "", limits: Limits = LIMITS
    ) -> None:
        """Listen at an address; peers are let in from :meth:`listen` on.

        Args:
            name: Name of this process.
            bind: Host and port to listen at; port 0 stands for any free port.
            token: Secret that all processes share. May be empty if only this machine can connect.
            limits: Sizes of frames, in both directions.

        Raises:
            TransportError: If the name is invalid, or the endpoint cannot listen at the address.
            TokenError: If other machines can connect and the token is missing or short.
        """
        require_name(name)
        require_token(token, bind[0])
        if not 0 <= bind[1] <= _LAST_PORT:
            raise TransportError(
                f"{name} cannot listen at port {shown(bind[1])}: use a port of 0 to {_LAST_PORT}"
            )
        self.name = name
        self._token, self._limits = token, limits
        self._instance = new_nonce()
        try:
            self._listener = socket.create_server(bind, family=_family(bind[0]), backlog=_BACKLOG)
        except OSError as error:
            raise TransportError(
                f"{name} cannot listen at {shown(bind[0])}, port {shown(bind[1])} ({reason(error)}): name an "
                "address of this machine and a free port, or port 0"
            ) from None
        self.address: Address = self._listener.getsockname()[:2]
        self._listener.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._changed = threading.Condition()
        self._directory: dict[str, Address] = {}
        self._peers: dict[str, _Peer] = {}
        self._strangers: dict[socket.socket, str] = {}
        self._refusals = FewLines(_log)
        self._threads = WorkerThreads(name)
        self._callbacks: tuple[OnFrame, OnLost] | None = None
        self._closing = False

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Take note of peers' addresses; see the protocol."""
        for name, (host, port) in directory.items():
            require_name(name)
            if not (isinstance(host, str) and host and isinstance(port, int) and 0 < port <= _LAST_PORT):
                raise TransportError(
                    f"the address of {name} is {shown((host, port))}: "
                    f"use a host and a port of 1 to {_LAST_PORT}"
                )
        with self._changed:
            self._directory.update({name: (host, port) for name, (host, port) in directory.items()})

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Start to pass on frames and losses; see the protocol."""
        with self._changed:
            if self._callbacks is not None:
                raise TransportError(f"{self.name} listens already: call listen() once")
            self._callbacks = (on_frame, on_lost)
        self._threads.start(self._accept)

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a peer, without waiting until it arrives; see the protocol."""
        require_sendable(self.name, to, frame)
        # One copy, so that the sender may change its arrays again.
        content = b"".join(encode(frame, self._limits))
        way = channel or channel_of(frame)
        with self._changed:
            peer = self._peer(to)
            if self._closing or peer.gone or peer.ending:
                return
            connection = peer.outgoing.get(way)
            if connection is None:
                if peer.left:
                    return
                connection = self._outgoing(to, way)
                peer.outgoing[way] = connection
        connection.send(content)

    def drop(self, peer: str) -> None:
        """Cut all connections with a peer, for good; see the protocol."""
        require_name(peer)
        self._cut(peer, f"{self.name} has dropped it")

    def close(self) -> None:
        """Send queued frames, say goodbye and end all threads; see the protocol."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
            strangers = list(self._strangers)
        self._wake.send(b"x")
        for stranger in strangers:
            cut(stranger)
        for connection in self._connections():
            connection.finish()
        self._threads.join(LINGER_S)
        for connection in self._connections():
            connection.abort()
        if not self._threads.join(_STUCK_S):
            _log.warning("%s: a thread is still busy with a frame; its connection stays open", self.name)
        for own in (self._listener, self._wake, self._woken):
            own.close()
        self._refusals.sum_up()

    def _peer(self, to: str) -> _Peer:
        """Return the record of a peer that a frame is to be sent to."""
        if to not in self._directory and to not in self._peers:
            known = [*self._directory]
            raise TransportError(f"{self.name} has no process {shown(to)}: {nearest_name(to, known)}")
        if self._callbacks is None:
            raise TransportError(f"{self.name} sends before it listens: call listen() first")
        return self._peers.setdefault(to, _Peer())

    def _outgoing(self, to: str, channel: Channel) -> Outgoing:
        """Begin a connection to a peer."""
        if to not in self._directory:
            raise TransportError(f"{self.name} has no address of {to}: name it in connect()")
        address = self._directory[to]
        hello = Hello(self.name, to, channel, self._instance)

        deadline = time.monotonic() + HANDSHAKE_S

        def connect(connection: socket.socket) -> None:
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))
            try:
                connection.connect(address)
            except (OSError, UnicodeError, OverflowError) as error:
                raise TransportError(f"no connection to {address[0]}:{address[1]}: {reason(error)}") from None
            introduce(connection, hello, self._token, deadline)
            _settle(connection)

        return Outgoing(
            connect,
            deadline,
            _family(address[0]),
            functools.partial(self._outgoing_ended, to),
            self._threads.start,
        )

    def _accept(self) -> None:
        """Accept connections until the endpoint closes."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while all(key.fileobj is not self._woken for key, _ in selector.select()):
                try:
                    connection, (host, port, *_) = self._listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:  # the other side gave up, or no more files may be opened
                    self._refusals.add(f"{self.name}: cannot take a connection: {reason(error)}")
                    time.sleep(0.05)
                    continue
                with self._changed:
                    welcome = not self._closing
                    if welcome:
                        self._make_room()
                        self._strangers[connection] = host
                if welcome:
                    self._threads.start(functools.partial(self._receive, connection, f"{host}:{port}"))
                else:
                    connection.close()

    def _make_room(self) -> None:
        """Hang up on a stranger if there are too many: the oldest of the address that has most of them.

        So nobody can keep others out, neither from another address nor with silent connections from the same
        one. A peer that is hung up on tries again.
        """
        if len(self._strangers) >= _MOST_STRANGERS:
            ((crowd, _),) = Counter(self._strangers.values()).most_common(1)
            oldest = next(stranger for stranger, host in self._strangers.items() if host == crowd)
            del self._strangers[oldest]
            cut(oldest)

    def _receive(self, connection: socket.socket, where: str) -> None:
        """Let a peer in, and pass on its frames until the connection ends."""
        incoming = Incoming(connection)
        try:
            try:
                connection.settimeout(HANDSHAKE_S)
                deadline = time.monotonic() + HANDSHAKE_S
                admitted = functools.partial(self._admitted, incoming, connection)
                hello = receive(connection, self.name, self._token, deadline, admitted)
                _settle(connection)
            except Exception as error:  # whatever a stranger says, it is a line in the log
                with self._changed:
                    if not self._closing:
                        self._refusals.add(f"{self.name} refused a connection from {where}: {said(error)}")
                return
            finally:
                with self._changed:
                    self._strangers.pop(connection, None)
            why = incoming.serve(hello, self._hand_on, self._limits)
            self._incoming_ended(hello, incoming, why)
        finally:
            incoming.close()

    def _admitted(self, incoming: Incoming, connection: socket.socket, hello: Hello) -> str | None:
        """Note a peer's connection, or return why it is refused."""
        with self._changed:
            if self._strangers.pop(connection, None) is None:
                return "too many others are connecting"  # it has been cut, and does not hear this
            peer = self._peers.setdefault(hello.name, _Peer())
            if self._closing:
                return f"{self.name} is closing"
            if peer.gone:
                return peer.gone
            if hello.channel in peer.incoming or (peer.instance or hello.instance) != hello.instance:
                return f"the name {hello.name} is taken: start each process once"
            peer.instance = hello.instance
            peer.incoming[hello.channel] = incoming
            return None

    def _hand_on(self, name: str, frame: Frame) -> None:
        """Pass a frame to the user's callback."""
        assert self._callbacks is not None
        with self._changed:
            if self._closing or self._peers[name].gone:
                return
        try:
            self._callbacks[0](name, frame)
        except Exception as error:
            _log.exception("%s: the handling of a frame %r from %s failed", self.name, frame.kind, name)
            raise TransportError(f"its frame {frame.kind!r} could not be handled: {reason(error)}") from error

    def _outgoing_ended(self, name: str, connection: Outgoing, why: str | None) -> None:
        with self._changed:
            peer = self._peers[name]
            peer.outgoing = {way: other for way, other in peer.outgoing.items() if other is not connection}
        self._ended(name, peer, why)

    def _incoming_ended(self, hello: Hello, connection: Incoming, why: str | None) -> None:
        with self._changed:
            peer = self._peers[hello.name]
            if peer.incoming.get(hello.channel) is connection:
                del peer.incoming[hello.channel]
        self._ended(hello.name, peer, why)

    def _ended(self, name: str, peer: _Peer, why: str | None) -> None:
        """Note that a connection has ended, and report the peer if that was not on purpose."""
        with self._changed:
            self._changed.notify_all()
            if self._closing or peer.gone or peer.ending:
                return
            peer.left |= why is None
            if peer.left or why is None:
                return
            peer.ending = True
        # In a thread of its own, so that the connection's thread can end whatever the user's callback does.
        self._threads.start(functools.partial(self._report, name, peer, why))

    def _report(self, name: str, peer: _Peer, why: str) -> None:
        """Report a peer as lost, after the frames that are still under way from it."""
        with self._changed:
            self._changed.wait_for(lambda: not peer.incoming or peer.gone or self._closing, GRACE_S)
            if peer.gone or self._closing:
                return
        self._cut(name, f"{self.name} has lost it")
        assert self._callbacks is not None
        try:
            self._callbacks[1](name, why)
        except Exception:
            _log.exception("%s: the handling of the loss of %s failed", self.name, name)

    def _cut(self, name: str, why: str) -> None:
        """End all connections with a peer at once, and refuse new ones."""
        with self._changed:
            peer = self._peers.setdefault(name, _Peer())
            peer.gone = peer.gone or why
            self._changed.notify_all()
            connections = peer.connections()
        for connection in connections:
            connection.abort()

    def _connections(self) -> list[Outgoing | Incoming]:
        with self._changed:
            return [connection for peer in self._peers.values() for connection in peer.connections()]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _settle(connection: socket.socket) -> None:
    """Let a connection wait as long as it takes, and send small frames at once."""
    connection.settimeout(None)
    with contextlib.suppress(OSError):  # only slower without
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
