"""Round of a cluster in one process: its control unit and its devices as threads, the head by TCP [X]."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from collapipe_env.errors import CollaPipeError
from collapipe_env.execution.flower.frame_records import remaining_moments, without_moments
from collapipe_env.execution.flower.head_endpoint import JOIN, WELCOME, visitor_name
from collapipe_env.execution.frames import Frame, FrameError
from collapipe_env.execution.joining import ExecutionError, HeldEndpoint, make_role
from collapipe_env.execution.parts import Arrays
from collapipe_env.execution.role import LAUNCHER, SERVER, Role, control_unit_name, node_name
from collapipe_env.execution.transport import Channel, OnFrame, OnLost
from collapipe_env.execution.transport.in_process import InProcessEndpoint, InProcessHub
from collapipe_env.execution.transport.tcp import TcpEndpoint

PATIENCE_S = 600.0
"""Longest wait for a round [s]."""
_WELCOME_S = 60.0
_ANSWERS = ("update", "failed")
_FIELDS = (
    "cluster", "script", "rates", "machine_begins", "skipped", "names", "faults", "lost_moments", "head",
    "scenario", "generator",
)  # fmt: skip
"""Meta data of a command."""


class _VisitorEndpoint:
    """Endpoint of a control unit: devices in this process, the head by TCP, updates to the caller."""

    def __init__(
        self, head: HeldEndpoint, devices: InProcessEndpoint, answers: queue.SimpleQueue[Frame]
    ) -> None:
        self.name = devices.name
        self._head, self._devices, self._answers = head, devices, answers

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        if frame.kind in _ANSWERS and to in (SERVER, LAUNCHER):
            self._answers.put(frame)
        elif to in (SERVER, LAUNCHER):
            self._head.send(SERVER, frame, channel)
        else:
            self._devices.send(to, frame, channel)

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        self._devices.listen(on_frame, on_lost)
        self._head.listen(on_frame, on_lost)

    def drop(self, peer: str) -> None:
        (self._head if peer == SERVER else self._devices).drop(peer)

    def close(self) -> None:
        self._devices.close()
        self._head.close()


def play_cluster(
    command: Frame,
    moments: Mapping[str, np.ndarray[Any, Any]],
    *,
    cluster: int,
    token: str = "",
    bind: str = "127.0.0.1",
    patience: float = PATIENCE_S,
) -> tuple[Frame, Arrays]:
    """Play a round of a cluster.

    Everything is built anew from the command, so any process that has the scenario's data can play it.

    Args:
        command: The round's command, from :meth:`FederatedRounds.begin_round`.
        moments: Optimisers' memory after the cluster's last round; empty before the first.
        cluster: The cluster, from 0.
        token: Secret of the server and of control units.
        bind: Host to listen at, by which the server reaches this process.
        patience: Longest wait for the round [s].

    Returns:
        The update without moments, and the moments to keep for the cluster's next round.

    Raises:
        ExecutionError: If the server does not answer or is lost, or a role fails.
        FrameError: If the command lacks a field, or is for another cluster.
    """
    if lacking := [name for name in _FIELDS if name not in command.meta]:
        raise FrameError(
            f"the command of round {command.tag.round} for cluster {cluster} lacks {', '.join(lacking)}: "
            "install the same release everywhere"
        )
    if command.meta["cluster"] != cluster:
        raise FrameError(
            f"this client is cluster {cluster}, and the command is for {command.meta['cluster']}: "
            "start one SuperNode a cluster, each with its own number"
        )
    kept = remaining_moments(moments, map(str, command.meta["lost_moments"]))
    answers: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    hub, name = InProcessHub(), control_unit_name(cluster)
    launcher = hub.endpoint(LAUNCHER)
    head = HeldEndpoint(TcpEndpoint(visitor_name(cluster, command.tag.round), (bind, 0), token))
    roles: list[Role] = []
    threads: list[threading.Thread] = []
    try:
        _join(head, command)
        spec = {**command.meta, "clock": "virtual", "scale": 1.0}
        control_unit = make_role(name, _VisitorEndpoint(head, hub.endpoint(name), answers), spec)
        roles.append(control_unit)
        for k in sorted(map(int, command.meta["names"])):
            device = node_name(cluster, k)
            roles.append(make_role(device, hub.endpoint(device), spec, die=_nothing))
        launcher.listen(lambda _, frame: answers.put(frame), _ignored)
        for role in roles:
            role.begin()
            threads.append(threading.Thread(target=_played, args=(role,), name=role.name, daemon=True))
            threads[-1].start()
        whole = {**command.arrays, **kept}
        control_unit.on_frame(SERVER, Frame("round", command.tag, command.at_s, command.meta, whole))
        try:
            answer = answers.get(timeout=patience)
        except queue.Empty:
            raise ExecutionError(
                f"cluster {cluster} has not finished round {command.tag.round} after {patience:g} s: is it "
                "too large for this machine?"
            ) from None
        if answer.kind != "update":
            raise ExecutionError(f"cluster {cluster} cannot continue: {answer.meta['why']}")
        for role in roles:
            role.on_frame(LAUNCHER, Frame("stop"))
        for thread in threads:
            thread.join(10.0)
    except BaseException:
        for role in roles:
            role.cannot_go_on(LAUNCHER, "the round has failed")
        raise
    finally:
        hub.close()
        head.close()
    update, after = without_moments(answer)
    return update, kept if answer.meta["dropped"] else after


def _join(head: HeldEndpoint, command: Frame) -> None:
    """Tell the server where this process listens, and wait for its answer."""
    to, port = command.meta["head"]
    head.connect({SERVER: (str(to), port)})
    own_host, own_port = head.address
    head.send(SERVER, Frame(JOIN, command.tag, meta={"host": own_host, "port": own_port}))
    try:
        head.wait(WELCOME, _WELCOME_S)
    except CollaPipeError as error:
        raise ExecutionError(f"the server's head at {to}:{port} cannot be reached: {error}") from None


def _played(role: Role) -> None:
    """Play a role; a failure has already been reported to the caller, who waits for the answer."""
    try:
        role.run()
    except Exception:
        return


def _nothing() -> None:
    """Do nothing: a device that fails is a thread here, which ends by itself."""


def _ignored(*_: object) -> None:
    """Ignore lost peers: the launcher's endpoint here only collects answers."""
