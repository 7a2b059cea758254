"""Launcher: starts the processes of an execution, lets them play rounds, and ends them."""

from __future__ import annotations

import os
import queue
import secrets
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.execution.committed_rounds import Committed
from collapipe_env.execution.edge_server import STATE_PART
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.joining import ExecutionError, HeldEndpoint, is_device, role_names
from collapipe_env.execution.local_processes import LocalProcesses
from collapipe_env.execution.planned_rounds import PlannedRound, PlannedRounds
from collapipe_env.execution.recoveries import Recoveries
from collapipe_env.execution.role import LAUNCHER, SERVER, node_name
from collapipe_env.execution.script_reading import to_json
from collapipe_env.execution.setting import require_executable
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

LEAD_S = 0.5
"""Time from the launcher's command to the begin of a round by the wall clock [s], in which blocks move."""
LONG_S = 86_400.0
"""Longest wait for processes that somebody has to start by hand [s]."""
MOST_TRIES = 5
"""Times that devices are started anew before a round; those that are lost again then are lost in it."""
PATIENCE_S = 120.0
"""Longest wait for processes to begin [s]."""


class Failures(NamedTuple):
    """Failures that are asked for: cluster, device, and time since the round's begin [s] of each.

    Attributes:
        faults: Devices that fail by the virtual clock.
        kills: Devices whose processes are killed, by other clocks.
        hangs: Devices whose processes stop where they are, without a word.
    """

    faults: Sequence[tuple[int, int, float]] = ()
    kills: Sequence[tuple[int, int, float]] = ()
    hangs: Sequence[tuple[int, int, float]] = ()


NO_FAILURES = Failures()


class Launcher:
    """Processes of a scenario, and what they are asked to do.

    Args:
        scenario: The scenario.
        scheduler: Decides the rounds.
        seed: Seed of the episode.
        clock: ``virtual``, ``wall`` or ``none``.
        scale: Seconds of wall time for a priced second; by the clock ``none`` how many times slower than
            this machine devices compute.
        bind: Host and port to listen at.
        token: Secret that all processes share; a new one by default.
        committed: State to go on from, of the same scenario, scheduler and seed; ``None`` to begin.
        transport: How data go between the roles: ``tcp`` or ``gloo``.

    Raises:
        StateError: The state is not one of this run.
    """

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Scheduler,
        *,
        seed: int = 0,
        clock: str = "virtual",
        scale: float = 1.0,
        bind: Address = ("127.0.0.1", 0),
        token: str | None = None,
        committed: Committed | None = None,
        transport: str = "tcp",
    ) -> None:
        require_executable(scenario)
        self._scenario, self._transport = scenario, transport
        self.token = secrets.token_hex(32) if token is None else token
        self.rounds = PlannedRounds(scenario, scheduler, seed)
        self.scale, self._clock = scale, clock
        self._upcoming: PlannedRound | None = None
        self._virtual = clock == "virtual"
        self._addresses: dict[str, Address] = {}
        self._events: queue.SimpleQueue[tuple[str, Frame | str]] = queue.SimpleQueue()
        self._endpoint = HeldEndpoint(TcpEndpoint(LAUNCHER, bind, self.token))
        self._endpoint.listen(
            lambda sender, frame: self._events.put((sender, frame)),
            lambda peer, why: self._events.put((peer, why)),
        )
        self._recoveries = Recoveries(scenario)
        self._local: LocalProcesses | None = None
        self._names = [
            {k: node_name(n, k) for k in range(1, devices + 1)}
            for n, devices in enumerate(scenario.cluster.devices_per_cluster)
        ]
        self._gone: set[str] = set()
        self._round, self._drawn = 0, [0] * scenario.cluster.clusters
        self._began, self._lives = False, 0
        self._begins_with: bytes | None = None
        self.replayed: list[PlannedRound] = []
        if committed is not None:
            self._go_on_from(committed)

    def _go_on_from(self, committed: Committed) -> None:
        """Go over the plans of the rounds that were played, so that scheduler and simulator are as then."""
        self.replayed = self.rounds.replay(committed)
        for planned in self.replayed:
            self._count(planned)
        self._begins_with, self.scale = committed.training, committed.scale

    def _count(self, planned: PlannedRound) -> None:
        """Count a round that was played."""
        self._round += 1
        for n, cluster in enumerate(planned.script.clusters):
            self._drawn[n] += cluster.local_steps if cluster.plays else 0

    @property
    def address(self) -> Address:
        """Host and port at which processes can join."""
        return self._endpoint.address

    @property
    def processes(self) -> Mapping[str, Any]:
        """Processes that were started here, by role."""
        return {} if self._local is None else self._local.running

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self._scenario.name

    @property
    def upcoming(self) -> PlannedRound:
        """The next round, planned already."""
        if self._upcoming is None:
            self._upcoming = self.rounds.next()
        return self._upcoming

    @property
    def one_machine(self) -> bool:
        """Whether all processes are known to be on this machine, and so have one monotonic clock."""
        return self._local is not None

    def _spec(self) -> dict[str, Any]:
        """Terms of the execution, for a process that joins."""
        return {
            "scenario": self._scenario.to_dict(),
            "generator": self.rounds.generator,
            "clock": self._clock,
            "scale": self.scale,
            "one_machine": self.one_machine,
            "transport": self._transport,
        }

    def _send_spec(self, name: str) -> None:
        """Tell a process that joins what it is; the server goes on from a state that was kept."""
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
        """Start a process a role on this machine, and wait until all are ready.

        Raises:
            ExecutionError: One ends or does not answer.
        """
        self._local = LocalProcesses(self.address, self.token)
        names = role_names(self._scenario)
        for name in names:
            self._local.start(name)
        self.wait_until_ready(names)
        self._began = True

    def wait_for_others(self, patience: float = 86_400.0) -> None:
        """Wait until a process a role has joined, from this machine or others.

        Args:
            patience: Longest wait [s].

        Raises:
            ExecutionError: A role is missing after that time, or is lost.
        """
        self.wait_until_ready(role_names(self._scenario), patience)
        self._began = True

    def wait_until_ready(self, names: Sequence[str], patience: float = PATIENCE_S) -> None:
        """Let processes join, tell each what it is, and all where the others are.

        Devices that are lost between two rounds are noted, and not waited for.

        Args:
            names: Those that are awaited.
            patience: Longest wait [s].

        Raises:
            ExecutionError: A role is missing after that time, or is lost.
        """
        addresses = self._addresses
        ready: set[str] = set()
        awaited = set(names)
        deadline = time.monotonic() + patience
        while ready < awaited:
            sender, item = self._next(deadline, f"{', '.join(sorted(awaited - ready))} to be ready")
            if isinstance(item, str) and sender not in (*names, *addresses):
                continue  # a device that is replaced now
            if isinstance(item, str) and self._may_be_lost(sender):
                awaited.discard(sender)
                ready.discard(sender)
                continue
            if isinstance(item, str):
                raise ExecutionError(f"{sender} was lost before it was ready: {item}")
            if item.kind == "join" and sender in names:
                addresses[sender] = str(item.meta["host"]), int(item.meta["port"])
                self._endpoint.connect({sender: addresses[sender]})
                self._send_spec(sender)
            elif item.kind == "failed":
                raise ExecutionError(f"{sender} cannot begin: {item.meta['why']}")
            elif item.kind == "ready" and sender in names:
                ready.add(sender)
        directory = {**addresses, LAUNCHER: self.address}
        told = Tag(self._round)
        for name in addresses:
            others = {n: list(a) for n, a in directory.items() if n != name}
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

    def play(
        self,
        failures: Failures = NO_FAILURES,
        patience: float = 86_400.0,
    ) -> tuple[PlannedRound, dict[str, Any]]:
        """Play a round.

        Args:
            failures: Devices that are to fail, beside those that fail in the simulator by the virtual clock.
            patience: Longest wait for it [s].

        Returns:
            What was planned, and the server's report.

        Raises:
            ExecutionError: A process is lost, or the round does not end.
        """
        for _ in range(MOST_TRIES):
            if not self._bring_back():
                break
        planned, self._upcoming = self.upcoming, None
        self._recoveries.begin(planned)
        failing = [*planned.failures, *failures.faults] if self._virtual else []
        lead = LEAD_S if self._clock == "wall" else 0.0
        meta = {
            "script": to_json(planned.script),
            "machine_begins": time.monotonic() + lead,
            "drawn": self._drawn,
            "names": [{str(k): name for k, name in names.items()} for names in self._names],
            "faults": [[[k, at] for m, k, at in failing if m == n] for n in range(len(self._names))],
        }
        moments = planned.outcome.moments
        arrays = {} if moments is None else {"moments": moments[0]}
        self._endpoint.send(SERVER, Frame("round", Tag(self._round), 0.0, meta, arrays))
        timers = [
            threading.Timer(lead + self.scale * at, self.kill, (self._names[n][k], number))
            for some, number in ((failures.kills, signal.SIGKILL), (failures.hangs, signal.SIGSTOP))
            for n, k, at in some
        ]
        for timer in timers:
            timer.start()
        deadline = time.monotonic() + patience
        while True:
            sender, item = self._next(deadline, f"round {self._round}")
            if isinstance(item, str) and is_device(sender):
                self.lose_device(sender, item, failing)
                continue
            if isinstance(item, str):
                raise ExecutionError(f"{sender} was lost in round {self._round}: {item}")
            if item.kind == "failed":
                raise ExecutionError(f"{sender} failed in round {self._round}: {item.meta['why']}")
            if item.kind == "lost":
                self._gone.add(self._names[int(item.meta["cluster"])][int(item.meta["device"])])
                self._endpoint.send(sender, self._recoveries.answer(item))
            if item.kind == "result":
                break
        for timer in timers:
            timer.cancel()
        for name in failed_names(failing, self._names):
            self._gone.add(name)
        self._count(planned)
        return planned, dict(item.meta)

    def committed(self, patience: float = PATIENCE_S) -> Committed:
        """Ask the server for its state, and return everything that the execution can go on from.

        Between rounds, before the next one is planned.

        Raises:
            ExecutionError: The server does not answer.
        """
        assert self._upcoming is None, "the next round is planned already"
        self._endpoint.send(SERVER, Frame("state", Tag(self._round)))
        deadline = time.monotonic() + patience
        parts: list[bytes] = []
        while True:
            sender, item = self._next(deadline, "the state")
            if isinstance(item, str):
                self._note_loss(sender, item, "the state")
            elif item.kind == "failed":
                raise ExecutionError(f"{sender} failed after round {self._round}: {item.meta['why']}")
            elif item.kind == "state":
                parts.append(item.arrays["content"].tobytes())
                if len(parts) == item.meta["parts"]:
                    return Committed(self._round, self.scale, self.rounds.get_state(), b"".join(parts))

    def _may_be_lost(self, name: str) -> bool:
        """Note a loss after the first start, if it is a device's: it is replaced before the next round."""
        if not self._began or not is_device(name):
            return False
        self._gone.add(name)
        self._addresses.pop(name, None)
        return True

    def _note_loss(self, name: str, why: str, what: str) -> None:
        """Note the loss of a device between two rounds; of others, it ends the execution."""
        if not is_device(name):
            raise ExecutionError(f"{name} was lost before {what} came: {why}")
        self._gone.add(name)

    def weights(self, patience: float = PATIENCE_S) -> dict[str, np.ndarray[Any, Any]]:
        """Ask the server for the weights of the common model and of the head.

        Raises:
            ExecutionError: It does not answer.
        """
        self._endpoint.send(SERVER, Frame("weights", Tag(self._round)))
        deadline = time.monotonic() + patience
        while True:
            sender, item = self._next(deadline, "the weights")
            if isinstance(item, str):
                self._note_loss(sender, item, "the weights")
            elif item.kind == "weights":
                return {name: np.array(values) for name, values in item.arrays.items()}

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process of a role.

        Args:
            name: The role's present name, see :attr:`names`.
            number: The signal.
        """
        os.kill(self.processes[name].pid, number)

    @property
    def names(self) -> list[dict[int, str]]:
        """Present name of each device of each cluster: one that has come back has another."""
        return self._names

    def _bring_back(self) -> bool:
        """Start devices anew that have failed; the simulator says which of them have work.

        Returns:
            Whether there were any: others may have failed meanwhile.
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
            self.ask_for(again)
        elif local is not None and again:
            for name in again:
                local.start(name)
            self.wait_until_ready(again)
        return bool(again)

    def ask_for(self, names: Sequence[str]) -> None:
        """Ask somebody to start devices anew that were not started here, and wait for them.

        Args:
            names: Their names from now on.
        """
        print(
            "lost for good; start them anew with collapipe execute --join and --role "
            + ", --role ".join(names),
            flush=True,
        )
        self.wait_until_ready(names, LONG_S)

    def lose_device(self, name: str, why: str, failing: Sequence[tuple[int, int, float]]) -> None:  # noqa: ARG002
        """Hear in a round that a device's process is gone; it is started anew before the next one.

        Args:
            name: Its name.
            why: The reason.
            failing: Cluster, number and time of devices that were asked to fail.
        """
        self._gone.add(name)

    def close(self) -> None:
        """Stop all processes; those that do not end are killed."""
        for name in self._addresses:
            if name not in self._gone:
                self._endpoint.send(name, Frame("stop"))
        self._endpoint.close()
        if self._local is not None:
            self._local.end_all(self._gone)

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, deadline: float, what: str) -> tuple[str, Frame | str]:
        """Wait for news; looks after processes that end without a word."""
        while time.monotonic() < deadline:
            try:
                return self._events.get(timeout=0.2)
            except queue.Empty:
                for name, process in self.processes.items():
                    if process.exitcode is not None and name not in self._gone:
                        self._gone.add(name)
                        return name, f"its process ended with exit code {process.exitcode}"
        raise ExecutionError(f"nothing was heard for too long while waiting for {what}")


def failed_names(failing: Sequence[tuple[int, int, float]], names: Sequence[Mapping[int, str]]) -> list[str]:
    """Names of devices that have failed.

    Args:
        failing: Cluster, number and time of each.
        names: Names of the devices of each cluster.
    """
    return [names[n][k] for n, k, _ in failing]
