"""Execution: a scheduler's rounds, played by roles on an engine, and the training between them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from collapipe_env.execution.clock import make_clock
from collapipe_env.execution.clock_offsets import NO_OFFSET, ClockOffset, fine_enough, require_fine
from collapipe_env.execution.cluster_round import (
    ClusterResult,
    ClusterRound,
    ExecutionError,
    Wait,
    Waiting,
)
from collapipe_env.execution.cluster_step import ClusterRoles
from collapipe_env.execution.committed_rounds import Committed
from collapipe_env.execution.control_unit import ControlUnit
from collapipe_env.execution.device import Device
from collapipe_env.execution.edge_server import EdgeServer
from collapipe_env.execution.engine import PATIENCE_S, Engine, Inline, Lost, Role
from collapipe_env.execution.head import Head
from collapipe_env.execution.parts import Arrays, frozen_arrays
from collapipe_env.execution.planned_rounds import PlannedRound, PlannedRounds
from collapipe_env.execution.recovery_planning import RecoveryPlanner, recovery_terms
from collapipe_env.execution.scripts import RoundScript, node_name
from collapipe_env.execution.server_heads import ServerHeads
from collapipe_env.execution.setting import device_setting, local_training, require_executable
from collapipe_env.execution.time_scale import shortest_priced
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler
from collapipe_env.simulator.build import system_parameters

LEAD_S = 0.5
"""Time from the first call to the start of a round under the wall clock [s], in which blocks move."""


class Failures(NamedTuple):
    """Requested failures: cluster, device, and time since the start of the round of each.

    Times are priced seconds; under the clock ``none``, seconds of wall time.

    Attributes:
        faults: Devices that fail under the virtual clock.
        kills: Devices whose processes are killed, under other clocks.
        hangs: Devices whose processes are halted, without a message.
    """

    faults: Sequence[tuple[int, int, float]] = ()
    kills: Sequence[tuple[int, int, float]] = ()
    hangs: Sequence[tuple[int, int, float]] = ()


NO_FAILURES = Failures()
MOST_TRIES = 5
"""Most restarts of devices before a round."""


class Execution:
    """Rounds of a scenario, played by roles.

    The driver holds the server. Control units embed, devices train the blocks, and the server's workers
    compute the heads. It is a context, which closes the engine.

    Attributes:
        engine: Carries the roles.
        scale: Seconds of wall time for a priced second; under the clock ``none``, the factor by which devices
            compute more slowly than this machine. It may be set until the first round is played.
        server: The edge server.
        crews: Roles of each cluster, once they have been started.
        replayed: Rounds that were played before.

    Args:
        scheduler: Decides the rounds.
        seed: Seed of the episode.
        clock: ``virtual``, ``wall`` or ``none``.
        engine: Carries the roles; by default this process does, which plays by the virtual clock only.
        committed: State to continue from, of the same scenario, scheduler and seed; ``None`` to begin.

    Raises:
        ScenarioError: If the scenario cannot be executed, or the engine cannot keep the clock.
        StateError: If the state is not one of this run.
    """

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Scheduler,
        *,
        seed: int = 0,
        clock: str = "virtual",
        scale: float = 1.0,
        engine: Engine | None = None,
        committed: Committed | None = None,
    ) -> None:
        require_executable(scenario)
        self._scenario, self._clock_name, self.scale = scenario, clock, scale
        self.engine: Engine = Inline() if engine is None else engine
        if clock != "virtual" and not self.engine.side_by_side:
            raise ScenarioError(
                f"clock {clock!r} needs processes: in one, nothing runs side by side; use the engine Ray, or "
                "the clock virtual"
            )
        self._parameters, self._terms = system_parameters(scenario), recovery_terms(scenario)
        self.rounds = PlannedRounds(scenario, scheduler, seed)
        self._upcoming: PlannedRound | None = None
        self._played, content = 0, None
        self.replayed: list[PlannedRound] = []
        if committed is not None:
            self.replayed = self.rounds.replay(committed)
            self._played, self.scale = committed.rounds, committed.scale
            content = committed.training
        self.server = EdgeServer(scenario, self.rounds.new_generator, content)
        self.crews: list[ClusterRoles] = []
        self._gone: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    @property
    def _everybody(self) -> list[Role]:
        return [role for crew in self.crews for role in crew.everybody]

    @property
    def _second_s(self) -> float:
        """Wall time of a priced second [s]; 1 by the clock ``none``, whose scale is a factor of slowness."""
        return self.scale if self._clock_name == "wall" else 1.0

    @property
    def upcoming(self) -> PlannedRound:
        """The next round, planned already."""
        if self._upcoming is None:
            self._upcoming = self.rounds.next()
        return self._upcoming

    def start(self) -> None:
        """Start all roles, and wait until they are there; :meth:`play` does so if it has not been done.

        Raises:
            ExecutionError: If one is lost.
        """
        if self.crews:
            return
        self._clock = make_clock(self._clock_name, self._second_s)  # the server is not slowed down
        self._learning = learning = local_training(self._scenario.learning)
        model, head = self.server.federation.common_model
        frozen = [frozen_arrays(block) for block in model.blocks]
        how, loss = (self._clock_name, self.scale), self.server.loss
        self._device_terms = *how, self.engine.put(device_setting(self._scenario))
        for n, count in enumerate(self._scenario.cluster.devices_per_cluster):
            cu = self.engine.spawn(node_name(n, 0), ControlUnit, n, *how, learning, model.embedding, frozen)
            served = self.engine.spawn(f"h{n}", Head, n, *how, head, loss, learning.precision, beside=cu)
            devices = {k: self._device(n, k) for k in range(1, count + 1)}
            self.crews.append(ClusterRoles(cu, served, devices))
        try:
            self.engine.ready(self._everybody)
        except Lost as lost:
            raise ExecutionError(f"{', '.join(lost.names)} could not begin") from None
        if self._clock_name != "virtual":
            self._plan_a_recovery()

    def _plan_a_recovery(self) -> None:
        """Plan a recovery that nobody needs: the first one may compile functions, which takes seconds."""
        planned = self.upcoming
        for cluster in planned.script.clusters:
            if cluster.plays:
                planner = RecoveryPlanner(planned.record, 0, cluster, self._parameters, self._terms)
                planner.lost(cluster.devices[0], 0.0)
                return

    def _device(self, n: int, k: int) -> Role:
        # Under the wall clock, one that hangs is given up as soon as the simulator says.
        wait_s = self._terms.detection_s if self._clock_name == "wall" else PATIENCE_S
        return self.engine.spawn(node_name(n, k), Device, n, k, *self._device_terms, patience_s=wait_s)

    def play(self, failures: Failures = NO_FAILURES) -> tuple[PlannedRound, dict[str, Any]]:
        """Play a round.

        Args:
            failures: Devices that are to fail; under the virtual clock, those of the simulator also fail.

        Returns:
            The planned round, and the report: measured delays, the record of operations and transfers,
            recoveries, training loss, and figures of the common model.

        Raises:
            ExecutionError: If a control unit is lost.
        """
        self.start()
        offsets = self._together_again()
        planned, self._upcoming = self.upcoming, None
        faults = [*planned.failures, *failures.faults] if self._clock_name == "virtual" else []
        heads = self.server.open_round(planned)
        works = {
            n: ClusterRound(
                *(self.engine, self.crews[n], heads, self._clock),
                RecoveryPlanner(planned.record, 0, cluster, self._parameters, self._terms),
                self.server.task(cluster),
                self._learning,
                [(k, at) for m, k, at in faults if m == n],
            )
            for n, cluster in enumerate(planned.script.clusters)
            if cluster.plays
        }
        lead = LEAD_S if self._clock_name == "wall" else 0.0
        begins = time.monotonic() + lead
        self._clock.restart(begins)
        machines = {name: begins + one.offset_s for name, one in offsets.items()}
        timers = [
            threading.Timer(lead + self._second_s * at, self.engine.kill, (self.crews[n].devices[k], number))
            for some, number in ((failures.kills, signal.SIGKILL), (failures.hangs, signal.SIGSTOP))
            for n, k, at in some
        ]
        for timer in timers:
            timer.start()
        try:
            results = self._together({n: work.play(machines) for n, work in works.items()}, heads)
        except ExecutionError as error:
            raise ExecutionError(f"{error} in round {self._played + 1}") from None
        finally:
            for timer in timers:
                timer.cancel()
        self._gone.update((n, k) for n, k, _ in faults)
        self._gone.update((n, k) for n, work in works.items() for k in work.gone)
        self._played += 1
        self.server.close_round(results)
        report = self._report(planned.script, results)
        report |= {"train_loss": heads.mean_loss, "figures": self.server.evaluate()}
        return planned, {**report, "clock_bound_s": self._clock_bound(offsets)}

    def _together_again(self) -> dict[str, ClockOffset]:
        """Bring lost devices back before a round; return the offsets of all clocks, by role.

        Raises:
            ExecutionError: If a control unit is lost, or devices are lost again and again.
            CollaPipeError: If clocks are not known well enough for the wall clock.
        """
        shortest = shortest_priced(self.upcoming.script) if self._clock_name == "wall" else None
        self._fine_s = fine_enough(shortest, self.scale)
        for _ in range(MOST_TRIES):
            try:
                self._bring_back({*self.engine.lost(self._everybody)})
                offsets = self._offsets(self._everybody)
            except Lost:
                continue
            require_fine(offsets, shortest, self.scale, self._played + 1)
            return offsets
        raise ExecutionError(f"devices were lost before round {self._played + 1}, again and again")

    def _offsets(self, roles: Sequence[Role]) -> dict[str, ClockOffset]:
        """Return the offsets of roles' clocks by name: none by the virtual clock, which nobody reads."""
        if self._clock_name == "virtual":
            return {role.name: NO_OFFSET for role in roles}
        return self.engine.offsets(roles, self._fine_s)

    def _bring_back(self, lost: set[str]) -> None:
        """Start lost devices anew, and wait until they are there, so that nobody takes them for silent.

        Args:
            lost: Names of roles that do not answer.
        """
        again = []
        for n, crew in enumerate(self.crews):
            for role in (crew.control_unit, crew.head):
                if role.name in lost:
                    raise ExecutionError(f"{role.name} was lost before round {self._played + 1}")
            for k, device in crew.devices.items():
                if (n, k) in self._gone or device.name in lost:
                    crew.devices[k] = self._device(n, k)
                    again.append(crew.devices[k])
        self._gone.clear()
        self.engine.ready(again)

    def _clock_bound(self, before: Mapping[str, ClockOffset]) -> float | None:
        """Return the largest error of the clocks' offsets in a round [s]; ``None`` if there is one clock."""
        if not any(one.bound_s for one in before.values()):
            return None
        gone = {node_name(n, k) for n, k in self._gone}
        left = [role for role in self._everybody if role.name not in gone]
        try:
            after = self._offsets(left)
        except Lost:  # it is missed before the next round
            after = {}
        return max(one.bound_until(after.get(name, one)) for name, one in before.items())

    def _together(self, rounds: Mapping[int, Waiting], heads: ServerHeads) -> dict[int, ClusterResult]:
        """Play the clusters' rounds side by side; return their results.

        Raises:
            ExecutionError: If a control unit is lost.
        """
        waits: dict[int, Wait] = {n: next(round_) for n, round_ in rounds.items()}
        results: dict[int, ClusterResult] = {}
        while waits:
            for_heads = [n for n, wait in waits.items() if not wait.refs and heads.there(wait.step)]
            open_ = {n: (wait.refs, wait.watch) for n, wait in waits.items()}
            n = for_heads[0] if for_heads else self.engine.first(open_)
            try:
                try:
                    given = [] if for_heads else self.engine.get(*open_[n])
                except Lost as lost:
                    waits[n] = rounds[n].throw(lost)
                else:
                    waits[n] = rounds[n].send(given)
            except StopIteration as end:
                results[n] = end.value
                del waits[n]
        return results

    def _report(self, script: RoundScript, results: Mapping[int, ClusterResult]) -> dict[str, Any]:
        """Return the report of a round, whose broadcast begins after all updates have come."""
        clock, clusters = self._clock, range(len(script.clusters))
        idle = [cluster.delay_s for cluster in script.clusters if not cluster.plays]
        begins = max([*idle, *(result.delay_s for result in results.values())])
        delay = clock.finish(begins + clock.lasts(script.broadcast_s))
        updates = {n: result.update for n, result in results.items() if result.update is not None}
        measured = {n: result.delay_s for n, result in results.items()}
        measured |= {n: update.measured_s for n, update in updates.items()}
        return {
            "delay_s": clock.now(delay),
            "emulated": clock.emulated,
            "cluster_s": [measured.get(n) for n in clusters],
            "collected_s": [updates[n].collected_s if n in updates else None for n in clusters],
            "events": [list(event) for update in updates.values() for event in update.events],
            "recoveries": [results[n].recoveries if n in results else [] for n in clusters],
        }

    def committed(self) -> Committed:
        """Return everything from which the execution can continue.

        Call this between rounds, before the next one is planned.
        """
        assert self._upcoming is None, "the next round is planned already"
        return Committed(self._played, self.scale, self.rounds.get_state(), self.server.save())

    def weights(self) -> Arrays:
        """Return the weights of the common model and of the head."""
        return self.server.weights()
