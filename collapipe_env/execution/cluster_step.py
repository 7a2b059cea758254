"""Local step as a control unit sees it: it embeds, relays in both directions, and waits for all nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from collapipe_env.execution.cluster_role import ClusterRole
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.lines import Line, Transfer
from collapipe_env.execution.parts import VALUES, Arrays
from collapipe_env.execution.role import SERVER, line_of, received
from collapipe_env.execution.sample_rows import device_rows
from collapipe_env.execution.scripts import ClusterScript
from collapipe_env.training.cluster_samples import MiniBatch


@dataclass(frozen=True)
class StepTask:
    """Local step to take.

    Attributes:
        script: Script of the round.
        tag: Round, attempt and step.
        names: Name of each node of the cluster.
        batch: Its mini-batch.
        rows: Samples of each micro-batch.
        units: Number of predictions of each micro-batch that arrives, 0 for the others.
        arrived: Micro-batches that arrive.
        rate: Its step size.
        beginning: The embedding at the start of the round.
    """

    script: ClusterScript
    tag: Tag
    names: Mapping[int, str]
    batch: MiniBatch
    rows: Sequence[tuple[int, int]]
    units: Sequence[float]
    arrived: Sequence[bool]
    rate: float
    beginning: Arrays


class LocalStep:
    """A local step as the control unit sees it: it embeds, relays in both directions, and waits."""

    def __init__(self, owner: ClusterRole, task: StepTask) -> None:
        self._owner, self._task, self._script = owner, task, task.script
        self._down, self._up, self._back = Line(), Line(), Line()
        self._outputs: dict[int, Tensor] = {}
        self._gradients: dict[int, Tensor] = {}
        self._pieces: dict[tuple[str, int], list[Frame]] = {}

    def run(self, begins_s: float) -> float:
        """Take the step; return the time when the next one, or the collection, begins [s]."""
        self._owner.embedding.clear_gradients()
        self._embed(begins_s)
        ends = self._relay(begins_s)
        self._learn()
        return self._finish(ends)

    def _embed(self, begins_s: float) -> None:
        """Embed every micro-batch, and send it to the first stage."""
        script, clock = self._script, self._owner.clock
        for m in range(script.micro_batches):
            first, end = self._task.rows[m]
            out = None
            if self._task.arrived[m]:
                out = self._owner.embedding.module(self._task.batch.tokens[first:end])
                self._outputs[m] = out
            if m == 0:  # embedding has no price: the first one is done before the step begins
                clock.begin(begins_s)
            transfer = self._carry(self._down, clock.ready(begins_s), script.hop_forward_s[0])
            self._send_rows(0, "forward_0", m, 0, transfer, out, 0)

    def _carry(self, line: Line, queued_s: float, seconds: float) -> Transfer:
        """Put a message on a line between nodes of the cluster."""
        clock = self._owner.clock
        return line.carry(queued_s, clock.lasts(seconds), clock.lasts(self._script.latency_s))

    def _line(self, element: int, direction: int, m: int, transfer: Transfer) -> dict[str, Any]:
        first, end = self._task.rows[m]
        return line_of(element, direction, transfer, self._owner.clock.now(transfer.start_s), end - first)

    def _send_rows(
        self, stage: int, kind: str, m: int, element: int, transfer: Transfer, x: Tensor | None, position: int
    ) -> None:
        """Send each device of a stage its samples of a micro-batch."""
        first, end = self._task.rows[m]
        devices = self._script.stages[stage].devices
        rows = device_rows(end - first, self._script.stages[stage].shares)
        tag = self._task.tag._replace(place=position, micro_batch=m)
        meta = self._line(element, int(kind == "backward_0"), m, transfer)
        for k, (a, b) in zip(devices, rows, strict=True):
            if a == b and len(devices) > 1:
                continue
            arrays = {} if x is None else {"x": x.detach()[a:b].contiguous().numpy()}
            name, at_s = self._task.names[k], transfer.arrives_s
            self._owner.send(name, kind, tag, at_s=at_s, meta=meta, arrays=arrays)
            meta = {}  # only the first piece carries it

    def _relay(self, begins_s: float) -> float:
        """Relay between pipeline and server; return the time when the last gradient is there [s]."""
        wanted = self._wanted()
        ends = begins_s
        while wanted:
            keys = sorted(wanted, key=lambda key: (key[1].micro_batch, key[0]))
            frame = self._owner.mailbox.wait_any(keys)
            key = next(k for k in keys if k[1] == frame.tag and k[0] == frame.kind)
            wanted.remove(key)
            self._owner.recorded += received(self._owner.cluster, frame, self._owner.clock)
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
        """Return the frames to wait for: from the last stage, from the server, and from the first stage."""
        script = self._script
        wanted = set()
        for m in range(script.micro_batches):
            tag = self._task.tag._replace(place=0, micro_batch=m)
            wanted.add(("turned_0", tag))
            first, end = self._task.rows[m]
            for word, stage in (("encoded", script.stages[-1]), ("gradient", script.stages[0])):
                rows = device_rows(end - first, stage.shares)
                wanted |= {(f"{word}_{i}", tag) for i, (a, b) in enumerate(rows) if a < b or len(rows) == 1}
        return wanted

    def _to_server(self, m: int, at_s: float, x: Tensor | None) -> None:
        script = self._script
        clock, element = self._owner.clock, 2 * len(script.stages) + 1
        transfer = self._up.carry(at_s, clock.lasts(script.uplink_s), clock.lasts(script.edge_latency_s))
        meta = self._line(element, 0, m, transfer)
        tag = self._task.tag._replace(place=0, micro_batch=m)
        arrays = {} if x is None else {"x": x.numpy()}
        self._owner.send(SERVER, "uplink", tag, at_s=transfer.arrives_s, meta=meta, arrays=arrays)

    def _to_last_stage(self, m: int, at_s: float, x: Tensor | None) -> None:
        script, S = self._script, len(self._script.stages)
        transfer = self._carry(self._back, at_s, script.hop_backward_s[S])
        last = S * len(script.stages[-1].chunks) - 1
        self._send_rows(S - 1, "backward_0", m, 2 * S, transfer, x, last)

    def _learn(self) -> None:
        """Add the gradients of the embedding, micro-batch after micro-batch, and the pull of FedProx."""
        part, learning = self._owner.embedding, self._owner.setup.learning
        for m in sorted(self._gradients):
            out = self._outputs.pop(m)
            if out.requires_grad:
                torch.autograd.backward(out, self._gradients[m])
        if learning.proximal and part.flat is not None:
            beginning = torch.from_numpy(self._task.beginning[VALUES])
            part.flat.gradients.add_(part.flat.values - beginning, alpha=learning.proximal)

    def _finish(self, ends_s: float) -> float:
        """Wait for all nodes, then let all of them update their weights."""
        owner, script, part, tag = self._owner, self._script, self._owner.embedding, self._task.tag
        clip = owner.setup.learning.gradient_clip
        squares = float(part.flat.gradients.square().sum()) if clip and part.flat is not None else 0.0
        for k in script.devices:
            frame = owner.mailbox.wait("stepped", tag._replace(place=k))
            ends_s = max(ends_s, float(frame.meta["ends_s"]))
            squares += float(frame.meta["norm"])
        served = owner.mailbox.wait("served", tag._replace(place=0))
        ends_s = max(ends_s, float(served.meta["ends_s"]))
        updated = any(self._task.units)
        factor = min(clip / math.sqrt(squares), 1.0) if clip and squares > 0.0 else 1.0
        # Added one after the other, as the simulator does.
        lengths = script.allreduce_s, script.update_s, script.replicas_s, script.barrier_s
        next_s = sum(map(owner.clock.lasts, lengths), ends_s)
        meta = {"update": updated, "factor": factor, "next_s": next_s}
        for k in script.devices:
            owner.send(self._task.names[k], "apply", tag._replace(place=k), at_s=ends_s, meta=meta)
        if updated and part.flat is not None and part.optimizer is not None:
            part.set_rate(self._task.rate)
            if factor != 1.0:
                part.flat.gradients.mul_(factor)
            part.optimizer.step()
        return next_s


def _joined(pieces: Sequence[Frame]) -> Tensor | None:
    """Return the samples of a micro-batch in their order; ``None`` if it was lost on the way."""
    ordered = sorted(pieces, key=lambda piece: int(piece.kind.rpartition("_")[2]))
    parts = [torch.from_numpy(np.array(piece.arrays["x"])) for piece in ordered if "x" in piece.arrays]
    return torch.cat(parts) if parts else None
