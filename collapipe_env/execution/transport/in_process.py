"""Transport within one process: threads instead of processes, for tests and for inspection [X].

Every frame is encoded and decoded as for other processes, and endpoints behave as those of TCP do, losses
included.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from dataclasses import dataclass, field

from collapipe_env.execution.frames import LIMITS, Frame, Limits, decode, encode
from collapipe_env.execution.transport import (
    Channel,
    OnFrame,
    OnLost,
    TransportError,
    channel_of,
    require_name,
    require_sendable,
)
from collapipe_env.ground.errors import nearest_name, reason, shown

_STUCK_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _End:
    """End of a lane: its reason, or ``None`` for a goodbye."""

    why: str | None


@dataclass(eq=False)
class _Lane:
    """Connection from one sender to one receiver on one channel."""

    sender: InProcessEndpoint
    receiver: InProcessEndpoint
    items: queue.SimpleQueue[bytes | _End] = field(default_factory=queue.SimpleQueue)
    cut: bool = False
    """Whether frames that are still on their way are thrown away."""


class InProcessHub:
    """Several endpoints in one process, which reach each other by their names."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        """Make a hub without endpoints.

        Args:
            limits: Sizes of frames.
        """
        self.limits = limits
        self.changed = threading.RLock()
        self.endpoints: dict[str, InProcessEndpoint] = {}

    def endpoint(self, name: str) -> InProcessEndpoint:
        """Return a new endpoint.

        Raises:
            TransportError: If the name is invalid, or is taken.
        """
        require_name(name)
        with self.changed:
            if name in self.endpoints:
                raise TransportError(f"the name {name} is taken: give each endpoint its own")
            self.endpoints[name] = InProcessEndpoint(name, self)
            return self.endpoints[name]

    def kill(self, name: str) -> None:
        """End an endpoint as if its process had been killed: no goodbye, no frame sent or passed on any more.

        Frames that it had sent before still arrive, then its peers report it as lost.

        Raises:
            TransportError: If there is no such endpoint.
        """
        with self.changed:
            self.known(name).end("closed the connection")

    def close(self) -> None:
        """Close all endpoints."""
        for endpoint in list(self.endpoints.values()):
            endpoint.close()

    def known(self, name: str) -> InProcessEndpoint:
        """Return an endpoint by its name.

        Raises:
            TransportError: If there is no such endpoint.
        """
        if name not in self.endpoints:
            raise TransportError(f"there is no process {shown(name)}: {nearest_name(name, self.endpoints)}")
        return self.endpoints[name]


class InProcessEndpoint:
    """One end of a hub; see :class:`~collapipe_env.execution.transport.Endpoint`.

    Attributes:
        name: Its name.
    """

    def __init__(self, name: str, hub: InProcessHub) -> None:
        self.name = name
        self._hub = hub
        self._callbacks: tuple[OnFrame, OnLost] | None = None
        self._lanes: dict[tuple[str, Channel], _Lane] = {}
        """Lanes to peers."""
        self._open: list[_Lane] = []
        """Lanes from peers that have not ended."""
        self._gone: set[str] = set()
        """Peers that were dropped or lost, or have left."""
        self._threads: list[threading.Thread] = []
        self._over = False

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Start to pass on frames and losses; see the protocol."""
        with self._hub.changed:
            if self._callbacks is not None:
                raise TransportError(f"{self.name} listens already: call listen() once")
            self._callbacks = (on_frame, on_lost)
            for lane in self._open:
                self._serve(lane)

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a peer, without waiting until it arrives; see the protocol."""
        require_sendable(self.name, to, frame)
        content = b"".join(encode(frame, self._hub.limits))
        way = channel or channel_of(frame)
        with self._hub.changed:
            receiver = self._hub.known(to)
            if self._callbacks is None:
                raise TransportError(f"{self.name} sends before it listens: call listen() first")
            if self._over or to in self._gone:
                return
            lane = self._lanes.get((to, way))
            if lane is None:
                lane = self._lanes[to, way] = _Lane(self, receiver)
                if receiver._over or self.name in receiver._gone:
                    self._lose(to, "no connection: the process has ended or refuses this one")
                    return
                receiver._open.append(lane)
                if receiver._callbacks is not None:
                    receiver._serve(lane)
            lane.items.put(content)

    def drop(self, peer: str) -> None:
        """Cut all connections with a peer, for good; see the protocol."""
        require_name(peer)
        with self._hub.changed:
            self._gone.add(peer)
            self._cut(peer)

    def close(self) -> None:
        """Send queued frames, say goodbye and end all threads; see the protocol."""
        self.end(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_STUCK_S)

    def end(self, why: str | None) -> None:
        """End all lanes, those to peers after the frames that are still to be sent.

        Args:
            why: Reason that the peers are told; ``None`` for a goodbye.
        """
        with self._hub.changed:
            if self._over:
                return
            self._over = True
            for lane in self._lanes.values():
                lane.items.put(_End(why))
            for lane in self._open:
                lane.cut = True
                lane.items.put(_End(why))

    def _cut(self, peer: str) -> None:
        """End all lanes to and from a peer at once."""
        lanes = [lane for lane in self._open if lane.sender.name == peer]
        lanes += [lane for (to, _), lane in self._lanes.items() if to == peer]
        for lane in lanes:
            lane.cut = True
            lane.items.put(_End("closed the connection"))

    def _serve(self, lane: _Lane) -> None:
        self._start(functools.partial(self._deliver, lane))

    def _start(self, work: functools.partial[None]) -> None:
        thread = threading.Thread(target=work, name=f"{self.name}-transport", daemon=True)
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        thread.start()

    def _deliver(self, lane: _Lane) -> None:
        """Pass on the frames of a lane until it ends."""
        assert self._callbacks is not None
        sender = lane.sender
        while not isinstance(item := lane.items.get(), _End):
            if lane.cut or self._over:
                continue
            frame = decode(bytearray(item), self._hub.limits)
            try:
                self._callbacks[0](sender.name, frame)
            except Exception as error:
                _log.exception(
                    "%s: the handling of a frame %r from %s failed", self.name, frame.kind, sender.name
                )
                with self._hub.changed:
                    self._lose(sender.name, f"its frame {frame.kind!r} could not be handled: {reason(error)}")
                    self._cut(sender.name)
        with self._hub.changed:
            self._open = [other for other in self._open if other is not lane]
            sender._ended(self.name, item.why)
            self._ended(sender.name, item.why)

    def _ended(self, peer: str, why: str | None) -> None:
        """Note that a lane to or from a peer has ended; report the peer after the last lane from it."""
        if why is None:
            self._gone.add(peer)
        elif not any(lane.sender.name == peer for lane in self._open):
            self._lose(peer, why)

    def _lose(self, peer: str, why: str) -> None:
        """Report a peer as lost, once."""
        if self._over or peer in self._gone or self._callbacks is None:
            return
        self._gone.add(peer)
        self._start(functools.partial(self._report, peer, why))

    def _report(self, peer: str, why: str) -> None:
        assert self._callbacks is not None
        try:
            self._callbacks[1](peer, why)
        except Exception:
            _log.exception("%s: the handling of the loss of %s failed", self.name, peer)
