"""Joining an execution: a process tells the launcher its name, receives its role, and plays it."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Mapping
from typing import Any

from collapipe_env.execution.clock import Machine, make_clock, monotonic
from collapipe_env.execution.control_unit import ControlUnit
from collapipe_env.execution.device import Device
from collapipe_env.execution.edge_server import EdgeServer
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.heartbeats import PATIENT_BEAT_S, PATIENT_MISSES
from collapipe_env.execution.recoveries import recovery_terms
from collapipe_env.execution.role import (
    LAUNCHER,
    SERVER,
    PeerGoneError,
    Role,
    Stopped,
    control_unit_name,
    learn_addresses,
    node_name,
    node_of,
)
from collapipe_env.execution.setting import DeviceSetting, TrainingSetting, require_executable
from collapipe_env.execution.transport import Channel, Endpoint, OnFrame, OnLost
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.state_trees import generator_of
from collapipe_env.physics.recovery import RecoveryTerms
from collapipe_env.scenario import Scenario, load_scenario

ANSWER_S = 120.0
"""Longest wait for the launcher's answer to a process that joins [s]."""
LONGEST_S = 86_400.0
"""Longest wait for others to join [s]."""


class ExecutionError(CollaPipeError):
    """An execution cannot begin or continue."""


def is_device(name: str) -> bool:
    """Whether a name is a device's, rather than the server's or a control unit's."""
    return name[:1] == "c" and "d" in name


class SilenceError(ExecutionError):
    """Nothing was heard for too long."""


class HeldEndpoint:
    """An endpoint that listens at once, and keeps what arrives until somebody takes it.

    Attributes:
        name: Name of this process.
    """

    def __init__(self, inner: TcpEndpoint) -> None:
        self.name = inner.name
        self._inner = inner
        self._frames: queue.SimpleQueue[tuple[str, Frame | str]] = queue.SimpleQueue()
        self._taker: tuple[OnFrame, OnLost] | None = None
        self._lock = threading.Lock()
        inner.listen(self._on_frame, self._on_lost)

    @property
    def address(self) -> Address:
        """Host and port at which it listens."""
        return self._inner.address

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Learn the addresses of peers."""
        self._inner.connect(directory)

    def wait(self, kind: str, timeout: float) -> Frame:
        """Wait for a frame of a kind, before :meth:`listen` is called.

        Raises:
            Stopped: If the launcher has already said stop.
            PeerGoneError: If the launcher is gone.
            ExecutionError: If the launcher refuses this role, another frame has come, or none in time.
        """
        try:
            sender, item = self._frames.get(timeout=timeout)
        except queue.Empty:
            raise ExecutionError(
                f"{self.name} has waited {timeout:g} s for {kind!r}: is the launcher still there?"
            ) from None
        if isinstance(item, str):
            raise PeerGoneError(f"{self.name} could not join {sender} ({item})")
        if item.kind == "stop":
            raise Stopped
        if item.kind == "refused":
            raise ExecutionError(f"{sender} refuses: {item.meta['why']}")
        if item.kind != kind:
            raise ExecutionError(f"{self.name} was sent {item.kind!r} by {sender}, expected {kind!r}")
        return item

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Hand over what has been kept, and what arrives from now on."""
        with self._lock:
            while not self._frames.empty():
                sender, item = self._frames.get()
                if isinstance(item, str):
                    on_lost(sender, item)
                else:
                    on_frame(sender, item)
            self._taker = on_frame, on_lost

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a peer."""
        self._inner.send(to, frame, channel)

    def drop(self, peer: str) -> None:
        """Cut all connections with a peer."""
        self._inner.drop(peer)

    def close(self) -> None:
        """Close everything."""
        self._inner.close()

    def _on_frame(self, sender: str, frame: Frame) -> None:
        with self._lock:
            if self._taker is None:
                self._frames.put((sender, frame))
                return
        self._taker[0](sender, frame)

    def _on_lost(self, peer: str, why: str) -> None:
        with self._lock:
            if self._taker is None:
                self._frames.put((peer, why))
                return
        self._taker[1](peer, why)


def role_names(scenario: Scenario) -> list[str]:
    """Return the names of all processes of a scenario: the server, control units and devices."""
    names = [SERVER]
    for n, devices in enumerate(scenario.cluster.devices_per_cluster):
        names += [control_unit_name(n), *(node_name(n, k) for k in range(1, devices + 1))]
    return names


def end_process() -> None:
    """End this process as if it were lost: at once, and without a message."""
    os.kill(os.getpid(), signal.SIGKILL)


def make_role(
    name: str,
    endpoint: Endpoint,
    spec: Mapping[str, Any],
    state: bytes | None = None,
    machine: Machine = monotonic,
) -> Role:
    """Build a role.

    Args:
        endpoint: Its connection to the others.
        spec: The launcher's settings: scenario, generator, clock and scale.
        state: State of the training from which the server continues; ``None`` at the beginning.
        machine: Reads the machine's monotonic clock [s].

    Raises:
        ExecutionError: If there is no such role in the scenario.
    """
    scenario = load_scenario(spec["scenario"])
    require_executable(scenario)
    # The name of a device that was brought back ends in a dot and a number.
    known = name.partition(".")[0]
    # Under the machine's own clock, only devices may be slower than the machine.
    slowed = spec["clock"] != "none" or is_device(known)
    scale = float(spec["scale"]) if slowed else 1.0
    clock = make_clock(str(spec["clock"]), scale, machine)
    if known not in role_names(scenario):
        raise ExecutionError(f"{name} is not a role of scenario {scenario.name!r}: say c0 or c0d0")
    if is_device(known):
        cluster, number = node_of(known)
        setting = DeviceSetting.of(scenario)
        return Device(
            endpoint,
            clock,
            cluster=cluster,
            number=number,
            build_block=setting.build_block,
            width=setting.architecture.width,
            learning=setting.learning,
            die=end_process,
        )

    def rng() -> Any:
        return generator_of(spec["generator"], "generator")

    training = TrainingSetting.of(scenario, rng)
    if name == SERVER:
        if state is None:
            federation = training.federation()
        else:
            training, federation = training.restored(state)
        return EdgeServer(
            endpoint,
            clock,
            setup=training.setup,
            federation=federation,
            evaluate=training.evaluate,
            save=training.save,
        )
    return ControlUnit(
        endpoint, clock, cluster=int(name[1:]), setup=training.setup, beginning=training.beginning()
    )


def _received_state(endpoint: HeldEndpoint, parts: int) -> bytes | None:
    """Return the state of the training, which the launcher sends in parts; ``None`` if there are none."""
    if not parts:
        return None
    return b"".join(endpoint.wait("state", ANSWER_S).arrays["content"].tobytes() for _ in range(parts))


def _keep_in_touch(role: Role, terms: RecoveryTerms, clock: str) -> None:
    """Send heartbeats: devices to their control units, control units and the server to the launcher."""
    if clock == "virtual":  # nobody is late under it, however busy the machine is
        terms = terms._replace(heartbeat_s=PATIENT_BEAT_S, misses=PATIENT_MISSES)
    if isinstance(role, Device):
        role.send_heartbeats(control_unit_name(role.cluster), terms.heartbeat_s)
        return
    role.send_heartbeats(LAUNCHER, PATIENT_BEAT_S)
    if isinstance(role, ControlUnit):
        role.expect_heartbeats(terms)


def play_role(
    name: str,
    launcher: Address,
    token: str,
    bind: str = "127.0.0.1",
    machine: Machine = monotonic,
) -> None:
    """Join an execution, and play a role until the launcher says stop.

    Args:
        name: Name of the role.
        launcher: Host and port of the launcher.
        token: Secret that all processes share.
        bind: Host to listen at.
        machine: Reads the machine's monotonic clock [s].
    """
    import torch

    torch.set_num_threads(1)
    endpoint = HeldEndpoint(TcpEndpoint(name, (bind, 0), token))
    polite = True
    try:
        endpoint.connect({LAUNCHER: launcher})
        host, port = endpoint.address
        endpoint.send(LAUNCHER, Frame("join", meta={"host": host, "port": port}))
        spec = endpoint.wait("spec", ANSWER_S)
        state = _received_state(endpoint, int(spec.meta.get("state_parts", 0)))
        try:
            role = make_role(name, endpoint, spec.meta, state, machine)
            role.warm_up()
        except CollaPipeError as error:
            endpoint.send(LAUNCHER, Frame("failed", meta={"why": str(error)[:2000]}))
            raise
        endpoint.send(LAUNCHER, Frame("ready"))
        # Others may join much later; if the launcher gives up, the connection ends.
        learn_addresses(endpoint, endpoint.wait("directory", LONGEST_S))
        role.begin()
        _keep_in_touch(role, recovery_terms(load_scenario(spec.meta["scenario"])), str(spec.meta["clock"]))
        role.run()
    except Stopped:  # before it could begin
        pass
    except KeyboardInterrupt:
        polite = False  # a goodbye would say that it was told to end
        raise
    finally:
        if polite:
            endpoint.close()
