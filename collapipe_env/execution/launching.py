"""Launcher: runs the rounds of an execution's processes, and collects the results."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.execution.clock_offsets import ClockOffset
from collapipe_env.execution.committed_rounds import Committed
from collapipe_env.execution.crew import PATIENCE_S, Crew
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.joining import ExecutionError, is_device
from collapipe_env.execution.planned_rounds import PlannedRound, PlannedRounds
from collapipe_env.execution.recoveries import Recoveries
from collapipe_env.execution.role import SERVER
from collapipe_env.execution.script_reading import to_json
from collapipe_env.execution.setting import require_executable
from collapipe_env.execution.time_scale import shortest_priced
from collapipe_env.execution.timekeeping import Timekeeper, fine_enough, require_fine
from collapipe_env.execution.transport.tcp import Address
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

LEAD_S = 0.5
"""Time from the launcher's command to the start of a round under the wall clock [s], in which blocks move."""
MOST_TRIES = 5
"""Most restarts of devices before a round; later losses count as losses in the round."""


class Failures(NamedTuple):
    """Requested failures: cluster, device, and time since the start of the round [s] of each.

    Attributes:
        faults: Devices that fail under the virtual clock.
        kills: Devices whose processes are killed, under other clocks.
        hangs: Devices whose processes are halted, without a message.
    """

    faults: Sequence[tuple[int, int, float]] = ()
    kills: Sequence[tuple[int, int, float]] = ()
    hangs: Sequence[tuple[int, int, float]] = ()


NO_FAILURES = Failures()


class Launcher(Crew):
    """Processes of a scenario, and the commands for them.

    Args:
        scheduler: Decides the rounds.
        seed: Seed of the episode.
        clock: ``virtual``, ``wall`` or ``none``.
        scale: Seconds of wall time for a priced second; under the clock ``none``, the factor by which
            devices compute more slowly than this machine.
        bind: Host and port to listen at.
        token: Secret that all processes share; a new one by default.
        committed: State to continue from, of the same scenario, scheduler and seed; ``None`` to begin.

    Raises:
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
        bind: Address = ("127.0.0.1", 0),
        token: str | None = None,
        committed: Committed | None = None,
    ) -> None:
        require_executable(scenario)
        self.rounds = PlannedRounds(scenario, scheduler, seed)
        super().__init__(scenario, bind, token)
        self.scale, self._clock = scale, clock
        self._upcoming: PlannedRound | None = None
        self._virtual = clock == "virtual"
        self._recoveries = Recoveries(scenario)
        self._timekeeper = Timekeeper(self._endpoint.send, self._next, self._lose_silent)
        self._fine_s = math.inf
        self._drawn = [0] * scenario.cluster.clusters
        self.replayed: list[PlannedRound] = []
        if committed is not None:
            self._go_on_from(committed)

    def _go_on_from(self, committed: Committed) -> None:
        """Replay the plans of the rounds that were played, so that scheduler and simulator catch up."""
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
    def name(self) -> str:
        """Name of the scenario."""
        return self._scenario.name

    @property
    def upcoming(self) -> PlannedRound:
        """The next round, planned already."""
        if self._upcoming is None:
            self._upcoming = self.rounds.next()
        return self._upcoming

    def _spec(self) -> dict[str, Any]:
        """Terms of the execution, for a process that joins."""
        return {
            "scenario": self._scenario.to_dict(),
            "generator": self.rounds.generator,
            "clock": self._clock,
            "scale": self.scale,
        }

    def play(
        self,
        failures: Failures = NO_FAILURES,
        patience: float = 86_400.0,
    ) -> tuple[PlannedRound, dict[str, Any]]:
        """Play a round.

        Args:
            failures: Devices that are to fail; under the virtual clock, those of the simulator also fail.
            patience: Longest wait for it [s].

        Returns:
            The planned round, and the server's report.

        Raises:
            ExecutionError: If a process is lost, or the round does not end.
        """
        for _ in range(MOST_TRIES):
            brought, offsets = self._bring_back(), self._clock_offsets()
            if not brought and not self._gone:
                break
        planned, self._upcoming = self.upcoming, None
        self._recoveries.begin(planned)
        failing = [*planned.failures, *failures.faults] if self._virtual else []
        lead = LEAD_S if self._clock == "wall" else 0.0
        meta = {
            "script": to_json(planned.script),
            "machine_begins": time.monotonic() + lead,
            "clock_offsets": {name: one.offset_s for name, one in offsets.items()},
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
            sender, item = self._next(deadline, f"round {self._round + 1}")
            if isinstance(item, str) and is_device(sender):
                self._gone.add(sender)  # it is restarted before the next round
                continue
            if isinstance(item, str):
                raise ExecutionError(f"{sender} was lost in round {self._round + 1}: {item}")
            if item.kind == "failed":
                why = str(item.meta["why"]).removeprefix(f"{sender} ")
                raise ExecutionError(f"{sender} failed in round {self._round + 1}: {why}")
            if item.kind == "lost":
                self._gone.add(self._names[int(item.meta["cluster"])][int(item.meta["device"])])
                self._endpoint.send(sender, self._recoveries.answer(item))
            if item.kind == "result":
                break
        for timer in timers:
            timer.cancel()
        self._gone.update(self._names[n][k] for n, k, _ in failing)
        self._count(planned)
        return planned, {**item.meta, "clock_bound_s": self._clock_bound(offsets)}

    def _clock_offsets(self) -> dict[str, ClockOffset]:
        """Return offsets of the processes' clocks before a round; none in virtual time or on one machine.

        Raises:
            ExecutionError: If a process does not give its time, or its clock is not known well enough for
                the wall clock.
        """
        if self._virtual or self.one_machine:
            return {}
        shortest_s = shortest_priced(self.upcoming.script) if self._clock == "wall" else None
        self._fine_s = fine_enough(shortest_s, self.scale)
        offsets = self._timekeeper.measure(self._present(), self._fine_s)
        require_fine(offsets, shortest_s, self.scale, self._round + 1)
        return offsets

    def _clock_bound(self, before: Mapping[str, ClockOffset]) -> float | None:
        """Return the largest error of the offsets used in a round [s]; ``None`` if there are none."""
        if not before:
            return None
        left = [name for name in before if name not in self._gone]
        after = self._timekeeper.measure(left, self._fine_s)
        return max(one.bound_until(after.get(name, one)) for name, one in before.items())

    def _present(self) -> list[str]:
        """Return the names of all processes that are present."""
        return [name for name in self._addresses if name not in self._gone]

    def _lose_silent(self, name: str, why: str) -> None:  # noqa: ARG002 - it is started anew in any case
        """Give up a device that does not give its time: it hangs, or is gone."""
        self._gone.add(name)
        self._endpoint.drop(name)

    def committed(self, patience: float = PATIENCE_S) -> Committed:
        """Ask the server for its state, and return everything from which the execution can continue.

        Call this between rounds, before the next one is planned.

        Raises:
            ExecutionError: If the server does not answer.
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
                raise ExecutionError(f"{sender} failed after round {self._round + 1}: {item.meta['why']}")
            elif item.kind == "state":
                parts.append(item.arrays["content"].tobytes())
                if len(parts) == item.meta["parts"]:
                    return Committed(self._round, self.scale, self.rounds.get_state(), b"".join(parts))

    def _note_loss(self, name: str, why: str, what: str) -> None:
        """Note the loss of a device between two rounds; any other loss ends the execution."""
        if not is_device(name):
            raise ExecutionError(f"{name} was lost before {what} came: {why}")
        self._gone.add(name)

    def weights(self, patience: float = PATIENCE_S) -> dict[str, np.ndarray[Any, Any]]:
        """Ask the server for the weights of the common model and of the head.

        Raises:
            ExecutionError: If it does not answer.
        """
        self._endpoint.send(SERVER, Frame("weights", Tag(self._round)))
        deadline = time.monotonic() + patience
        while True:
            sender, item = self._next(deadline, "the weights")
            if isinstance(item, str):
                self._note_loss(sender, item, "the weights")
            elif item.kind == "weights":
                return {name: np.array(values) for name, values in item.arrays.items()}
