"""Device: holds blocks of a stage, and runs its operations in the order of its script."""

from __future__ import annotations

from collections.abc import Callable

import torch

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.device_round import Builder, DeviceRound, Died, Kept
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.mailbox import Cancelled
from collapipe_env.execution.parts import Part, block_name, under
from collapipe_env.execution.role import LAUNCHER, Role, Stopped, control_unit_name
from collapipe_env.execution.segment import Segment
from collapipe_env.execution.transport import Endpoint
from collapipe_env.scenario.learning import LearningSpec


class Device(Role):
    """A device of a cluster.

    A device keeps nothing between rounds: in every round its control unit sends it the blocks to train, with
    their moments. Within a round it keeps its states after the last local steps, so that it can go back when
    another device fails.

    Attributes:
        kept: What it keeps within the present round.

    Args:
        cluster: Its cluster, from 0.
        number: Its number, from 1.
        build_block: Returns a block with any weights.
        width: Width ``d`` of the activations.
        learning: Optimiser and precision.
        die: Called when the device is to fail; by default its thread ends.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        cluster: int,
        number: int,
        build_block: Builder,
        width: int,
        learning: LearningSpec,
        die: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(endpoint, clock)
        self.cluster = cluster
        self.kept = Kept(number)
        self._build, self._width, self._learning = build_block, width, learning
        self._die, self._round = die, -1

    def warm_up(self) -> None:
        """Train a block once."""
        part = Part(self._build(), self._learning)
        segment = Segment([[part.module]], self._learning.precision)
        real = torch.ones(1, 2, dtype=torch.bool)
        out = segment.forward(0, 0, torch.zeros(1, 2, self._width), real)
        segment.backward(0, 0, torch.zeros_like(out))
        if part.optimizer is not None:
            part.optimizer.step()

    def on_frame(self, sender: str, frame: Frame) -> None:
        """Take a frame; replicas are put aside."""
        if frame.kind == "replica":
            kept = self.kept.replicas.setdefault(frame.tag.step, {})
            for block in {int(name.partition("/")[0][1:]) for name in frame.arrays}:
                kept[block] = under(block_name(block), frame.arrays)
            return
        super().on_frame(sender, frame)

    def on_lost(self, peer: str, reason: str) -> None:
        """Note that a peer is gone; without the control unit or the launcher the device cannot go on."""
        if peer in (control_unit_name(self.cluster), LAUNCHER):
            self.cannot_go_on(peer, reason)

    def carry_out(self, frame: Frame) -> None:
        """Take part in an attempt at a round."""
        if frame.kind != "assign":
            return
        if frame.tag.round != self._round:
            self._round, self.kept = frame.tag.round, Kept(self.kept.number)
        try:
            DeviceRound(self, self.cluster, self.kept, frame, self._build, self._learning).run()
        except Cancelled:
            pass
        except Died:
            self.close()
            self._die()
            raise Stopped from None
