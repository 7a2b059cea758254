"""Control unit: embeds its cluster's samples, relays between pipeline and server, and keeps the blocks."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from collapipe_env.execution.messages import Message, gathered
from collapipe_env.execution.parts import (
    EMBEDDING,
    Arrays,
    LocalTraining,
    Part,
    PartName,
    Parts,
    without_frozen,
)
from collapipe_env.execution.roles import TrainingRole
from collapipe_env.execution.sample_rows import micro_batch_rows
from collapipe_env.execution.scripts import BACKWARD, FORWARD, ClusterScript


class Update(NamedTuple):
    """Update of a cluster after a round.

    Attributes:
        parts: Weights and moments of its model.
        ends_s: Time at which it has arrived [s].
        collected_s: Time at which the segments were collected, by the machine's clock [s].
        measured_s: Time at which it has arrived, by the machine's clock [s].
        events: Rows of the record of the cluster's nodes.
    """

    parts: Parts
    ends_s: float
    collected_s: float
    measured_s: float
    events: list[tuple[float, ...]]


class ControlUnit(TrainingRole):
    """Control unit of a cluster.

    Args:
        embedding: The embedding; a copy of it is trained.
        frozen: Weights of each block that are not trained.
    """

    def __init__(
        self,
        cluster: int,
        clock: str,
        scale: float,
        learning: LocalTraining,
        embedding: nn.Module,
        frozen: Sequence[Mapping[str, Any]],
    ) -> None:
        super().__init__(cluster, clock, scale, learning)
        self._embedding = Part(copy.deepcopy(embedding), learning)
        self._frozen = frozen
        self.parts = {EMBEDDING: self._embedding}
        self._warm_up(Part(copy.deepcopy(embedding), learning))

    @staticmethod
    def _warm_up(part: Part) -> None:
        """Train an embedding once, which takes longer the first time."""
        out = part.module(torch.zeros(1, 2, dtype=torch.int64))
        if out.requires_grad and part.optimizer is not None:
            torch.autograd.backward(out, torch.zeros_like(out))
            part.optimizer.step()

    def begin(
        self, begins: float, script: ClusterScript, model: Mapping[PartName, Arrays], tokens: Tensor
    ) -> None:
        """Begin a round.

        Args:
            begins: This machine's monotonic time at which it begins [s].
            script: Script of the cluster.
            model: The common model, and the cluster's own moments.
            tokens: Tokens of the local steps (H, B, q).
        """
        self.begin_round(begins)
        self._tokens = tokens
        blocks: Parts = {b: {**frozen, **model.get(b, {})} for b, frozen in enumerate(self._frozen)}
        self._embedding.set_arrays(model.get(EMBEDDING, {}), EMBEDDING)
        self.kept = {0: {**blocks, EMBEDDING: self._embedding.arrays()}}
        self.follow(script)

    def follow(self, script: ClusterScript) -> None:
        """Follow a script from now on."""
        self._script = script
        self._rows = micro_batch_rows(self._tokens.shape[1], script.micro_batches)

    def go_back(self, step: int, reset: Sequence[int]) -> None:
        """Go back to the state before a local step; see :meth:`~.roles.TrainingRole.go_back`."""
        super().go_back(step, reset)
        self._embedding.set_arrays(self.kept[step][EMBEDDING], EMBEDDING)

    def begin_step(self, step: int, begins_s: float) -> None:
        """Begin a local step at a time [s]."""
        self.start_step(step)
        self._begins_s = begins_s
        self._outputs: dict[int, Tensor] = {}

    def embed(self, m: int, arrived: bool) -> Message:
        """Embed a micro-batch; embedding has no price, and the first one is done before the step begins.

        Args:
            arrived: Whether the micro-batch's gradient arrives.
        """
        first, end = self._rows[m]
        if arrived:
            self._outputs[m] = self._embedding.module(self._tokens[self.step, first:end])
        if m == 0:
            self.clock.begin(self._begins_s)
        x = self._outputs[m].detach() if arrived else None
        ready = self.clock.ready(self._begins_s)
        lengths = self._script.hop_forward_s[0], self._script.latency_s
        return self.send((0, FORWARD), ready, lengths, (0, end - first), x, end - first)

    def up(self, m: int, *messages: Message) -> Message:
        """Relay a micro-batch from the last stage to the server."""
        lengths = self._script.uplink_s, self._script.edge_latency_s
        return self._relay((2 * len(self._script.stages) + 1, FORWARD), m, messages, lengths)

    def down(self, m: int, *messages: Message) -> Message:
        """Relay a micro-batch's gradient from the server to the last stage."""
        lengths = self._script.hop_backward_s[-1], self._script.latency_s
        return self._relay((2 * len(self._script.stages), BACKWARD), m, messages, lengths)

    def _relay(
        self, line: tuple[int, int], m: int, messages: Sequence[Message], lengths: tuple[float, float]
    ) -> Message:
        first, end = self._rows[m]
        rows = 0, end - first
        ready = self.receive(messages, m)
        return self.send(line, ready, lengths, rows, gathered(rows, messages), end - first)

    def learn(self, devices: int, *messages: Message) -> tuple[float, float]:
        """Add the gradients of the embedding, micro-batch after micro-batch.

        Args:
            devices: Devices of the first stage.
            messages: The gradient of each micro-batch, a message from each of these devices.

        Returns:
            Time of the last one [s], and the sum of squared gradients.
        """
        ends = self._begins_s
        last = max(message.at_s for message in messages)  # it has waited for
        pieces = [messages[m * devices : (m + 1) * devices] for m in range(len(self._rows))]
        for m, some in enumerate(pieces):  # before it computes, which would look like lateness
            ends = max(ends, self.receive(some, m, last))
        for m, (first, end) in enumerate(self._rows):
            gradient = gathered((0, end - first), pieces[m])
            if gradient is not None and self._outputs[m].requires_grad:
                torch.autograd.backward(self._outputs.pop(m), gradient)
        return ends, self.pulled_squares()

    def upload(self, begins_s: float, *segments: tuple[Mapping[PartName, Arrays], float, Any]) -> Update:
        """Collect the segments, and send the cluster's update to the server.

        Args:
            begins_s: Time at which the collection begins [s].
            segments: What the devices hand over.
        """
        clock, ends, events = self.clock, begins_s, list(self.events)
        parts: Parts = {b: without_frozen(self.kept[0][b]) for b in range(len(self._frozen))}
        for handed, at_s, seen in segments:
            ends = max(ends, clock.ready(at_s))
            events += seen
            parts |= handed
        collected = clock.now(ends)
        ends += clock.lasts(self._script.upload_s)
        clock.begin(ends)
        ends = clock.finish(ends)
        return Update(
            {EMBEDDING: self._embedding.arrays(), **parts}, ends, collected, clock.now(ends), events
        )
