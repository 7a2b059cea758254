"""Execution with a thread for each role, in one process: the same roles and connections."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Any

from collapipe_env.execution.clock import make_clock
from collapipe_env.execution.control_unit import ControlUnit
from collapipe_env.execution.device import Device
from collapipe_env.execution.edge_server import EdgeServer
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.planned_rounds import PlannedRound, PlannedRounds
from collapipe_env.execution.recoveries import Recoveries
from collapipe_env.execution.role import LAUNCHER, SERVER, Role, control_unit_name, node_name
from collapipe_env.execution.script_reading import to_json
from collapipe_env.execution.setting import DeviceSetting, TrainingSetting, require_executable
from collapipe_env.execution.transport.tcp import TcpEndpoint
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler


class ThreadedExecution:
    """All roles of a scenario as threads.

    Args:
        scheduler: Decides the rounds.
        seed: Seed of the episode.
        clock: ``virtual``, ``wall`` or ``none``.
        scale: Seconds of wall time for a priced second.
    """

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Scheduler,
        *,
        seed: int = 0,
        clock: str = "virtual",
        scale: float = 1.0,
    ) -> None:
        require_executable(scenario)
        self.rounds = PlannedRounds(scenario, scheduler, seed)
        setting = TrainingSetting.of(scenario, self.rounds.new_generator)
        of_devices = DeviceSetting.of(scenario)
        self._endpoints: dict[str, TcpEndpoint] = {}
        self._launcher = self._endpoint(LAUNCHER)
        self._results: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self._recoveries = Recoveries(scenario)
        self._launcher.listen(self._on_frame, lambda *_: None)
        self.federation = setting.federation()
        self.server = EdgeServer(
            self._endpoint(SERVER),
            make_clock(clock, scale),
            setup=setting.setup,
            federation=self.federation,
            evaluate=setting.evaluate,
            save=setting.save,
        )
        self._clock, self._of_devices = (clock, scale), of_devices
        self._roles: list[Role] = []
        self._threads: list[threading.Thread] = []
        self._names: list[dict[int, str]] = []
        self._dead: list[tuple[int, int, float]] = []
        self._drawn = [0] * scenario.cluster.clusters
        self._start(self.server)
        for n, count in enumerate(scenario.cluster.devices_per_cluster):
            self._start(
                ControlUnit(
                    self._endpoint(control_unit_name(n)),
                    make_clock(clock, scale),
                    cluster=n,
                    setup=setting.setup,
                    beginning=setting.beginning(),
                )
            )
            self._names.append({})
            for k in range(1, count + 1):
                self._add_device(n, k, node_name(n, k))
        self._round = 0

    def _endpoint(self, name: str) -> TcpEndpoint:
        """A new endpoint, which knows all others and is known to them."""
        endpoint = TcpEndpoint(name, token="secret")
        for other in self._endpoints.values():
            other.connect({name: endpoint.address})
            endpoint.connect({other.name: other.address})
        self._endpoints[name] = endpoint
        return endpoint

    def _on_frame(self, sender: str, frame: Frame) -> None:
        if frame.kind == "lost":
            self._launcher.send(sender, self._recoveries.answer(frame))
        else:
            self._results.put(frame)

    def play(
        self, begins: float = 0.0, faults: Sequence[tuple[int, int, float]] = ()
    ) -> tuple[PlannedRound, dict[str, Any]]:
        """Play a round.

        Args:
            begins: Monotonic time at which it begins, for the wall clock.
            faults: Cluster, device and time of each device that is to fail under the virtual clock [s];
                devices that fail in the simulator also fail.

        Returns:
            The planned round, and the server's report.
        """
        planned = self.rounds.next()
        tag = Tag(self._round)
        self._recoveries.begin(planned)
        for n, k, _ in self._dead:
            self._replace(n, k)
        self._dead = [*planned.failures, *faults]
        meta = {
            "script": to_json(planned.script),
            "machine_begins": begins,
            "drawn": self._drawn,
            "names": [{str(k): name for k, name in names.items()} for names in self._names],
            "faults": [[[k, at] for m, k, at in self._dead if m == n] for n in range(len(self._names))],
        }
        moments = planned.outcome.moments
        arrays = {} if moments is None else {"moments": moments[0]}
        self._launcher.send(SERVER, Frame("round", tag, 0.0, meta, arrays))
        frame = self._results.get()
        if frame.kind == "failed":
            raise ExecutionError(f"round {self._round} failed: {frame.meta['why']}")
        self._round += 1
        for n, cluster in enumerate(planned.script.clusters):
            self._drawn[n] += cluster.local_steps if cluster.plays else 0
        return planned, dict(frame.meta)

    def _start(self, role: Role) -> None:
        role.begin()
        thread = threading.Thread(target=role.run, name=role.name, daemon=True)
        self._roles.append(role)
        self._threads.append(thread)
        thread.start()

    def _add_device(self, n: int, k: int, name: str) -> None:
        self._names[n][k] = name
        self._start(
            Device(
                self._endpoint(name),
                make_clock(*self._clock),
                cluster=n,
                number=k,
                build_block=self._of_devices.build_block,
                width=self._of_devices.architecture.width,
                learning=self._of_devices.learning,
            )
        )

    def _replace(self, n: int, k: int) -> None:
        """Bring back a device that has failed, under another name."""
        self._endpoints.pop(self._names[n][k]).close()
        self._add_device(n, k, f"{node_name(n, k)}.{self._round}")

    def close(self) -> None:
        """Stop all roles."""
        for role in self._roles:
            self._launcher.send(role.name, Frame("stop"))
        for thread in self._threads:
            thread.join(10.0)
        self._launcher.close()
