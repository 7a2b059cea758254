"""Control unit: data and embedding of a cluster, relay to the server, and keeper of the cluster's model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.lines import Line
from collapipe_env.execution.parts import Part
from collapipe_env.execution.role import SERVER, Recorded, Role, Stopped, node_name
from collapipe_env.execution.rows import device_rows, micro_batch_rows
from collapipe_env.execution.script_reading import from_json, to_json
from collapipe_env.execution.scripts import ClusterScript
from collapipe_env.execution.transport import Endpoint
from collapipe_env.models.tokenization import PADDING
from collapipe_env.training.beginning import Beginning
from collapipe_env.training.mini_batches import MiniBatch, next_batch
from collapipe_env.training.training_setup import TrainingSetup

Arrays = dict[str, np.ndarray[Any, Any]]
EMBEDDING = "embedding"


def block_name(block: int) -> str:
    """Name of a block among the parts of a model."""
    return f"b{block}"


def under(prefix: str, arrays: Any) -> Arrays:
    """Arrays whose names begin with a prefix and a slash, without these."""
    start = f"{prefix}/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}


def below(prefix: str, arrays: Any) -> Arrays:
    """Arrays with a prefix and a slash before their names."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


class ControlUnit(Role):
    """Control unit of a cluster.

    It keeps the parts of the cluster's model with their moments, and hands the blocks out with every round.

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

    def run(self) -> None:
        """Do what the server asks for until it says stop."""
        try:
            while True:
                frame = self.command()
                if frame.kind == "round":
                    ControlUnitRound(self, frame).run()
        except Stopped:
            pass
        finally:
            self.close()


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
    """A round of a cluster.

    Args:
        owner: The control unit.
        frame: The server's command.
    """

    def __init__(self, owner: ControlUnit, frame: Frame) -> None:
        self._owner, self._tag = owner, frame.tag
        self._script: ClusterScript = from_json(frame.meta["script"], ClusterScript)
        self._rates = [float(rate) for rate in frame.meta["rates"]]
        self._machine_begins = float(frame.meta["machine_begins"])
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
                owner.kept[name] = {**owner.kept[name], **arrays}
        self._batches = [
            next_batch(owner.setup, owner.samples, owner.stream) for _ in range(self._script.local_steps)
        ]
        self._rows = micro_batch_rows(owner.setup.batch_size, self._script.micro_batches)
        self._beginning = None if owner.embedding.flat is None else owner.embedding.flat.values.clone()
        self._events: list[Any] = []
        self._updated = False

    def run(self) -> None:
        """Train the round, collect the segments and send the update."""
        if not self._script.plays:
            return
        self._owner.recorded = []
        self._label()
        begins = self._script.migration_s + self._script.relay_s
        self._assign(begins)
        for step in range(self._script.local_steps):
            end = _LocalStep(self._owner, self, step).run(begins)
            begins, self._updated = end.next_s, self._updated or end.updated
        self._upload(self._collect(begins))

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
    def beginning(self) -> Tensor | None:
        """Weights of the embedding at the round's begin."""
        return self._beginning

    def batch(self, step: int) -> MiniBatch:
        """Mini-batch of a local step."""
        return self._batches[step]

    def rows(self, m: int) -> tuple[int, int]:
        """Samples of a micro-batch."""
        return self._rows[m]

    def units(self, step: int) -> list[float]:
        """Predictions of each micro-batch that arrives, 0 for the others."""
        counts, arrived = self._batches[step].units, self._script.arrived[step]
        return [
            float(counts[a:b].sum()) if there else 0.0
            for (a, b), there in zip(self._rows, arrived, strict=True)
        ]

    def names(self) -> list[str]:
        """Names of the devices that hold blocks."""
        return [node_name(self._owner.cluster, k) for s in self._script.stages for k in s.devices]

    def numbers(self) -> list[int]:
        """Numbers of these devices."""
        return [k for stage in self._script.stages for k in stage.devices]

    def _label(self) -> None:
        """Tell the server the targets, and which tokens are real."""
        steps = self._script.local_steps
        targets = np.stack([batch.targets.numpy() for batch in self._batches])
        meta = {"units": [self.units(step) for step in range(steps)]}
        self._owner.send(
            SERVER,
            f"labels_{self._owner.cluster}",
            self._tag,
            meta=meta,
            arrays={"targets": targets, "real": self._real()},
        )

    def _real(self) -> np.ndarray[Any, Any]:
        return np.stack([(batch.tokens != PADDING).numpy() for batch in self._batches])

    def _assign(self, begins_s: float) -> None:
        """Hand the blocks out."""
        owner, real = self._owner, self._real()
        for place, stage in enumerate(self._script.stages):
            arrays = {"real": real}
            for first, end in stage.chunks:
                for block in range(first, end):
                    arrays |= below(block_name(block), owner.kept[block_name(block)])
            meta = {
                "script": to_json(self._script),
                "stage": place,
                "rates": self._rates,
                "begins_s": begins_s,
                "machine_begins": self._machine_begins,
            }
            for k in stage.devices:
                name = node_name(owner.cluster, k)
                owner.send(name, "assign", self._tag._replace(place=k), meta=meta, arrays=arrays)

    def _collect(self, begins_s: float) -> float:
        """Take the segments back; returns when all are there [s]."""
        owner = self._owner
        ends = begins_s
        for k in self.numbers():
            frame = owner.mailbox.wait("segment", self._tag._replace(place=k))
            ends = max(ends, owner.clock.ready(frame.at_s))
            self._events += frame.meta["events"]
            for name in owner.kept:
                owner.kept[name] = {**owner.kept[name], **under(name, frame.arrays)}
        return ends

    def _upload(self, begins_s: float) -> None:
        """Send the update to the server."""
        owner = self._owner
        owner.clock.begin(begins_s + self._script.upload_s)
        ends = owner.clock.finish(begins_s + self._script.upload_s)
        arrays = below(EMBEDDING, owner.embedding.arrays())
        for name, kept in owner.kept.items():
            arrays |= below(name, {n: a for n, a in kept.items() if not n.startswith("frozen/")})
        self._events += [list(event) for event in owner.recorded]
        meta = {"updated": self._updated, "events": self._events, "collected_s": begins_s}
        kind = f"update_{owner.cluster}"
        owner.send(SERVER, kind, self._tag, at_s=ends, meta=meta, arrays=arrays)


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
            if script.arrived[self._step][m]:
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
            self._owner.send(node_name(self._owner.cluster, k), kind, tag, at_s=at_s, arrays=arrays)

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
        tag = self._round.tag._replace(step=self._step, place=self._owner.cluster, micro_batch=m)
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
        if learning.proximal and part.flat is not None and self._round.beginning is not None:
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
        served = owner.mailbox.wait("served", tag._replace(place=owner.cluster))
        ends_s = max(ends_s, float(served.meta["ends_s"]))
        updated = any(self._round.units(self._step))
        factor = min(clip / math.sqrt(squares), 1.0) if clip and squares > 0.0 else 1.0
        next_s = ends_s + script.allreduce_s + script.update_s + script.replicas_s + script.barrier_s
        meta = {"update": updated, "factor": factor, "next_s": next_s}
        for k in self._round.numbers():
            name = node_name(owner.cluster, k)
            owner.send(name, "apply", tag._replace(place=k), at_s=ends_s, meta=meta)
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
