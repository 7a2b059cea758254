"""Execution with a thread a role, in one process: the same roles and frames, without processes."""

from __future__ import annotations

import queue
import threading
from typing import Any

from collapipe_env.execution.clock import make_clock
from collapipe_env.execution.control_unit import ControlUnit
from collapipe_env.execution.device import Device
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.planned_rounds import PlannedRound, PlannedRounds
from collapipe_env.execution.role import LAUNCHER, SERVER, Role, control_unit_name, node_name
from collapipe_env.execution.script_reading import to_json
from collapipe_env.execution.server import EdgeServer
from collapipe_env.execution.setting import DeviceSetting, TrainingSetting, require_executable
from collapipe_env.execution.transport.in_process import InProcessHub
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler


class ThreadedExecution:
    """All roles of a scenario as threads.

    Args:
        scenario: The scenario.
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
        hub = InProcessHub()
        self._launcher = hub.endpoint(LAUNCHER)
        self._results: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self._launcher.listen(lambda _, frame: self._results.put(frame), lambda *_: None)
        self.federation = setting.federation()
        self.server = EdgeServer(
            hub.endpoint(SERVER),
            make_clock(clock, scale),
            setup=setting.setup,
            federation=self.federation,
            evaluate=setting.evaluate,
        )
        roles: list[Role] = [self.server]
        self._drawn = [0] * scenario.cluster.clusters
        for n, count in enumerate(scenario.cluster.devices_per_cluster):
            unit = hub.endpoint(control_unit_name(n))
            roles.append(
                ControlUnit(
                    unit,
                    make_clock(clock, scale),
                    cluster=n,
                    setup=setting.setup,
                    beginning=setting.beginning(),
                )
            )
            roles += [
                Device(
                    hub.endpoint(node_name(n, k)),
                    make_clock(clock, scale),
                    cluster=n,
                    number=k,
                    build_block=of_devices.build_block,
                    learning=of_devices.learning,
                )
                for k in range(1, count + 1)
            ]
        self._roles = roles
        for role in roles:
            role.begin()
        self._threads = [threading.Thread(target=role.run, name=role.name, daemon=True) for role in roles]
        for thread in self._threads:
            thread.start()
        self._round = 0

    def play(self, begins: float = 0.0) -> tuple[PlannedRound, dict[str, Any]]:
        """Play a round.

        Args:
            begins: Monotonic time at which it begins, for the wall clock.

        Returns:
            What was planned, and the server's report.
        """
        planned = self.rounds.next()
        tag = Tag(self._round)
        meta = {"script": to_json(planned.script), "machine_begins": begins, "drawn": self._drawn}
        moments = planned.outcome.moments
        arrays = {} if moments is None else {"moments": moments[0]}
        self._launcher.send(SERVER, Frame("round", tag, 0.0, meta, arrays))
        frame = self._results.get()
        self._round += 1
        for n, cluster in enumerate(planned.script.clusters):
            self._drawn[n] += cluster.local_steps if cluster.plays else 0
        return planned, dict(frame.meta)

    def close(self) -> None:
        """Stop all roles."""
        for role in self._roles:
            self._launcher.send(role.name, Frame("stop"))
        for thread in self._threads:
            thread.join(10.0)
        self._launcher.close()
