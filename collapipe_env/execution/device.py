"""Device: holds the blocks of a stage, and runs its operations as they are called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from collapipe_env.execution.engine import Lost
from collapipe_env.execution.messages import LOST, Message, gathered
from collapipe_env.execution.parts import Arrays, LocalTraining, Part, Parts
from collapipe_env.execution.roles import TrainingRole
from collapipe_env.execution.sample_rows import Rows, device_rows, micro_batch_rows
from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT, ClusterScript, node_name
from collapipe_env.execution.segment import Segment
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import build_block
from collapipe_env.models.lora import adapt_block
from collapipe_env.physics.payload import UpdateFormat


@dataclass(frozen=True)
class DeviceSetting:
    """Setting of a device, which builds blocks and fills them with the weights that it is sent.

    Attributes:
        architecture: Sizes and style of the blocks.
        update_format: Says whether blocks have adapters.
        learning: Optimiser and precision.
    """

    architecture: Architecture
    update_format: UpdateFormat
    learning: LocalTraining

    def build_block(self) -> nn.Module:
        """Return a block with arbitrary weights."""
        generator = torch.Generator().manual_seed(0)
        block: nn.Module = build_block(self.architecture, generator)
        wire = self.update_format
        if wire.compression == "lora":
            block.requires_grad_(False)
            adapt_block(block, wire.lora_rank, wire.lora_alpha, generator)
        return block


class Device(TrainingRole):
    """A device of a cluster. It keeps nothing between rounds.

    Args:
        number: Its number, from 1.
        setting: Setting of its blocks.
    """

    def __init__(self, cluster: int, number: int, clock: str, scale: float, setting: DeviceSetting) -> None:
        super().__init__(cluster, clock, scale, setting.learning)
        self._number, self._setting = number, setting
        self._warm_up()

    def _warm_up(self) -> None:
        """Train a block once, which takes longer the first time."""
        part = Part(self._setting.build_block(), self.learning)
        segment = Segment([[part.module]], self.learning.precision)
        real = torch.ones(1, 2, dtype=torch.bool)
        out = segment.forward(0, 0, torch.zeros(1, 2, self._setting.architecture.width), real)
        segment.backward(0, 0, torch.zeros_like(out))
        if part.optimizer is not None:
            part.optimizer.step()

    def begin(self, begins: float) -> None:
        """Begin a round, without any blocks.

        Args:
            begins: This machine's monotonic time at which it begins [s].
        """
        self.begin_round(begins)
        self.parts, self.kept = {}, {0: {}}

    def assign(
        self, script: ClusterScript, place: int, real: np.ndarray[Any, Any], step: int, dies_at: float | None
    ) -> None:
        """Get ready for a stage, with blocks that were taken over before.

        Args:
            script: Script of the cluster.
            place: Stage, from 0.
            real: True for tokens that are not padding (H, B, q).
            step: Next local step.
            dies_at: Time at which the device is to fail, since the start of the round [s].
        """
        self._script, self._place, self._stage = script, place, script.stages[place]
        self._mine = self._stage.devices.index(self._number)
        self._split = self._stage.split
        self._real = torch.from_numpy(np.array(real))
        self._rows = micro_batch_rows(self._real.shape[1], script.micro_batches)
        self._dies_at = math.inf if dies_at is None else dies_at
        chunks = [range(*chunk) for chunk in self._stage.chunks]
        blocks = {
            block: Part(self._setting.build_block(), self.learning) for chunk in chunks for block in chunk
        }
        for block, part in blocks.items():
            part.set_arrays(self.give(step, block, "state"), f"block {block}")
        self.parts = dict(blocks.items())
        modules = [[blocks[block].module for block in chunk] for chunk in chunks]
        self._segment = Segment(modules, self.learning.precision, recompute=script.recompute)

    def begin_step(self, step: int, begins_s: float) -> None:
        """Begin a local step at a time [s]."""
        self.start_step(step)
        self._free_s = begins_s
        self._segment.clear()

    def run(self, attempt: int, kind: int, m: int, chunk: int, arrived: bool, *messages: Message) -> Message:
        """Run an operation; return its result on its way to the next stage.

        Args:
            attempt: Attempt at the round; nothing is done in one that has been given up.
            kind: ``FORWARD``, ``BACKWARD`` or ``WEIGHT``.
            m: Micro-batch.
            chunk: Chunk of the stage.
            arrived: Whether the micro-batch's gradient arrives.
            messages: Its input, in the order of the samples.

        Raises:
            Lost: If the device is to fail before the operation ends.
        """
        if attempt < self.attempt:
            return LOST
        first, end = self._rows[m]
        size, shares = end - first, self._stage.shares
        rows = device_rows(size, shares)
        mine = rows[self._mine]
        seconds = self._stage.seconds(kind, chunk)
        recorded = len(self.events)
        ready = self._free_s if kind == WEIGHT else self.receive(messages, m, self._free_s)
        self._live_until(ready + seconds)

        def work() -> Tensor | None:
            if not arrived or mine[0] == mine[1]:
                return None
            return self._compute(kind, m, chunk, mine, messages)

        place = 2 * self._place + 1, m, kind, chunk
        self._free_s, given = self.work(place, ready, seconds, work, size)
        if self._mine > 0:  # the lead device speaks for all
            del self.events[recorded:]
        if kind == WEIGHT:
            return LOST
        speaker = next((i for i, (a, b) in enumerate(rows) if a < b), 0)
        line, airtime = self._link(kind, chunk)
        lengths = airtime, self._script.latency_s
        return self.send(line, self._free_s, lengths, mine, given, size, speaks=self._mine == speaker)

    def _compute(
        self, kind: int, m: int, chunk: int, rows: Rows, messages: Sequence[Message]
    ) -> Tensor | None:
        if kind == WEIGHT:
            if messages[0].x is not None:  # its own backward pass has been carried out
                self._segment.weight(m, chunk)
            return None
        x = gathered(rows, messages)
        if x is None:
            return None
        if kind == FORWARD:
            start = self._rows[m][0]
            real = self._real[self.step, start + rows[0] : start + rows[1]]
            return self._segment.forward(m, chunk, x, real)
        if self._split:
            return self._segment.backward_input(m, chunk, x)
        return self._segment.backward(m, chunk, x)

    def _link(self, kind: int, chunk: int) -> tuple[tuple[int, int], float]:
        """Return element and direction of the link that takes a result, and its airtime [s]."""
        script, S = self._script, len(self._script.stages)
        if kind == FORWARD and self._place == S - 1 and chunk < len(self._stage.chunks) - 1:
            return (2 * S + 3, kind), script.wrap_forward_s
        if kind == BACKWARD and self._place == 0 and chunk > 0:
            return (2 * S + 3, kind), script.wrap_backward_s
        if kind == FORWARD:
            return (2 * self._place + 2, kind), script.hop_forward_s[self._place + 1]
        return (2 * self._place, kind), script.hop_backward_s[self._place]

    def _live_until(self, end_s: float) -> None:
        """Fail if the device is to fail before a time [s]."""
        if end_s > self._dies_at:
            raise Lost([node_name(self.cluster, self._number)])

    def gradients(self) -> Arrays:
        """Return the gradients of the blocks, by block."""
        return {str(b): part.flat.gradients.numpy().copy() for b, part in self.parts.items() if part.flat}

    def add(self, *others: Mapping[str, np.ndarray[Any, Any]]) -> Arrays:
        """Add the gradients of the stage's other devices; return the sums."""
        for other in others:
            for block, part in self.parts.items():
                if part.flat is not None:
                    part.flat.gradients.add_(torch.from_numpy(np.array(other[str(block)])))
        return self.gradients()

    def replace(self, total: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Take over the sums of the stage's gradients."""
        for block, part in self.parts.items():
            if part.flat is not None:
                part.flat.gradients.copy_(torch.from_numpy(np.array(total[str(block)])))

    def end_step(self) -> tuple[float, float]:
        """Return when the last operation ended [s], and the sum of squared gradients; 0 but for the lead."""
        squares = self.pulled_squares()
        return self._free_s, squares if self._mine == 0 else 0.0

    def collect(self, begins_s: float) -> tuple[Parts, float, list[tuple[float, ...]]]:
        """Hand the segment over; return it, its time of arrival [s], and the record.

        The first device of a stage hands it over for all.

        Args:
            begins_s: Time at which the collection begins [s].

        Raises:
            Lost: If the device is to fail before its end.
        """
        self._live_until(begins_s + self.clock.lasts(self._script.collect_s))
        ends = begins_s + self.clock.lasts(self._script.collect_each_s[self._number - 1])
        self.clock.begin(ends)
        parts = {block: part.arrays() for block, part in self.parts.items()} if self._mine == 0 else {}
        return parts, self.clock.finish(ends), self.events
