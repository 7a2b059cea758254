"""The server's endpoint in a federation: the head by TCP, commands by the code that runs the rounds [X]."""

from __future__ import annotations

import threading
from collections.abc import Callable

from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.role import LAUNCHER, SERVER, control_unit_name
from collapipe_env.execution.transport import Channel, OnFrame, OnLost
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint

JOIN, WELCOME = "join", "welcome"
"""Kinds of frames by which a control unit says where it listens, and the server confirms it."""

TakeFrame = Callable[[str, Frame], None]
"""Called with the name of a peer, and a frame."""


def visitor_name(cluster: int, round: int) -> str:
    """Return the name of a control unit's connection for one round.

    Flower may start a new process for every message, and a name belongs to one process.

    Args:
        cluster: Cluster, from 0.
        round: Round, from 0.
    """
    return f"{control_unit_name(cluster)}r{round}"


class HeadEndpoint:
    """Endpoint of the edge server in a federation.

    The server believes that it talks to control units ``c0``, ``c1`` and so on. In fact each of them connects
    for one round, under a name for that round.

    Attributes:
        name: Name of the server.

    Args:
        inner: Connections with control units.
        clusters: Number of clusters.
        take: Called with the server's frames for the launcher, and with commands for control units.
        ask: Called with a control unit's requests for the launcher.
    """

    def __init__(self, inner: TcpEndpoint, clusters: int, take: TakeFrame, ask: TakeFrame) -> None:
        self.name = SERVER
        self._inner, self._take, self._ask = inner, take, ask
        self._clusters = clusters
        self._round = -1
        self._visitors: dict[str, str] = {}
        self._lock = threading.Lock()
        self._beside = [0, 0]

    @property
    def address(self) -> Address:
        """Host and port at which control units join."""
        return self._inner.address

    def begin(self, round: int) -> None:
        """From now on, welcome the control units of a round and nobody else."""
        with self._lock:
            self._round = round
            self._visitors = {visitor_name(n, round): control_unit_name(n) for n in range(self._clusters)}

    def take_beside(self) -> tuple[int, int]:
        """Return the bytes of arrays sent to control units and received since the last call."""
        with self._lock:
            sent, received = self._beside
            self._beside = [0, 0]
            return sent, received

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a control unit, or hand it to the code that runs the rounds."""
        if frame.kind == "failed":
            self._drop_all()
        if to == LAUNCHER or frame.kind == "round":
            self._take(to, frame)
            return
        with self._lock:
            visitor = next(visitor for visitor, known in self._visitors.items() if known == to)
            self._beside[0] += _size(frame)
        self._inner.send(visitor, frame, channel)

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Start to pass on frames and losses of control units."""

        def frame_of(visitor: str, frame: Frame) -> None:
            with self._lock:
                known = self._visitors.get(visitor)
                self._beside[1] += _size(frame) if known else 0
            if known is None:  # of a round that is over
                return
            if frame.kind == JOIN:
                self._inner.connect({visitor: (str(frame.meta["host"]), frame.meta["port"])})
                self._inner.send(visitor, Frame(WELCOME, Tag(self._round)))
            elif frame.kind == "lost":
                self._ask(known, frame)
            else:
                on_frame(known, frame)

        def lost(visitor: str, why: str) -> None:
            with self._lock:
                known = self._visitors.get(visitor)
            if known is not None:
                on_lost(known, why)

        self._inner.listen(frame_of, lost)

    def drop(self, peer: str) -> None:
        """Cut all connections with a control unit."""
        for visitor, known in list(self._visitors.items()):
            if known == peer:
                self._inner.drop(visitor)

    def _drop_all(self) -> None:
        """Cut all connections: a goodbye would leave control units waiting for a server that has failed."""
        for visitor in list(self._visitors):
            self._inner.drop(visitor)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


def _size(frame: Frame) -> int:
    return sum(array.nbytes for array in frame.arrays.values())
