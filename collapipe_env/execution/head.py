"""Head of a cluster on the server: gradients at given weights, one micro-batch at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from collapipe_env.execution.messages import LOST, Message, gathered
from collapipe_env.execution.roles import TimedRole
from collapipe_env.execution.sample_rows import micro_batch_rows
from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT, ClusterScript
from collapipe_env.training.compute_device import full_precision, mixed_precision
from collapipe_env.training.flat_parameters import FlatParameters, parameter_count

LossFunction = Callable[[Tensor, Tensor], Tensor]


class Served(NamedTuple):
    """Result of a head's local step.

    Attributes:
        ends_s: Time at which its last operation ended [s].
        gradients: Gradients of the mean loss, flat; micro-batches count by their shares of the predictions.
        units: Number of predictions that arrived.
        loss: Mean loss over them.
    """

    ends_s: float
    gradients: np.ndarray[Any, Any]
    units: float
    loss: float


class Head(TimedRole):
    """Worker of the server, which computes a cluster's head and keeps no state between local steps.

    Args:
        head: The module; a copy of it is used.
        loss: Mean loss of (outputs, targets).
        precision: Precision of forward passes.
    """

    def __init__(
        self, cluster: int, clock: str, scale: float, head: nn.Module, loss: LossFunction, precision: str
    ) -> None:
        super().__init__(cluster, clock, scale)
        self._head, self._loss, self._precision = copy.deepcopy(head), loss, precision
        values = torch.empty(parameter_count(self._head)).to(next(self._head.parameters()))
        self._flat = FlatParameters(self._head, values, torch.zeros_like(values))

    def begin(
        self, begins: float, script: ClusterScript, real: np.ndarray[Any, Any], targets: Tensor
    ) -> None:
        """Begin a round.

        Args:
            begins: This machine's monotonic time at which it begins [s].
            script: Script of the cluster.
            real: True for tokens that are not padding (H, B, q).
            targets: Targets of the local steps (H, B, ...).
        """
        self.begin_round(begins)
        self._real, self._targets = torch.from_numpy(np.array(real)), targets
        self.follow(script)

    def follow(self, script: ClusterScript) -> None:
        """Follow a script from now on."""
        self._script, self.events = script, []
        self._rows = micro_batch_rows(self._real.shape[1], script.micro_batches)

    def begin_step(
        self, step: int, begins_s: float, weights: np.ndarray[Any, Any], units: Sequence[float]
    ) -> None:
        """Begin a local step.

        Args:
            begins_s: Time at which it begins [s].
            weights: Weights of the head, flat.
            units: Number of predictions of each micro-batch that arrives, 0 for the others.
        """
        self.start_step(step)
        self._free_s, self._units = begins_s, units
        self._flat.values.copy_(torch.from_numpy(np.array(weights)))
        self._flat.gradients.zero_()
        self._under_way: dict[int, tuple[Tensor, Tensor]] = {}
        self._mean_loss = torch.zeros(())

    def run(self, attempt: int, kind: int, m: int, *messages: Message) -> Message:
        """Run an operation; return the gradient of the input on its way to the control unit.

        Args:
            attempt: Attempt at the round; nothing is done in one that has been given up.
            kind: ``FORWARD``, ``BACKWARD`` or ``WEIGHT``.
            m: Micro-batch.
            messages: Its input.
        """
        if attempt < self.attempt:
            return LOST
        stage, (first, end) = self._script.server, self._rows[m]
        size, element = end - first, 2 * len(self._script.stages) + 2
        ready = self.receive(messages, m, self._free_s) if kind == FORWARD else self._free_s

        def work() -> Tensor | None:
            return self._compute(kind, m, messages) if self._units[m] else None

        self._free_s, given = self.work((element, m, kind, 0), ready, stage.seconds(kind, 0), work, size)
        if kind != BACKWARD:
            return LOST
        lengths = self._script.downlink_s, self._script.edge_latency_s
        return self.send((element - 1, BACKWARD), self._free_s, lengths, (0, size), given, size)

    def _compute(self, kind: int, m: int, messages: Sequence[Message]) -> Tensor | None:
        first, end = self._rows[m]
        share = self._units[m] / sum(self._units)
        if kind == FORWARD:
            x = gathered((0, end - first), messages)
            if x is None:
                return None
            x = x.requires_grad_()
            with mixed_precision(self._precision, x.device):
                out = full_precision(
                    self._head(x, self._real[self.step, first:end], self._targets[self.step, first:end])
                )
            loss = self._loss(out, self._targets[self.step, first:end])
            self._mean_loss += loss.detach() * share
            self._under_way[m] = x, loss
            return None
        if m not in self._under_way:
            return None
        x, loss = self._under_way[m]
        if kind == WEIGHT:
            del self._under_way[m]
            trained = [p for p in self._head.parameters() if p.requires_grad]
            torch.autograd.backward(loss * share, inputs=trained)
            return None
        if self._script.server.split:  # the gradients of the weights come later
            (found,) = torch.autograd.grad(loss * share, x, retain_graph=True)
            return found
        del self._under_way[m]
        torch.autograd.backward(loss * share)
        return x.grad

    def end_step(self) -> Served:
        """Return the result of the local step."""
        gradients = self._flat.gradients.numpy().copy()
        return Served(self._free_s, gradients, sum(self._units), float(self._mean_loss))

    def record(self) -> list[tuple[float, ...]]:
        """Return the rows of its record in the present attempt."""
        return self.events
