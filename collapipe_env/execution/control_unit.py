"""Control unit: data and embedding of a cluster, relay to the server, and keeper of the cluster's model."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.lines import Line
from collapipe_env.execution.mailbox import Cancelled
from collapipe_env.execution.parts import (
    EMBEDDING,
    FROZEN,
    VALUES,
    Arrays,
    Part,
    below,
    block_name,
    is_weight,
    under,
)
from collapipe_env.execution.role import LAUNCHER, SERVER, Recorded, Role, Stopped
from collapipe_env.execution.rows import device_rows, micro_batch_rows
from collapipe_env.execution.script_reading import from_json, to_json
from collapipe_env.execution.scripts import ClusterScript, Move, RecoveryScript
from collapipe_env.execution.transport import Endpoint
from collapipe_env.models.tokenization import PADDING
from collapipe_env.training.beginning import Beginning
from collapipe_env.training.mini_batches import MiniBatch, next_batch
from collapipe_env.training.training_setup import TrainingSetup


class ControlUnit(Role):
    """Control unit of a cluster.

    It keeps the parts of the cluster's model with their moments, and hands the blocks out with every round.
    It watches over its devices: when one is lost that has blocks, it ends the attempt at the round, asks for
    a plan of what is left, and goes on with that.

    Attributes:
        kept: Weights and moments of every block at the round's begin.
        replicas: Replicas of blocks, by the number of local steps after which they were sent.

    Args:
        endpoint: Way to the other roles.
        clock: Clock of its work.
        cluster: Its cluster, from 0.
        setup: Setup of the training.
        beginning: State of the training before its first round.
    """

    def __init__(
        self, endpoint: Endpoint, clock: Clock, *, cluster: int, setup: TrainingSetup, beginning: Beginning
    ) -> None:
        super().__init__(endpoint, clock)
        self.cluster, self.setup = cluster, setup
        self.samples, self.stream = beginning.samples, beginning.streams[cluster]
        self.embedding = Part(beginning.model.embedding, setup.learning)
        # Everything that is not trained stays with the blocks.
        self.kept: dict[str, Arrays] = {
            block_name(b): Part(module, setup.learning).arrays(frozen=True)
            for b, module in enumerate(beginning.model.blocks)
        }
        self.replicas: dict[int, dict[str, Arrays]] = {}
        self._watch = threading.Lock()
        self._watched: dict[str, int] = {}
        self._lost: list[Loss] = []
        self._present = 0, 0

    def run(self) -> None:
        """Do what the server asks for until it says stop."""
        try:
            while True:
                frame = self.command()
                if frame.kind == "round":
                    ControlUnitRound(self, frame).run()
        except Stopped:
            self.close()
        except BaseException as error:
            self.tell_failure(error)
            raise

    def watch(self, devices: Mapping[str, int], round: int, attempt: int) -> None:
        """Watch over the devices of an attempt from now on.

        Args:
            devices: Number of each device, by its name.
            round: The round.
            attempt: The attempt at it.
        """
        with self._watch:
            self._watched, self._present = dict(devices), (round, attempt)
            if any(loss.name in devices for loss in self._lost):
                self.mailbox.cancel(round, attempt)

    def losses(self) -> list[Loss]:
        """Take the losses of watched devices, in the order in which they were heard of."""
        with self._watch:
            found = [loss for loss in self._lost if loss.name in self._watched]
            self._lost = [loss for loss in self._lost if loss.name not in self._watched]
            return found

    def on_frame(self, sender: str, frame: Frame) -> None:
        """Take a frame; replicas are put aside, and what a dying device says ends the attempt."""
        if frame.kind == "replica":
            kept = self.replicas.setdefault(frame.tag.step, {})
            for name in {name.partition("/")[0] for name in frame.arrays}:
                kept[name] = under(name, frame.arrays)
        elif frame.kind == "dying":
            self._hear(Loss(sender, frame.at_s))
        else:
            if frame.kind == "segment":
                with self._watch:  # what it had is here
                    self._watched.pop(sender, None)
            super().on_frame(sender, frame)

    def on_lost(self, peer: str, reason: str) -> None:
        """Hear that a peer is gone; without the server or the launcher nothing can go on."""
        if peer in (SERVER, LAUNCHER):
            self.mailbox.fail(ConnectionError(f"{peer} is gone ({reason})"))
            self.stop()
        else:
            self._hear(Loss(peer, None))

    def _hear(self, loss: Loss) -> None:
        with self._watch:
            if any(known.name == loss.name for known in self._lost):
                return
            self._lost.append(loss)
            if loss.name in self._watched:
                self.mailbox.cancel(*self._present)


@dataclass(frozen=True)
class Loss:
    """A device that is gone.

    Attributes:
        name: Its name.
        at_s: Time of the failure since the round's begin, where somebody says it [s].
    """

    name: str
    at_s: float | None


@dataclass
class StepEnd:
    """End of a local step.

    Attributes:
        next_s: Time at which what follows begins [s].
        updated: Whether anything arrived, so that weights were stepped.
    """

    next_s: float
    updated: bool


class ControlUnitRound:
    """A round of a cluster, with as many attempts as it takes.

    Args:
        owner: The control unit.
        frame: The server's command.
    """

    def __init__(self, owner: ControlUnit, frame: Frame) -> None:
        self._owner, self._tag = owner, frame.tag
        self._script: ClusterScript = from_json(frame.meta["script"], ClusterScript)
        self._steps, self._offset = self._script.local_steps, 0
        self._rates = [float(rate) for rate in frame.meta["rates"]]
        self._machine_begins = float(frame.meta["machine_begins"])
        self._names = {0: owner.name, **{int(k): str(name) for k, name in frame.meta["names"].items()}}
        self._faults = sorted((float(at), int(k)) for k, at in frame.meta["faults"])
        owner.clock.restart(self._machine_begins)
        for _ in range(
            int(frame.meta.get("skipped", 0))
        ):  # batches that were drawn before this process began
            next_batch(owner.setup, owner.samples, owner.stream)
        for name in [EMBEDDING, *owner.kept]:
            arrays = under(name, frame.arrays)
            if name == EMBEDDING:
                owner.embedding.set_arrays({**owner.embedding.arrays(), **arrays}, name)
            else:
                weights = {n: a for n, a in owner.kept[name].items() if is_weight(n)}
                owner.kept[name] = {**weights, **arrays}
        owner.replicas = {}
        self._batches = [next_batch(owner.setup, owner.samples, owner.stream) for _ in range(self._steps)]
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
        begins = self._script.migration_s + self._script.relay_s
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
        """Take the local steps of the present script; returns when the segments are collected [s]."""
        owner = self._owner
        owner.recorded = []
        self._offset = self._steps - self._script.local_steps
        owner.watch({self._names[k]: k for k in self.numbers()}, self._tag.round, self._tag.attempt)
        self._label()
        self._assign(begins_s, recovery)
        begins = begins_s
        for step in range(self._offset, self._steps):
            end = _LocalStep(owner, self, step).run(begins)
            begins, self._updates[step] = end.next_s, end.updated
            self._embeddings = {n: e for n, e in self._embeddings.items() if n in (0, step)}
            self._embeddings[step + 1] = owner.embedding.arrays()
            owner.replicas = {n: kept for n, kept in owner.replicas.items() if n >= step}
        return self._collect(begins)

    def _recover(self, last: RecoveryScript | None) -> RecoveryScript:
        """End the attempt, and ask for a plan of what is left."""
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
                # Where nobody says when it failed, it was detected now.
                "detect_s": 0.0 if loss.at_s is None else None,
            }
            asked = time.monotonic()
            owner.send(LAUNCHER, "lost", ended._replace(place=number), meta=meta)
            key = ended._replace(attempt=ended.attempt + 1, place=number)
            answer = owner.mailbox.wait("recovery", key)
            if answer.meta["recovery"] is not None:
                recovery = from_json(answer.meta["recovery"], RecoveryScript)
                self._recoveries.append(
                    {**answer.meta["recovery"], "script": None, "asked_s": time.monotonic() - asked}
                )
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
        """Tell the server that nothing comes from this cluster in this round."""
        meta = {
            "updated": False,
            "dropped": True,
            "events": [],
            "collected_s": None,
            "recoveries": self._recoveries,
        }
        owner = self._owner
        owner.send(SERVER, "update", self._tag, at_s=recovery.script.delay_s, meta=meta)

    @property
    def script(self) -> ClusterScript:
        """Script of the round."""
        return self._script

    @property
    def tag(self) -> Tag:
        """Round and attempt."""
        return self._tag

    @property
    def rates(self) -> Sequence[float]:
        """Step sizes of the local steps."""
        return self._rates

    @property
    def beginning(self) -> Tensor:
        """Weights of the embedding at the round's begin."""
        return torch.from_numpy(self._embeddings[0][VALUES])

    def arrived(self, step: int) -> Sequence[bool]:
        """Micro-batches that arrive in a local step of the round."""
        return self._script.arrived[step - self._offset]

    def name(self, node: int) -> str:
        """Name of a node of the cluster."""
        return self._names[node]

    def batch(self, step: int) -> MiniBatch:
        """Mini-batch of a local step."""
        return self._batches[step]

    def rows(self, m: int) -> tuple[int, int]:
        """Samples of a micro-batch."""
        return self._rows[m]

    def units(self, step: int) -> list[float]:
        """Predictions of each micro-batch that arrives, 0 for the others."""
        counts, arrived = self._batches[step].units, self.arrived(step)
        return [
            float(counts[a:b].sum()) if there else 0.0
            for (a, b), there in zip(self._rows, arrived, strict=True)
        ]

    def numbers(self) -> list[int]:
        """Numbers of these devices."""
        return [k for stage in self._script.stages for k in stage.devices]

    def _label(self) -> None:
        """Tell the server the targets, and which tokens are real."""
        targets = np.stack([batch.targets.numpy() for batch in self._batches])
        meta = {"units": [self.units(step) for step in range(self._offset, self._steps)]}
        arrays = {"targets": targets[self._offset :], "real": self._real()[self._offset :]}
        self._owner.send(SERVER, "labels", self._tag, meta=meta, arrays=arrays)

    def _real(self) -> np.ndarray[Any, Any]:
        return np.stack([(batch.tokens != PADDING).numpy() for batch in self._batches])

    def _assign(self, begins_s: float, recovery: RecoveryScript | None) -> None:
        """Hand the blocks out; after a loss only those that a device has never had in this round."""
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
                "machine_begins": self._machine_begins,
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
        """Blocks that devices hand over to the control unit, as they are after the local steps that count."""
        found: dict[str, Arrays] = {}
        for move in moves:
            if move.target == 0 != move.source:
                for block in range(move.first_block, move.end_block):
                    key = f"move_{move.source}", self._tag._replace(place=block)
                    arrays = self._owner.mailbox.wait(*key).arrays
                    found.setdefault(block_name(block), {}).update(arrays)
        return found

    def _give(self, move: Move, collected: Mapping[str, Arrays]) -> None:
        """Send blocks that the control unit has: collected, of the round's begin, or replicas."""
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
        """Take the segments back; returns when all are there [s]."""
        owner = self._owner
        ends, segments = begins_s, []
        for k in self.numbers():
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
        owner.clock.begin(begins_s + self._script.upload_s)
        ends = owner.clock.finish(begins_s + self._script.upload_s)
        arrays = below(EMBEDDING, owner.embedding.arrays())
        for name, kept in owner.kept.items():
            arrays |= below(name, {n: a for n, a in kept.items() if not n.startswith(FROZEN)})
        self._events += [list(event) for event in owner.recorded]
        meta = {
            "updated": any(self._updates.values()),
            "dropped": False,
            "events": self._events,
            "collected_s": begins_s,
            "recoveries": self._recoveries,
        }
        owner.send(SERVER, "update", self._tag, at_s=ends, meta=meta, arrays=arrays)


class _LocalStep:
    """A local step as the control unit sees it: it embeds, relays in both directions, and waits for all."""

    def __init__(self, owner: ControlUnit, of_round: ControlUnitRound, step: int) -> None:
        self._owner, self._round, self._step = owner, of_round, step
        self._script = of_round.script
        self._down, self._up, self._back = Line(), Line(), Line()
        self._outputs: dict[int, Tensor] = {}
        self._gradients: dict[int, Tensor] = {}
        self._pieces: dict[tuple[str, int], list[Frame]] = {}

    def run(self, begins_s: float) -> StepEnd:
        """Take the step."""
        self._owner.embedding.clear_gradients()
        self._embed(begins_s)
        ends = self._relay(begins_s)
        self._learn()
        return self._finish(ends)

    def _embed(self, begins_s: float) -> None:
        """Embed every micro-batch, and send it to the first stage."""
        script, batch = self._script, self._round.batch(self._step)
        for m in range(script.micro_batches):
            first, end = self._round.rows(m)
            out = None
            if self._round.arrived(self._step)[m]:
                out = self._owner.embedding.module(batch.tokens[first:end])
                self._outputs[m] = out
            transfer = self._down.carry(begins_s, script.hop_forward_s[0], script.latency_s)
            self._record(0, m, 0, transfer)
            self._send_rows(0, "forward_0", m, transfer.arrives_s, out, 0)

    def _send_rows(self, stage: int, kind: str, m: int, at_s: float, x: Tensor | None, position: int) -> None:
        """Send a micro-batch to the devices of a stage, each its samples."""
        first, end = self._round.rows(m)
        devices = self._script.stages[stage].devices
        rows = device_rows(end - first, self._script.stages[stage].shares)
        tag = self._round.tag._replace(step=self._step, place=position, micro_batch=m)
        for k, (a, b) in zip(devices, rows, strict=True):
            if a == b and len(devices) > 1:
                continue
            arrays = {} if x is None else {"x": x.detach()[a:b].contiguous().numpy()}
            self._owner.send(self._round.name(k), kind, tag, at_s=at_s, arrays=arrays)

    def _relay(self, begins_s: float) -> float:
        """Pass on what comes from the pipeline and from the server, until the last gradient is there [s]."""
        wanted = self._wanted()
        ends = begins_s
        while wanted:
            keys = sorted(wanted, key=lambda key: (key[1].micro_batch, key[0]))
            frame = self._owner.mailbox.wait_any(keys)
            key = next(k for k in keys if k[1] == frame.tag and k[0] == frame.kind)
            wanted.remove(key)
            m = frame.tag.micro_batch
            word, _, _ = frame.kind.rpartition("_")
            pieces = self._pieces.setdefault((word, m), [])
            pieces.append(frame)
            if any(k[0].startswith(f"{word}_") and k[1].micro_batch == m for k in wanted):
                continue
            at_s = max(self._owner.clock.ready(piece.at_s) for piece in pieces)
            x = _joined(pieces)
            if word == "encoded":
                self._to_server(m, at_s, x)
            elif word == "turned":
                self._to_last_stage(m, at_s, x)
            else:
                ends = max(ends, at_s)
                if x is not None:
                    self._gradients[m] = x
        return ends

    def _wanted(self) -> set[tuple[str, Tag]]:
        """Frames of the step: from the last stage, from the server, and from the first stage."""
        script = self._script
        wanted = set()
        for m in range(script.micro_batches):
            tag = self._round.tag._replace(step=self._step, place=0, micro_batch=m)
            wanted.add(("turned_0", tag))
            first, end = self._round.rows(m)
            for word, stage in (("encoded", script.stages[-1]), ("gradient", script.stages[0])):
                rows = device_rows(end - first, stage.shares)
                wanted |= {(f"{word}_{i}", tag) for i, (a, b) in enumerate(rows) if a < b or len(rows) == 1}
        return wanted

    def _to_server(self, m: int, at_s: float, x: Tensor | None) -> None:
        script = self._script
        transfer = self._up.carry(at_s, script.uplink_s, script.edge_latency_s)
        self._record(2 * len(script.stages) + 1, m, 0, transfer)
        tag = self._round.tag._replace(step=self._step, place=0, micro_batch=m)
        arrays = {} if x is None else {"x": x.numpy()}
        self._owner.send(SERVER, "uplink", tag, at_s=transfer.arrives_s, arrays=arrays)

    def _to_last_stage(self, m: int, at_s: float, x: Tensor | None) -> None:
        script, S = self._script, len(self._script.stages)
        transfer = self._back.carry(at_s, script.hop_backward_s[S], script.latency_s)
        self._record(2 * S, m, 1, transfer)
        last = S * len(script.stages[-1].chunks) - 1
        self._send_rows(S - 1, "backward_0", m, transfer.arrives_s, x, last)

    def _learn(self) -> None:
        """Add the gradients of the embedding, micro-batch after micro-batch, and the pull of FedProx."""
        part, learning = self._owner.embedding, self._owner.setup.learning
        for m in sorted(self._gradients):
            out = self._outputs.pop(m)
            if out.requires_grad:
                torch.autograd.backward(out, self._gradients[m])
        if learning.proximal and part.flat is not None:
            part.flat.gradients.add_(part.flat.values - self._round.beginning, alpha=learning.proximal)

    def _finish(self, ends_s: float) -> StepEnd:
        """Wait for everybody, then let all step their weights."""
        owner, script, part = self._owner, self._script, self._owner.embedding
        tag = self._round.tag._replace(step=self._step)
        clip = owner.setup.learning.gradient_clip
        squares = float(part.flat.gradients.square().sum()) if clip and part.flat is not None else 0.0
        for k in self._round.numbers():
            frame = owner.mailbox.wait("stepped", tag._replace(place=k))
            ends_s = max(ends_s, float(frame.meta["ends_s"]))
            squares += float(frame.meta["norm"])
        served = owner.mailbox.wait("served", tag._replace(place=0))
        ends_s = max(ends_s, float(served.meta["ends_s"]))
        updated = any(self._round.units(self._step))
        factor = min(clip / math.sqrt(squares), 1.0) if clip and squares > 0.0 else 1.0
        next_s = ends_s + script.allreduce_s + script.update_s + script.replicas_s + script.barrier_s
        meta = {"update": updated, "factor": factor, "next_s": next_s}
        for k in self._round.numbers():
            owner.send(self._round.name(k), "apply", tag._replace(place=k), at_s=ends_s, meta=meta)
        if updated and part.flat is not None and part.optimizer is not None:
            part.set_rate(self._round.rates[self._step])
            if factor != 1.0:
                part.flat.gradients.mul_(factor)
            part.optimizer.step()
        return StepEnd(next_s, updated)

    def _record(self, element: int, m: int, direction: int, transfer: Any) -> None:
        times = transfer.start_s, transfer.end_s, transfer.end_s
        self._owner.recorded.append(
            Recorded(self._owner.cluster, self._step, element, m, direction, 0, *times)
        )


def _joined(pieces: Sequence[Frame]) -> Tensor | None:
    """Samples of a micro-batch in their order; ``None`` where it was lost on the way."""
    ordered = sorted(pieces, key=lambda piece: int(piece.kind.rpartition("_")[2]))
    parts = [torch.from_numpy(np.array(piece.arrays["x"])) for piece in ordered if "x" in piece.arrays]
    return torch.cat(parts) if parts else None


def _handover(recovery: RecoveryScript | None, device: int, credited: int) -> dict[str, Any]:
    """Part of an assignment that says what a device hands over, takes over and forgets."""
    moves = () if recovery is None else recovery.moves
    blocks = [(m, b) for m in moves for b in range(m.first_block, m.end_block)]
    return {
        "credited": credited,
        "reset": [] if recovery is None else list(recovery.reset),
        "gives": [[b, m.target, m.part] for m, b in blocks if m.source == device],
        "takes": [[b, m.source] for m, b in blocks if m.target == device != m.source],
    }
