"""Round of a cluster: hands blocks out, takes the local steps, recovers from losses, collects the update."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.cluster_step import ClusterRoles, LocalSteps
from collapipe_env.execution.control_unit import Update
from collapipe_env.execution.engine import Engine, Lost, Reference, Role
from collapipe_env.execution.head import Served
from collapipe_env.execution.parts import Arrays, LocalTraining, PartName
from collapipe_env.execution.recovery_planning import RecoveryPlanner
from collapipe_env.execution.sample_rows import micro_batch_rows
from collapipe_env.execution.scripts import ClusterScript, RecoveryScript
from collapipe_env.execution.server_heads import ServerHeads
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.models.tokenization import PADDING
from collapipe_env.training.cluster_samples import MiniBatch


class ExecutionError(CollaPipeError):
    """An execution cannot continue."""


class Wait(NamedTuple):
    """Results that a cluster's round waits for.

    Attributes:
        refs: References of the results; with none, it waits for the server's head of a local step.
        watch: Roles that must stay alive meanwhile.
        step: That local step.
    """

    refs: Sequence[Reference]
    watch: Sequence[Role] = ()
    step: int = 0


Waiting = Generator[Wait, list[Any], Any]


class ClusterResult(NamedTuple):
    """Result of a cluster's round.

    Attributes:
        update: Its update; ``None`` if it has given the round up.
        updated: Whether anything arrived in any local step.
        recoveries: Recoveries from losses, as plain data.
        delay_s: ``T_n`` of a round that was given up [s].
    """

    update: Update | None
    updated: bool
    recoveries: list[dict[str, Any]]
    delay_s: float


class ClusterTask(NamedTuple):
    """Work of a cluster in a round.

    Attributes:
        script: Its script.
        model: The common model, with the cluster's own moments.
        batches: Mini-batch of each local step.
        rates: Step size of each local step.
    """

    script: ClusterScript
    model: Mapping[PartName, Arrays]
    batches: Sequence[MiniBatch]
    rates: Sequence[float]


class ClusterRound:
    """A round of a cluster, with as many attempts as it takes.

    It is driven as a generator: it yields what it waits for, and is sent the results or thrown the loss.

    Args:
        roles: Roles of the cluster.
        heads: Heads of all clusters in the round.
        clock: The driver's clock.
        planner: Plans the rest of the round after a loss.
        faults: Devices that are to fail, with the time since the start of the round [s].
    """

    def __init__(
        self,
        engine: Engine,
        roles: ClusterRoles,
        heads: ServerHeads,
        clock: Clock,
        planner: RecoveryPlanner,
        task: ClusterTask,
        learning: LocalTraining,
        faults: Sequence[tuple[int, float]],
    ) -> None:
        self._engine, self._call, self._roles, self._heads = engine, engine.call, roles, heads
        self._clock, self._planner, self._task, self._learning = clock, planner, task, learning
        self._script, self._n = task.script, task.script.cluster
        self._steps, self._done = task.script.local_steps, 0
        self._faults = sorted((at, k) for k, at in faults)
        self._real = np.stack([(batch.tokens != PADDING).numpy() for batch in task.batches])
        self._shared_real = engine.put(self._real)
        self._handed: dict[int, set[int]] = {}
        self._updates: dict[int, bool] = {}
        self._moves: list[Reference] = []
        self.recoveries: list[dict[str, Any]] = []
        self.gone: set[int] = set()

    def play(self, begins_at: Mapping[str, float]) -> Waiting:
        """Play the round; return its :class:`ClusterResult`.

        Args:
            begins_at: Monotonic time at which the round begins by each role's machine [s], by name.
        """
        self._begin(begins_at)
        begins = self._clock.lasts(self._script.migration_s + self._script.relay_s)
        while True:
            try:
                self._assign()
                while self._done < self._steps:
                    begins = yield from self._step(self._done, begins)
                    self._done += 1
                update = yield from self._collect(begins)
                return ClusterResult(update, any(self._updates.values()), self.recoveries, update.ends_s)
            except Lost as lost:
                recovery = self._recover(lost)
                self._script, begins = recovery.script, recovery.resume_s
                if recovery.dropped:
                    self._heads.give_up(self._n)
                    return ClusterResult(None, False, self.recoveries, recovery.script.delay_s)

    def _begin(self, begins: Mapping[str, float]) -> None:
        """Tell all roles that the round begins, and hand the model to the control unit."""
        roles, task, call = self._roles, self._task, self._call
        tokens = torch.stack([batch.tokens for batch in task.batches])
        targets = torch.stack([batch.targets for batch in task.batches])
        cu, head = roles.control_unit, roles.head
        call(cu, "begin", begins[cu.name], self._script, task.model, tokens)
        call(head, "begin", begins[head.name], self._script, self._shared_real, targets)
        for device in roles.devices.values():
            call(device, "begin", begins[device.name])

    def _assign(self) -> None:
        """Hand out the blocks that a device has not yet had in this round, and assign the stages."""
        script, call, cu = self._engine.put(self._script), self._call, self._roles.control_unit
        fault = self._next_fault()
        for place, stage in enumerate(self._script.stages):
            for k in stage.devices:
                device, handed = self._roles.devices[k], self._handed.setdefault(k, set())
                held = {block for chunk in stage.chunks for block in range(*chunk)}
                for block in sorted(held - handed):
                    call(device, "take", 0, block, call(cu, "give", 0, block, "state"))
                handed |= held
                dies_at = fault[0] if fault is not None and fault[1] == k else None
                call(device, "assign", script, place, self._shared_real, self._done, dies_at)
        self._operations = LocalSteps(call, self._roles, self._script)

    def _working(self) -> list[Role]:
        """Return the roles without which the present attempt cannot go on."""
        devices = [self._roles.devices[k] for k in self._script.devices]
        return [self._roles.control_unit, self._roles.head, *devices]

    def _step(self, step: int, begins_s: float) -> Generator[Wait, list[Any], float]:
        """Take a local step; return the time when the next one, or the collection, begins [s]."""
        call, script = self._call, self._script
        working = self._working()
        cu, head, *devices = working
        while not self._heads.there(step):
            yield Wait((), working, step)
        arrived = script.arrived[step - (self._steps - script.local_steps)]
        units = self._units(step, arrived)
        call(head, "begin_step", step, begins_s, self._heads.weights(self._n, step), units)
        for role in (cu, *devices):
            call(role, "begin_step", step, begins_s)
        learned = self._operations.submit(arrived)
        ended = [call(role, "end_step") for role in (head, *devices)]
        served: Served
        (ends, squares), served, *each = (yield Wait([learned, *ended, *self._moves], working))[
            : len(working)
        ]
        self._moves = []
        ends = max(ends, served.ends_s, *(end for end, _ in each))
        squares += sum(norm for _, norm in each)
        clip, updated = self._learning.gradient_clip, any(units)
        factor = min(clip / math.sqrt(squares), 1.0) if clip and squares > 0.0 else 1.0
        terms = updated, factor, self._task.rates[step]
        for role in (cu, *devices):
            call(role, "apply", *terms)
        # The step is committed: nodes that are there apply it before anything else. Replicas must be there.
        if replicas := self._replicated(step + 1):
            yield Wait(replicas, working)
        self._heads.end_step(self._n, step, served)
        self._updates[step] = updated
        lengths = script.allreduce_s, script.update_s, script.replicas_s, script.barrier_s
        # Added one after the other, as the simulator does.
        return sum(map(self._clock.lasts, lengths), ends)

    def _units(self, step: int, arrived: Sequence[bool]) -> list[float]:
        """Return the number of predictions of each micro-batch that arrives, 0 for the others."""
        counts, rows = self._task.batches[step].units, micro_batch_rows(self._real.shape[1], len(arrived))
        return [float(counts[a:b].sum()) if ok else 0.0 for (a, b), ok in zip(rows, arrived, strict=True)]

    def _replicated(self, step: int) -> list[Reference]:
        """Send replicas of trained blocks, as they are before a local step, to the nodes that keep them."""
        return [
            self._moved(stage.devices[0], host, step, block, "replica")
            for stage, host in zip(self._script.stages, self._script.hosts, strict=True)
            if host is not None
            for chunk in stage.chunks
            for block in range(*chunk)
        ]

    def _moved(self, source: int, target: int, step: int, block: int, part: str) -> Reference:
        """Let a node hand a block, as it is before a local step, to another."""
        arrays = self._call(self._node(source), "give", step, block, part)
        return self._call(self._node(target), "take", step, block, arrays)

    def _node(self, node: int) -> Role:
        return self._roles.devices[node] if node else self._roles.control_unit

    def _collect(self, begins_s: float) -> Generator[Wait, list[Any], Update]:
        """Collect the segments, and have the update sent."""
        call, (cu, head, *devices) = self._call, self._working()
        segments = [call(device, "collect", begins_s) for device in devices]
        # Called after the collections, so their answers say that the segments are handed over.
        yield Wait([call(device, "ping") for device in devices], self._working())
        upload = call(cu, "upload", begins_s, *segments)
        update: Update
        update, served = yield Wait([upload, call(head, "record")], [cu, head])
        return update._replace(events=[*update.events, *served])

    def _recover(self, lost: Lost) -> RecoveryScript:
        """Plan the rest of the round without the devices that are gone, and move their blocks.

        Raises:
            ExecutionError: If the control unit or its head is gone.
        """
        working = self._working()
        names = {*lost.names, *self._engine.lost(working)}
        for role in working[:2]:
            if role.name in names:
                raise ExecutionError(f"{role.name} was lost")
        self._roles.attempt += 1
        gone = [k for k, role in self._roles.devices.items() if role.name in names and k not in self.gone]
        fault = self._next_fault()
        if fault is not None:  # nobody has missed those that failed before and had nothing to do
            working_on = self._script.devices
            gone = [*(k for at, k in self._faults if at <= fault[0] and k not in working_on), *gone]
        self.gone.update(gone)
        left = [working[0], *(role for k, role in self._roles.devices.items() if k not in self.gone)]
        for role in (*left, self._roles.head):
            self._engine.interject(role, "abort", self._roles.attempt)
        self._moves = []
        last: RecoveryScript | None = None
        for found in filter(None, map(self._planned, gone)):
            last = found
            if found.dropped:
                return found
            self._done = 0 if found.restored else self._steps - found.script.local_steps
            for role in left:
                self._call(role, "go_back", self._done, found.reset)
            for move in sorted(found.moves, key=lambda move: move.source == 0):  # the CU collects first
                for block in range(move.first_block, move.end_block):
                    if not {move.source, move.target} & self.gone:
                        ends = move.source, move.target
                        self._moves.append(self._moved(*ends, self._done, block, move.part))
        if last is None:
            raise ExecutionError(f"{', '.join(sorted(names))} was lost with blocks on the way")
        for role in working[:2]:
            self._call(role, "follow", last.script)
        return last

    def _next_fault(self) -> tuple[float, int] | None:
        """Return the first failure on request of a device that works: its time, and the device."""
        return next((fault for fault in self._faults if fault[1] in self._script.devices), None)

    def _planned(self, device: int) -> RecoveryScript | None:
        """Plan the rest of the round without a device; return nothing if it had nothing to do."""
        detect_s, completed = None, None
        known = [at for at, k in self._faults if k == device]
        if known:
            at_s = known[0]
        else:  # nobody knows when it failed: it was detected now
            at_s, detect_s = self._clock.now(0.0), 0.0
            completed = self._done - (self._steps - self._planner.script.local_steps)
        self._faults = [fault for fault in self._faults if fault[1] != device]
        found = self._planner.lost(device, at_s, detect_s=detect_s, completed=completed)
        if found is not None:
            self.recoveries.append(asdict(found))
        return found
