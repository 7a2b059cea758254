"""Launcher: starts the processes of an execution, lets them play rounds, and ends them."""

from __future__ import annotations

import multiprocessing
import queue
import secrets
import signal
import time
from collections.abc import Mapping
from typing import Any

from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.joining import ExecutionError, HeldEndpoint, play_role, role_names
from collapipe_env.execution.planned_rounds import PlannedRound, PlannedRounds
from collapipe_env.execution.role import LAUNCHER, SERVER
from collapipe_env.execution.script_reading import to_json
from collapipe_env.execution.setting import require_executable
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

PRELOADED = ("collapipe_env.execution.joining",)
"""Modules that processes share, as they are imported once."""
LEAD_S = 0.5
"""Time from the launcher's command to the begin of a round by the wall clock [s], in which blocks move."""
PATIENCE_S = 120.0
"""Longest wait for processes to begin [s]."""


class Launcher:
    """Processes of a scenario, and what they are asked to do.

    Args:
        scenario: The scenario.
        scheduler: Decides the rounds.
        seed: Seed of the episode.
        clock: ``virtual``, ``wall`` or ``none``.
        scale: Seconds of wall time for a priced second.
        bind: Host and port to listen at.
        token: Secret that all processes share; a new one by default.
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
    ) -> None:
        require_executable(scenario)
        self._scenario = scenario
        self.token = secrets.token_hex(32) if token is None else token
        self.rounds = PlannedRounds(scenario, scheduler, seed)
        self._spec = {
            "scenario": scenario.to_dict(),
            "generator": self.rounds.generator,
            "clock": clock,
            "scale": scale,
        }
        self._events: queue.SimpleQueue[tuple[str, Frame | str]] = queue.SimpleQueue()
        self._endpoint = HeldEndpoint(TcpEndpoint(LAUNCHER, bind, self.token))
        self._endpoint.listen(
            lambda sender, frame: self._events.put((sender, frame)),
            lambda peer, why: self._events.put((peer, why)),
        )
        self._processes: dict[str, Any] = {}
        self._round, self._drawn = 0, [0] * scenario.cluster.clusters

    @property
    def address(self) -> Address:
        """Host and port at which processes can join."""
        return self._endpoint.address

    @property
    def processes(self) -> Mapping[str, Any]:
        """Processes that were started here, by role."""
        return self._processes

    def start_local(self) -> None:
        """Start a process a role on this machine, and wait until all are ready.

        Raises:
            ExecutionError: One ends or does not answer.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        for name in role_names(self._scenario):
            process = context.Process(
                target=_play, args=(name, self.address, self.token), name=name, daemon=True
            )
            process.start()
            self._processes[name] = process
        self.wait_until_ready()

    def wait_until_ready(self, patience: float = PATIENCE_S) -> None:
        """Let processes join, tell each what it is, and all where the others are.

        Raises:
            ExecutionError: A role is missing after that time, or is lost.
        """
        names = role_names(self._scenario)
        addresses: dict[str, tuple[str, int]] = {}
        ready: set[str] = set()
        deadline = time.monotonic() + patience
        while len(ready) < len(names):
            sender, item = self._next(deadline, f"{', '.join(sorted(set(names) - ready))} to be ready")
            if isinstance(item, str):
                raise ExecutionError(f"{sender} was lost before it was ready: {item}")
            if item.kind == "join" and sender in names:
                addresses[sender] = str(item.meta["host"]), int(item.meta["port"])
                self._endpoint.connect({sender: addresses[sender]})
                self._endpoint.send(sender, Frame("spec", meta=self._spec))
            elif item.kind == "ready" and sender in names:
                ready.add(sender)
        directory = {**addresses, LAUNCHER: self.address}
        for name in names:
            others = {n: list(a) for n, a in directory.items() if n != name}
            self._endpoint.send(name, Frame("directory", meta={"directory": others}))

    def play(self, patience: float = 3600.0) -> tuple[PlannedRound, dict[str, Any]]:
        """Play a round.

        Args:
            patience: Longest wait for it [s].

        Returns:
            What was planned, and the server's report.

        Raises:
            ExecutionError: A process is lost, or the round does not end.
        """
        planned = self.rounds.next()
        meta = {
            "script": to_json(planned.script),
            "machine_begins": time.monotonic() + LEAD_S,
            "drawn": self._drawn,
        }
        moments = planned.outcome.moments
        arrays = {} if moments is None else {"moments": moments[0]}
        self._endpoint.send(SERVER, Frame("round", Tag(self._round), 0.0, meta, arrays))
        deadline = time.monotonic() + patience
        while True:
            sender, item = self._next(deadline, f"round {self._round}")
            if isinstance(item, str):
                raise ExecutionError(f"{sender} was lost in round {self._round}: {item}")
            if item.kind == "failed":
                raise ExecutionError(f"{sender} failed in round {self._round}: {item.meta['why']}")
            if item.kind == "result":
                break
        self._round += 1
        for n, cluster in enumerate(planned.script.clusters):
            self._drawn[n] += cluster.local_steps if cluster.plays else 0
        return planned, dict(item.meta)

    def close(self) -> None:
        """Stop all processes; those that do not end are killed."""
        for name in role_names(self._scenario):
            if name in self._processes:
                self._endpoint.send(name, Frame("stop"))
        self._endpoint.close()
        deadline = time.monotonic() + 5.0
        for process in self._processes.values():
            process.join(max(deadline - time.monotonic(), 0.0))
        for process in self._processes.values():
            if process.is_alive():
                process.kill()
                process.join()

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
                for name, process in self._processes.items():
                    if process.exitcode is not None:
                        return name, f"its process ended with exit code {process.exitcode}"
        raise ExecutionError(f"nothing was heard for too long while waiting for {what}")


def _play(name: str, launcher: Address, token: str) -> None:
    """Play a role in a process of its own."""
    # Ctrl-C is for the launcher, which then stops everybody.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    play_role(name, launcher, token)
