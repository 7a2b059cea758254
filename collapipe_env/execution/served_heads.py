"""Heads of all clusters in a round of the server: one for each, or one for all."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from collapipe_env.execution.head_state import HeadState
from collapipe_env.execution.head_work import HeadWork, LossFunction, shadow_of
from collapipe_env.training.servers import CommonServer, Server


class ServedHeads:
    """Heads of all clusters in a round, shared by the threads that serve the clusters.

    Attributes:
        losses: Mean loss and number of predictions, by local step and cluster.
        failure: First failure of a thread, which ends the round.

    Args:
        server: The heads with their optimisers.
        steps: Local steps of each cluster, 0 for one that sits out.
        factors: Factor of the full learning rates in each local step.
        loss: Mean loss of (outputs, targets).
        precision: Precision of forward passes.
    """

    def __init__(
        self,
        server: Server,
        steps: Sequence[int],
        factors: Sequence[float],
        loss: LossFunction,
        precision: str,
    ) -> None:
        self._server, self._steps, self._factors = server, steps, factors
        self._loss, self._precision = loss, precision
        self._common = isinstance(server, CommonServer)
        self._turn = threading.Condition()
        self._snapshots: dict[tuple[int, int], HeadState] = {}
        self._finished: dict[int, dict[int, tuple[float, torch.Tensor]]] = {}
        self._stepped = 0
        self._given_up: set[int] = set()
        self.losses: dict[tuple[int, int], tuple[float, float]] = {}
        self.failure: BaseException | None = None
        groups = [optimizer.param_groups[0] for optimizer in server.optimizers()]
        self._full_rates = [group.get("initial_lr", group["lr"]) for group in groups]

    def fail(self, error: BaseException) -> None:
        """End the round, because a thread has failed."""
        with self._turn:
            self.failure = self.failure or error
            self._turn.notify_all()

    def work(self, n: int, step: int, units: list[float]) -> tuple[HeadWork, torch.Tensor | None]:
        """Return the work on a cluster's head in a local step, and the head's gradients if they are its own.

        With one head for all, the step waits until the others have ended the one before. A local step that a
        cluster repeats after losing a device gets the same head as the first time.

        Args:
            units: Number of predictions of each micro-batch that arrives, 0 for the others.
        """
        module, gradients = self._head(n, step)
        return HeadWork(module, self._loss, units, self._precision), gradients

    def _head(self, n: int, step: int) -> tuple[torch.nn.Module, torch.Tensor | None]:
        """Return a cluster's head for a local step, its gradients zeroed, and these if they are its own."""
        with self._turn:
            if not self._common:
                _, module = self._server.serve(n)
                optimizer = self._server.optimizers()[n]
                if (n, step) in self._snapshots:
                    self._snapshots[n, step].restore(module, optimizer)
                    # Later snapshots are of steps with moments that are lost now.
                    stale = [key for key in self._snapshots if key[0] == n and key[1] > step]
                    for key in stale:
                        del self._snapshots[key]
                self._snapshots[n, step] = HeadState.of(module, optimizer)
                return module, None
            self._turn.wait_for(lambda: self._stepped >= step or self.failure is not None)
            if self.failure is not None:
                raise self.failure
            _, module = self._server.serve(n)
            if (0, step) not in self._snapshots:
                self._snapshots[0, step] = HeadState.of(module, self._server.optimizers()[0])
            # A copy: a cluster that repeats the step must not see the head change as the others end theirs.
            return shadow_of(module, self._snapshots[0, step].values)

    def end_step(self, n: int, step: int, work: HeadWork, gradients: torch.Tensor | None) -> None:
        """Use the gradients of a cluster's local step, unless it is repeated and they were used before."""
        with self._turn:
            if work.total:
                self.losses[step, n] = float(work.mean_loss), work.total
            if gradients is None:
                if work.total:
                    self._set_rates([n], step)
                    self._server.after_batch(n, work.total)
                return
            if self._stepped > step:
                return
            self._finished.setdefault(step, {})[n] = work.total, gradients
            self._step_where_all_have_ended()

    def give_up(self, n: int) -> None:
        """Undo all effects of a cluster on the heads, because it gives up this round.

        Others may have continued from a common head that had stepped with its gradients. Their gradients stay
        as they are, and the head's steps are repeated without this cluster's.
        """
        with self._turn:
            self._given_up.add(n)
            self.losses = {key: loss for key, loss in self.losses.items() if key[1] != n}
            if not self._common:
                if (n, 0) in self._snapshots:
                    _, module = self._server.serve(n)
                    self._snapshots[n, 0].restore(module, self._server.optimizers()[n])
                return
            first = min((step for step, ended in self._finished.items() if n in ended), default=self._stepped)
            for ended in self._finished.values():
                ended.pop(n, None)
            if first < self._stepped:
                self._step_again(first)
            self._step_where_all_have_ended()

    def _step_where_all_have_ended(self) -> None:
        """Step the common head as far as all continuing clusters have ended their local steps."""
        while True:
            going = {n for n, steps in enumerate(self._steps) if steps > self._stepped} - self._given_up
            ended = self._finished.get(self._stepped, {})
            if not going or not going <= ended.keys():
                return
            self._step_common_head(self._stepped, ended)
            self._stepped += 1
            self._turn.notify_all()

    def _step_again(self, first: int) -> None:
        """Take the common head back to a local step, and repeat the later steps."""
        _, module = self._server.serve(0)
        optimizer = self._server.optimizers()[0]
        self._snapshots[0, first].restore(module, optimizer)
        for step in range(first, self._stepped):
            if (0, step) in self._snapshots:
                self._snapshots[0, step] = HeadState.of(module, optimizer)
            self._step_common_head(step, self._finished[step])
        if (0, self._stepped) in self._snapshots:
            self._snapshots[0, self._stepped] = HeadState.of(module, optimizer)

    def _step_common_head(self, step: int, ended: dict[int, tuple[float, torch.Tensor]]) -> None:
        """Step the one head with the gradients of all clusters, in their order."""
        self._set_rates(range(len(self._full_rates)), step)
        self._server.begin_step()
        for n in sorted(ended):
            units, gradients = ended[n]
            if units:
                _, module = self._server.serve(n)
                trained = [p for p in module.parameters() if p.requires_grad]
                ordered = sorted(trained, key=lambda p: p.ndim < 2)
                start = 0
                for parameter in ordered:
                    assert parameter.grad is not None
                    stop = start + parameter.numel()
                    parameter.grad.copy_(gradients[start:stop].view(parameter.shape))
                    start = stop
                self._server.after_batch(n, units)
        self._server.end_step()

    def _set_rates(self, which: Sequence[int] | range, step: int) -> None:
        optimizers = self._server.optimizers()
        for index in which:
            for group in optimizers[index].param_groups:
                group.setdefault("initial_lr", self._full_rates[index])
                group["lr"] = self._full_rates[index] * self._factors[step]
