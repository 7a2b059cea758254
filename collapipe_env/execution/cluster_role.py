"""Role of a control unit between rounds: it holds data and model, and watches over the devices."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.heartbeats import Attendance, Pulse
from collapipe_env.execution.parts import (
    Arrays,
    Part,
    block_name,
    under,
)
from collapipe_env.execution.role import LAUNCHER, SERVER, Role
from collapipe_env.execution.transport import Endpoint
from collapipe_env.physics.recovery import RecoveryTerms
from collapipe_env.training.beginning import Beginning
from collapipe_env.training.training_setup import TrainingSetup


class ClusterRole(Role):
    """Keeper of the parts of a cluster's model with their moments, and watch over its devices.

    Attributes:
        kept: Weights and moments of every block at the start of the round.
        replicas: Replicas of blocks, by the number of local steps after which they were sent.

    Args:
        cluster: Its cluster, from 0.
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
        self._attendance: Attendance | None = None

    def warm_up(self) -> None:
        """Train a copy of the embedding once."""
        part = Part(copy.deepcopy(self.embedding.module), self.setup.learning)
        out = part.module(self.samples.tokens[:1])
        if out.requires_grad:
            torch.autograd.backward(out, torch.zeros_like(out))
        if part.optimizer is not None:
            part.optimizer.step()

    def watch(self, devices: Mapping[str, int], round: int, attempt: int) -> None:
        """Watch over the devices of an attempt from now on.

        Args:
            devices: Number of each device, by its name.
            attempt: The attempt at the round.
        """
        with self._watch:
            self._watched, self._present = dict(devices), (round, attempt)
            if self._attendance is not None:
                self._attendance.expect(set(devices))
            if any(loss.name in devices for loss in self._lost):
                self.mailbox.cancel(round, attempt)

    def losses(self) -> list[Loss]:
        """Return and forget the losses of watched devices, in the order in which they were reported."""
        with self._watch:
            found = [loss for loss in self._lost if loss.name in self._watched]
            self._lost = [loss for loss in self._lost if loss.name not in self._watched]
            return found

    def on_frame(self, sender: str, frame: Frame) -> None:
        """Take a frame; replicas are put aside, and the message of a dying device ends the attempt."""
        if frame.kind == "replica":
            kept = self.replicas.setdefault(frame.tag.step, {})
            for name in {name.partition("/")[0] for name in frame.arrays}:
                kept[name] = under(name, frame.arrays)
        elif frame.kind == "heartbeat":
            if self._attendance is not None:
                self._attendance.hear(sender)
        elif frame.kind == "dying":
            self._hear(Loss(sender, frame.at_s))
        else:
            if frame.kind == "segment":
                with self._watch:  # its blocks are here
                    self._watched.pop(sender, None)
            super().on_frame(sender, frame)

    def on_lost(self, peer: str, reason: str) -> None:
        """Note that a peer is gone; without the server or the launcher nothing can continue."""
        if peer in (SERVER, LAUNCHER):
            self.cannot_go_on(peer, reason)
        else:
            self._hear(Loss(peer, None))

    def expect_heartbeats(self, terms: RecoveryTerms) -> None:
        """From now on, treat devices that miss too many heartbeats as lost."""
        attendance = self._attendance = Attendance(terms.detection_s)

        def look() -> None:
            for name in attendance.missing():
                self._hear(Loss(name, None))

        self.pulses.append(Pulse(0.25 * terms.heartbeat_s, look, f"{self.name} listens"))

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
        at_s: Time of the failure since the start of the round [s]; ``None`` if nobody reports it.
    """

    name: str
    at_s: float | None
