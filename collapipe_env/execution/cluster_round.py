"""Round of a control unit: it hands blocks out, takes the local steps, and recovers from losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collapipe_env.execution.cluster_role import ClusterRole
from collapipe_env.execution.cluster_step import LocalStep, StepTask
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.mailbox import Cancelled
from collapipe_env.execution.parts import (
    EMBEDDING,
    FROZEN,
    Arrays,
    below,
    block_name,
    is_weight,
    under,
)
from collapipe_env.execution.role import LAUNCHER, SERVER, begin_terms
from collapipe_env.execution.sample_rows import micro_batch_rows
from collapipe_env.execution.script_reading import from_json, to_json
from collapipe_env.execution.scripts import ClusterScript, Move, RecoveryScript
from collapipe_env.models.tokenization import PADDING


class ControlUnitRound:
    """A round of a cluster, with as many attempts as it takes.

    Args:
        frame: The server's command.
    """

    def __init__(self, owner: ClusterRole, frame: Frame) -> None:
        self._owner, self._tag = owner, frame.tag
        self._script: ClusterScript = from_json(frame.meta["script"], ClusterScript)
        self._steps, self._offset = self._script.local_steps, 0
        self._rates = [float(rate) for rate in frame.meta["rates"]]
        self._begins = begin_terms(frame)
        self._names = {0: owner.name, **{int(k): str(name) for k, name in frame.meta["names"].items()}}
        self._faults = sorted((float(at), int(k)) for k, at in frame.meta["faults"])
        owner.begin_round(frame)
        for _ in range(int(frame.meta.get("skipped", 0))):  # drawn before this process began
            owner.samples.next_batch(owner.setup, owner.stream)
        for name in [EMBEDDING, *owner.kept]:
            arrays = under(name, frame.arrays)
            if name == EMBEDDING:
                owner.embedding.set_arrays({**owner.embedding.arrays(), **arrays}, name)
            else:
                weights = {n: a for n, a in owner.kept[name].items() if is_weight(n)}
                owner.kept[name] = {**weights, **arrays}
        owner.replicas = {}
        self._batches = [owner.samples.next_batch(owner.setup, owner.stream) for _ in range(self._steps)]
        self._rows = micro_batch_rows(owner.setup.batch_size, self._script.micro_batches)
        self._embeddings: dict[int, Arrays] = {0: owner.embedding.arrays()}
        self._events: list[Any] = []
        self._updates: dict[int, bool] = {}
        self._recoveries: list[dict[str, Any]] = []
        self._gone: set[int] = set()
        self._handed: dict[int, set[int]] = {}

    def run(self) -> None:
        """Train the round, collect the segments and send the update."""
        if not self._script.plays:
            return
        begins = self._owner.clock.lasts(self._script.migration_s + self._script.relay_s)
        recovery: RecoveryScript | None = None
        while True:
            try:
                collected = self._attempt(begins, recovery)
                break
            except Cancelled:
                recovery = self._recover(recovery)
                self._script, begins = recovery.script, recovery.resume_s
                if recovery.dropped:
                    self._give_up(recovery)
                    return
        self._upload(collected)

    def _attempt(self, begins_s: float, recovery: RecoveryScript | None) -> float:
        """Take the local steps of the present script; return the time when segments are collected [s]."""
        owner = self._owner
        owner.recorded = []
        self._offset = self._steps - self._script.local_steps
        owner.watch({self._names[k]: k for k in self._script.devices}, self._tag.round, self._tag.attempt)
        self._label()
        self._assign(begins_s, recovery)
        begins = begins_s
        for step in range(self._offset, self._steps):
            task = StepTask(
                script=self._script,
                tag=self._tag._replace(step=step),
                names=self._names,
                batch=self._batches[step],
                rows=self._rows,
                units=self._units(step),
                arrived=self._script.arrived[step - self._offset],
                rate=self._rates[step],
                beginning=self._embeddings[0],
            )
            begins = LocalStep(owner, task).run(begins)
            self._updates[step] = any(task.units)
            self._embeddings = {n: e for n, e in self._embeddings.items() if n in (0, step)}
            self._embeddings[step + 1] = owner.embedding.arrays()
            owner.replicas = {n: kept for n, kept in owner.replicas.items() if n >= step}
        return self._collect(begins)

    def _recover(self, last: RecoveryScript | None) -> RecoveryScript:
        """End the attempt, and request a plan for the remaining work."""
        owner, recovery = self._owner, last
        ended, alive = self._tag, {self._names[k] for k in self._alive()}
        losses = owner.losses()
        for loss in losses:
            number = next(k for k, name in self._names.items() if name == loss.name)
            alive.discard(loss.name)
            self._gone.add(number)
            self._faults = [fault for fault in self._faults if fault[1] != number]
            at = owner.clock.now(0.0) if loss.at_s is None else loss.at_s
            meta = {
                "cluster": owner.cluster,
                "device": number,
                "at_s": at,
                # If the time of the failure is unknown, it was detected now.
                "detect_s": 0.0 if loss.at_s is None else None,
            }
            owner.send(LAUNCHER, "lost", ended._replace(place=number), meta=meta)
            key = ended._replace(attempt=ended.attempt + 1, place=number)
            answer = owner.mailbox.wait("recovery", key)
            if answer.meta["recovery"] is not None:
                recovery = from_json(answer.meta["recovery"], RecoveryScript)
                self._recoveries.append(answer.meta["recovery"])
        assert recovery is not None
        owner.mailbox.cancel(ended.round, ended.attempt)
        for name in sorted(alive):
            owner.send(name, "abort", ended, meta={"lost": [loss.name for loss in losses]})
        owner.send(
            SERVER, "abort", ended, meta={"dropped": recovery.dropped, "script": to_json(recovery.script)}
        )
        for loss in losses:
            owner.drop(loss.name)
        self._tag = ended._replace(attempt=ended.attempt + 1)
        back = 0 if recovery.restored else self._steps - recovery.script.local_steps
        if not recovery.dropped:
            owner.embedding.set_arrays(self._embeddings[back], EMBEDDING)
            for block in recovery.reset:
                name = block_name(block)
                owner.kept[name] = {n: a for n, a in owner.kept[name].items() if is_weight(n)}
        return recovery

    def _alive(self) -> list[int]:
        return [k for k in self._names if k > 0 and k not in self._gone]

    def _give_up(self, recovery: RecoveryScript) -> None:
        """Tell the server that this cluster sends no update in this round."""
        meta = {
            "updated": False,
            "dropped": True,
            "events": [],
            "collected_s": None,
            "measured_s": recovery.script.delay_s,
            "recoveries": self._recoveries,
        }
        owner = self._owner
        owner.send(SERVER, "update", self._tag, at_s=recovery.script.delay_s, meta=meta)

    def _units(self, step: int) -> list[float]:
        """Return the number of predictions of each micro-batch that arrives, 0 for the others."""
        counts, arrived = self._batches[step].units, self._script.arrived[step - self._offset]
        return [
            float(counts[a:b].sum()) if there else 0.0
            for (a, b), there in zip(self._rows, arrived, strict=True)
        ]

    def _label(self) -> None:
        """Tell the server the targets, and which tokens are real."""
        targets = np.stack([batch.targets.numpy() for batch in self._batches])
        meta = {"units": [self._units(step) for step in range(self._offset, self._steps)]}
        arrays = {"targets": targets[self._offset :], "real": self._real()[self._offset :]}
        self._owner.send(SERVER, "labels", self._tag, meta=meta, arrays=arrays)

    def _real(self) -> np.ndarray[Any, Any]:
        return np.stack([(batch.tokens != PADDING).numpy() for batch in self._batches])

    def _assign(self, begins_s: float, recovery: RecoveryScript | None) -> None:
        """Hand the blocks out; after a loss, only those that a device has not yet had in this round."""
        owner, real = self._owner, self._real()
        places = {k: place for place, stage in enumerate(self._script.stages) for k in stage.devices}
        moves = [] if recovery is None else recovery.moves
        involved = {k for move in moves for k in (move.source, move.target) if k > 0}
        script = to_json(self._script)
        for k in sorted(places.keys() | (involved - self._gone)):
            stage = self._script.stages[places[k]] if k in places else None
            held = {} if stage is None else {b for first, end in stage.chunks for b in range(first, end)}
            arrays: Arrays = {} if stage is None else {"real": real}
            for block in sorted(set(held) - self._handed.get(k, set())):
                arrays |= below(block_name(block), owner.kept[block_name(block)])
            self._handed.setdefault(k, set()).update(held)
            meta = {
                "script": script,
                "stage": places.get(k, -1),
                "rates": self._rates,
                "offset": self._offset,
                "begins_s": begins_s,
                **self._begins,
                "names": {str(node): name for node, name in self._names.items()},
                "dies_at": self._faults[0][0] if self._faults and self._faults[0][1] == k else None,
                **_handover(recovery, k, self._offset),
            }
            owner.send(self._names[k], "assign", self._tag._replace(place=k), meta=meta, arrays=arrays)
        collected = {**owner.replicas.get(self._offset, {}), **self._taken_over(moves)} if moves else {}
        for move in moves:
            if move.source == 0:
                self._give(move, collected)

    def _taken_over(self, moves: Sequence[Move]) -> dict[str, Arrays]:
        """Return the blocks that devices hand over to the control unit, as after the credited local steps."""
        found: dict[str, Arrays] = {}
        for move in moves:
            if move.target == 0 != move.source:
                for block in range(move.first_block, move.end_block):
                    key = f"move_{move.source}", self._tag._replace(place=block)
                    arrays = self._owner.mailbox.wait(*key).arrays
                    found.setdefault(block_name(block), {}).update(arrays)
        return found

    def _give(self, move: Move, collected: Mapping[str, Arrays]) -> None:
        """Send blocks that the control unit has: collected, from the start of the round, or replicas."""
        owner = self._owner
        for block in range(move.first_block, move.end_block):
            name = block_name(block)
            begun = owner.kept[name]
            frozen = {n: a for n, a in begun.items() if n.startswith(FROZEN)}
            if move.part == "replica":
                chosen = collected[name]
            elif move.part == "frozen":
                chosen = frozen
            elif move.part == "weights":
                chosen = {n: a for n, a in begun.items() if is_weight(n)}
            else:
                chosen = {**frozen, **collected.get(name, begun)}
            tag = self._tag._replace(place=block)
            owner.send(self._names[move.target], "move_0", tag, arrays=chosen)

    def _collect(self, begins_s: float) -> float:
        """Collect the segments; return the time when all are there [s]."""
        owner = self._owner
        ends, segments = begins_s, []
        for k in self._script.devices:
            frame = owner.mailbox.wait("segment", self._tag._replace(place=k))
            ends = max(ends, owner.clock.ready(frame.at_s))
            segments.append(frame)
        owner.watch({}, self._tag.round, self._tag.attempt)
        for frame in segments:
            self._events += frame.meta["events"]
            for name in owner.kept:
                arrays = under(name, frame.arrays)
                if arrays:
                    frozen = {n: a for n, a in owner.kept[name].items() if n.startswith(FROZEN)}
                    owner.kept[name] = {**frozen, **arrays}
        return ends

    def _upload(self, begins_s: float) -> None:
        """Send the update to the server."""
        owner = self._owner
        collected_s = owner.clock.now(begins_s)
        upload_s = owner.clock.lasts(self._script.upload_s)
        owner.clock.begin(begins_s + upload_s)
        ends = owner.clock.finish(begins_s + upload_s)
        arrays = below(EMBEDDING, owner.embedding.arrays())
        for name, kept in owner.kept.items():
            arrays |= below(name, {n: a for n, a in kept.items() if not n.startswith(FROZEN)})
        self._events += [list(event) for event in owner.recorded]
        meta = {
            "updated": any(self._updates.values()),
            "dropped": False,
            "events": self._events,
            "collected_s": collected_s,
            "measured_s": owner.clock.now(ends),
            "recoveries": self._recoveries,
        }
        owner.send(SERVER, "update", self._tag, at_s=ends, meta=meta, arrays=arrays)


def _handover(recovery: RecoveryScript | None, device: int, credited: int) -> dict[str, Any]:
    """Return the part of an assignment that tells a device what to hand over, take over and forget."""
    moves = () if recovery is None else recovery.moves
    blocks = [(m, b) for m in moves for b in range(m.first_block, m.end_block)]
    return {
        "credited": credited,
        "reset": [] if recovery is None else list(recovery.reset),
        "gives": [[b, m.target, m.part] for m, b in blocks if m.source == device],
        "takes": [[b, m.source] for m, b in blocks if m.target == device != m.source],
    }
