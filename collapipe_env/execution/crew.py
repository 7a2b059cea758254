"""Crew of an execution: starts processes or lets them join, brings lost ones back, and stops them all."""

from __future__ import annotations

import os
import queue
import secrets
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from collapipe_env.execution.edge_server import STATE_PART
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.heartbeats import PATIENT_S, Attendance
from collapipe_env.execution.joining import (
    LONGEST_S,
    ExecutionError,
    HeldEndpoint,
    SilenceError,
    is_device,
    role_names,
)
from collapipe_env.execution.local_processes import LocalProcesses
from collapipe_env.execution.role import LAUNCHER, SERVER, node_name
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint
from collapipe_env.scenario import Scenario

PATIENCE_S = 120.0
"""Longest wait for processes to begin [s]."""


class Crew(ABC):
    """Processes of a scenario, each of which plays a role.

    Attributes:
        token: Secret that all processes share.

    Args:
        bind: Host and port to listen at.
        token: The secret; a new one if ``None``.
    """

    def __init__(self, scenario: Scenario, bind: Address, token: str | None) -> None:
        self._scenario = scenario
        self.token = secrets.token_hex(32) if token is None else token
        self._addresses: dict[str, Address] = {}
        self._events: queue.SimpleQueue[tuple[str, Frame | str]] = queue.SimpleQueue()
        self._endpoint = HeldEndpoint(TcpEndpoint(LAUNCHER, bind, self.token))
        self._attendance = Attendance(PATIENT_S)
        self._endpoint.listen(self._on_frame, lambda peer, why: self._events.put((peer, why)))
        self._local: LocalProcesses | None = None
        self._names = [
            {k: node_name(n, k) for k in range(1, devices + 1)}
            for n, devices in enumerate(scenario.cluster.devices_per_cluster)
        ]
        self._gone: set[str] = set()
        self._round = 0
        self._began, self._lives = False, 0
        self._begins_with: bytes | None = None

    def _on_frame(self, sender: str, frame: Frame) -> None:
        if frame.kind == "heartbeat":
            self._attendance.hear(sender)
        else:
            # Exchanged times are read here, not when somebody looks at the frame.
            self._events.put((sender, replace(frame, here_s=time.monotonic())))

    @property
    def address(self) -> Address:
        """Host and port at which processes can join."""
        return self._endpoint.address

    @property
    def processes(self) -> Mapping[str, Any]:
        """Processes that were started here, by role."""
        return {} if self._local is None else self._local.running

    @property
    def one_machine(self) -> bool:
        """Whether all processes are known to be on this machine, and so have one monotonic clock."""
        return self._local is not None

    @abstractmethod
    def _spec(self) -> dict[str, Any]:
        """Terms of the execution, for a process that joins."""

    def _send_spec(self, name: str) -> None:
        """Tell a joining process its role; the server continues from a stored state."""
        parts: list[bytes] = []
        if name == SERVER and self._begins_with is not None:
            whole = self._begins_with
            parts = [whole[start : start + STATE_PART] for start in range(0, len(whole), STATE_PART)]
        self._endpoint.send(name, Frame("spec", meta={**self._spec(), "state_parts": len(parts)}))
        for part in parts:
            content = np.frombuffer(part, dtype=np.uint8)
            self._endpoint.send(name, Frame("state", arrays={"content": content}))
        if parts:
            self._begins_with = None

    def start_local(self) -> None:
        """Start a process for each role on this machine, and wait until all are ready.

        Raises:
            ExecutionError: If a process ends or does not answer.
        """
        self._local = LocalProcesses(self.address, self.token)
        names = role_names(self._scenario)
        for name in names:
            self._local.start(name)
        self.wait_until_ready(names)
        self._begin()

    def wait_for_others(self, patience: float = LONGEST_S, tell: Callable[[str], None] | None = None) -> None:
        """Wait until a process for each role has joined, from this machine or others.

        Args:
            patience: Longest wait [s].
            tell: Called with who has joined and who is still awaited.

        Raises:
            ExecutionError: If a role is missing after that time, or is lost.
        """
        self.wait_until_ready(role_names(self._scenario), patience, tell)
        self._begin()

    def _begin(self) -> None:
        """From now on, allow devices to be lost, and expect heartbeats from all other roles."""
        self._began = True
        self._attendance.expect({name for name in role_names(self._scenario) if not is_device(name)})

    def wait_until_ready(
        self, names: Sequence[str], patience: float = PATIENCE_S, tell: Callable[[str], None] | None = None
    ) -> None:
        """Let processes join, tell each its role, and tell all of them the addresses of the others.

        Devices that are lost between two rounds are noted and not awaited.

        Args:
            names: Awaited processes.
            patience: Longest wait [s].
            tell: Called with who has joined and who is still awaited.

        Raises:
            ExecutionError: If a role is missing after that time, or is lost.
        """
        addresses = self._addresses
        ready: set[str] = set()
        awaited = set(names)
        deadline = time.monotonic() + patience
        while ready < awaited:
            sender, item = self._next(deadline, f"{', '.join(sorted(awaited - ready))} to be ready")
            if isinstance(item, str) and sender not in (*names, *addresses):
                continue  # a device that is being replaced
            if isinstance(item, str) and self._may_be_lost(sender):
                awaited.discard(sender)
                ready.discard(sender)
                continue
            if isinstance(item, str):
                raise ExecutionError(f"{sender} was lost before it was ready: {item}")
            if item.kind == "join":
                address = str(item.meta["host"]), int(item.meta["port"])
                # Connected first: if Ctrl-C comes next, every process in addresses is told to stop.
                self._endpoint.connect({sender: address})
                if sender in names:
                    addresses[sender] = address
                    self._send_spec(sender)
                left = ", ".join(name for name in names if name not in addresses)
                still = f"; still to join: {left}" if left else ""
                if sender not in names:
                    why = f"{sender} is not expected{still}"
                    self._endpoint.send(sender, Frame("refused", meta={"why": why}))
                elif tell is not None:
                    tell(f"{sender} has joined{still}")
            elif item.kind == "failed":
                raise ExecutionError(f"{sender} cannot begin: {item.meta['why']}")
            elif item.kind == "ready" and sender in names:
                ready.add(sender)
        told = Tag(self._round)
        for name in addresses:
            # They know where the launcher is. Its own address may be one of all networks, such as 0.0.0.0.
            others = {n: list(a) for n, a in addresses.items() if n != name}
            self._endpoint.send(name, Frame("directory", told, meta={"directory": others}))
        connected: set[str] = set()
        while not connected >= set(addresses):
            sender, item = self._next(deadline, f"{', '.join(sorted(set(addresses) - connected))} to connect")
            if isinstance(item, str) and (sender not in addresses or self._may_be_lost(sender)):
                continue
            if isinstance(item, str):
                raise ExecutionError(f"{sender} was lost before the round: {item}")
            if item.kind == "connected":
                connected.add(sender)

    def _may_be_lost(self, name: str) -> bool:
        """Note the loss of a device after the first start: it is replaced before the next round."""
        if not self._began or not is_device(name):
            return False
        self._gone.add(name)
        self._addresses.pop(name, None)
        return True

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process of a role.

        Args:
            name: The role's current name, see :attr:`names`.
            number: The signal.
        """
        os.kill(self.processes[name].pid, number)

    @property
    def names(self) -> list[dict[int, str]]:
        """Current name of each device of each cluster; a device that was brought back has a new name."""
        return self._names

    def _bring_back(self) -> bool:
        """Restart devices that have failed; the simulator says which of them have work.

        Returns:
            Whether there were any; others may have failed in the meantime.
        """
        again, local = [], self._local
        for n, names in enumerate(self._names):
            for k, name in names.items():
                if name in self._gone or (local is not None and local.ended(name)):
                    self._gone.discard(name)
                    if local is not None:
                        local.end(name)
                    self._addresses.pop(name, None)
                    self._lives += 1
                    names[k] = f"{node_name(n, k)}.{self._lives}"
                    again.append(names[k])
        if again and local is None:
            self._ask_for(again)
        elif local is not None and again:
            for name in again:
                local.start(name)
            self.wait_until_ready(again)
        return bool(again)

    def _ask_for(self, names: Sequence[str]) -> None:
        """Ask the user to restart devices that were not started here, and wait for them.

        Args:
            names: New names of the devices.
        """
        lost = "a device was lost; restart it" if len(names) == 1 else "devices were lost; restart them"
        roles = ", --role ".join(names)
        print(f"{lost} with collapipe execute --join and --role {roles}", flush=True)
        self.wait_until_ready(names, LONGEST_S)

    def close(self) -> None:
        """Stop all processes; those that do not end are killed."""
        for name in self._addresses:
            if name not in self._gone:
                self._endpoint.send(name, Frame("stop"))
        # Processes that have not joined yet cannot be told to stop.
        for name in self.processes.keys() - self._addresses.keys():
            self.processes[name].kill()
        self._endpoint.close()
        if self._local is not None:
            self._local.end_all(self._gone)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _counts(self, name: str) -> bool:
        """Whether a process's failure matters; it does not if the process was given up and has revived."""
        devices = {device for names in self._names for device in names.values()}
        return name not in self._gone and (name in devices or not is_device(name))

    def _next(self, deadline: float, what: str) -> tuple[str, Frame | str]:
        """Wait for news, and watch for processes that end without a message."""
        while time.monotonic() < deadline:
            try:
                sender, item = self._events.get(timeout=0.2)
                if not isinstance(item, Frame) or item.kind != "failed" or self._counts(sender):
                    return sender, item
            except queue.Empty:
                for name, process in self.processes.items():
                    if process.exitcode is not None and name not in self._gone:
                        self._gone.add(name)
                        return name, f"its process ended with exit code {process.exitcode}"
                for name in self._attendance.missing():
                    if name not in self._gone:
                        self._gone.add(name)
                        return name, f"no message from it for {PATIENT_S:g} s"
        raise SilenceError(f"no message came for too long while waiting for {what}")
