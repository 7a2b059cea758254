"""Transport over gloo: data by torch.distributed's process groups, everything else by TCP [X].

Each pair of processes that exchange data has its own group of two, made at first use: a lost process
therefore breaks only its own pairs, and the other pairs continue.
"""

from __future__ import annotations

import atexit
import functools
import logging
import threading
import weakref
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np
import torch.distributed as dist

from collapipe_env.errors import reason, shown
from collapipe_env.execution.frames import LIMITS, Frame, Limits
from collapipe_env.execution.transport import (
    Channel,
    Endpoint,
    OnFrame,
    OnLost,
    TransportError,
    channel_of,
    require_sendable,
)
from collapipe_env.execution.transport.gloo_pair import LINGER_S, Meeting, Pair, packed
from collapipe_env.execution.transport.tcp import Address
from collapipe_env.execution.transport.worker_threads import WorkerThreads

MEET = "gloo_address"
"""Kind of the frames by which the two sides of a pair find each other; this transport sends them itself."""
GRACE_S = 1.0
"""Time for which a lost peer's other connections may still bring frames that it had sent [s]."""
_STUCK_S = 5.0

_log = logging.getLogger(__name__)
_open: weakref.WeakSet[GlooEndpoint] = weakref.WeakSet()


def _cut_all() -> None:
    """Cut endpoints that nobody has closed: a thread that leaves gloo while Python ends would crash it."""
    for endpoint in list(_open):
        endpoint.cut_all()


atexit.register(_cut_all)


class Connecting(Endpoint, Protocol):
    """An endpoint that is told the addresses of its peers."""

    @property
    def address(self) -> Address:
        """Host and port at which it listens."""

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Take note of peers' addresses."""


class GlooEndpoint:
    """One process's end of gloo pairs with its peers.

    See :class:`~collapipe_env.execution.transport.Endpoint` for what its methods promise.

    Attributes:
        name: Name of this process.

    Args:
        control: TCP endpoint for the control channel, whose ``listen`` was not called yet. Gloo listens at
            the same host.
        by_tcp: Peers to which data also goes by TCP.
        limits: Sizes of frames, in both directions.

    Raises:
        TransportError: If this build of torch has no gloo.
    """

    def __init__(self, control: Connecting, by_tcp: Collection[str] = (), limits: Limits = LIMITS) -> None:
        if not (dist.is_available() and dist.is_gloo_available()):
            raise TransportError("torch was built without gloo here: use --transport tcp")
        self.name = control.name
        self._control, self._by_tcp, self._limits = control, frozenset(by_tcp), limits
        self._changed = threading.Condition()
        self._pairs: dict[str, Pair] = {}
        self._gone: set[str] = set()
        """Peers that were dropped or lost."""
        self._left: set[str] = set()
        self._failed: dict[str, str] = {}
        """Reasons for the end of pairs whose peers are still to be reported, by peer."""
        self._threads = WorkerThreads(self.name)
        self._callbacks: tuple[OnFrame, OnLost] | None = None
        self._gloo_device: Any = None
        self._closing = False
        _open.add(self)

    @property
    def address(self) -> Address:
        """Host and port at which the control channel listens."""
        return self._control.address

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Take note of peers' addresses; pairs are made as frames are sent."""
        self._control.connect(directory)

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Start to pass on frames and losses; see the protocol."""
        with self._changed:
            if self._callbacks is not None:
                raise TransportError(f"{self.name} listens already: call listen() once")
            self._callbacks = (on_frame, on_lost)
        self._control.listen(self._on_control, self._on_control_lost)

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a peer, without waiting until it arrives; see the protocol."""
        require_sendable(self.name, to, frame)
        if frame.kind == MEET:
            raise TransportError(f"the kind {MEET!r} is kept for transports: name the kind otherwise")
        if to in self._by_tcp or (channel or channel_of(frame)) == "control":
            self._control.send(to, frame, channel)
            return
        content = packed(frame, self._limits)  # a copy, so that the sender may change its arrays again
        if not self._over(to):
            self._pair(to, True).send(content)

    def drop(self, peer: str) -> None:
        """Cut all connections with a peer, for good; see the protocol."""
        self._control.drop(peer)
        self._cut(peer)

    def close(self) -> None:
        """Send queued frames, say goodbye and end all threads; see the protocol."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
            pairs = list(self._pairs.values())
        for pair in pairs:
            pair.finish()
        self._threads.join(LINGER_S)
        for pair in pairs:
            pair.cut()
        if not self._threads.join(_STUCK_S):
            _log.warning("%s: a thread is still busy with a frame or a peer that does not answer", self.name)
        self._control.close()
        with self._changed:
            self._pairs.clear()
            self._gloo_device = None
        _open.discard(self)

    def cut_all(self) -> None:
        """Cut the pairs with all peers, without a goodbye; for a process that ends without :meth:`close`."""
        with self._changed:
            self._closing = True
            pairs = list(self._pairs.values())
        for pair in pairs:
            pair.cut()
        self._threads.join(_STUCK_S)

    def _over(self, peer: str) -> bool:
        """Whether nothing is sent to a peer any more."""
        with self._changed:
            return self._closing or peer in self._gone or peer in self._left or peer in self._failed

    def _pair(self, peer: str, ask: bool) -> Pair:
        """Return the pair with a peer; make it now if there is none.

        Args:
            peer: The peer.
            ask: Whether to ask the peer for a new pair.
        """
        with self._changed:
            pair = self._pairs.get(peer)
            if pair is not None:
                return pair
            if ask:  # raises an error if there is no such peer
                self._tell(peer, "", b"")
            pair = self._pairs[peer] = Pair(
                (self.name, peer),
                Meeting(functools.partial(self._tell, peer)),
                self._device,
                functools.partial(self._hand_on, peer),
                functools.partial(self._pair_ended, peer),
                self._threads.start,
                self._limits,
            )
            return pair

    def _tell(self, peer: str, key: str, value: bytes) -> None:
        """Send a peer a key and its value for gloo."""
        arrays = {"value": np.frombuffer(value, np.uint8)}
        self._control.send(peer, Frame(MEET, meta={"key": key}, arrays=arrays), "control")

    def _device(self) -> Any:
        """Return gloo's device, which listens at the same host as the control channel."""
        with self._changed:
            if self._gloo_device is None:
                host = self._control.address[0]
                self._gloo_device = dist.ProcessGroupGloo.create_device(hostname=host)
            return self._gloo_device

    def _on_control(self, peer: str, frame: Frame) -> None:
        """Take a frame of the control channel."""
        if frame.kind != MEET:
            self._hand_on(peer, frame)
            return
        key = frame.meta.get("key")
        if not isinstance(key, str) or "value" not in frame.arrays:
            raise TransportError(f"its frame {MEET!r} holds {shown(dict(frame.meta))}: no address")
        if not self._over(peer):
            pair = self._pair(peer, False)
            if key:
                pair.meeting.hear(key, frame.arrays["value"].tobytes())

    def _hand_on(self, peer: str, frame: Frame) -> None:
        """Pass a frame to the user's callback."""
        assert self._callbacks is not None
        with self._changed:
            if self._closing or peer in self._gone:
                return
        try:
            self._callbacks[0](peer, frame)
        except Exception as error:
            _log.exception("%s: the handling of a frame %r from %s failed", self.name, frame.kind, peer)
            raise TransportError(f"its frame {frame.kind!r} could not be handled: {reason(error)}") from error

    def _on_control_lost(self, peer: str, why: str) -> None:
        """Note that a peer is gone; report it after the frames that its pair still brings."""
        with self._changed:
            pair = self._pairs.get(peer)
            if pair is not None:
                pair.meeting.end()
                self._changed.wait_for(lambda: pair.over or self._closing or peer in self._gone, GRACE_S)
            why = self._failed.get(peer, why)
        self._report(peer, why)

    def _pair_ended(self, peer: str, why: str | None) -> None:
        """Note that a pair has ended, and report the peer if that was not on purpose."""
        with self._changed:
            if why is None:
                self._left.add(peer)
            elif not self._closing and peer not in self._gone:
                self._failed[peer] = why
                self._threads.start(functools.partial(self._wait_for_control, peer, why))
            self._changed.notify_all()

    def _wait_for_control(self, peer: str, why: str) -> None:
        """Report a peer whose pair has ended, if the control channel does not do so soon."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or peer in self._gone, GRACE_S)
        self._report(peer, why)

    def _report(self, peer: str, why: str) -> None:
        """Report a peer as lost, once."""
        with self._changed:
            if self._closing or peer in self._gone:
                return
            said_goodbye = peer in self._left
        self.drop(peer)
        if said_goodbye:
            return
        assert self._callbacks is not None
        try:
            self._callbacks[1](peer, why)
        except Exception:
            _log.exception("%s: the handling of the loss of %s failed", self.name, peer)

    def _cut(self, peer: str) -> None:
        with self._changed:
            self._gone.add(peer)
            self._changed.notify_all()
            pair = self._pairs.get(peer)
        if pair is not None:
            pair.cut()
