"""The server's side of a round: one head that follows all clusters, copies of it, or SplitFed's sequence."""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence

import torch
from torch import Tensor, nn

from collapipe_env.ground.arrays import IntArray
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.flat_parameters import Trained

Part = Trained[nn.Module]


class Server:
    """The server's side of a round; methods are called in this order.

    By itself it has one head, which steps after each batch, runs no encoder blocks and keeps no optimisers
    but the head's.
    """

    def __init__(self, head: Part) -> None:
        """Remember the common head, which all kinds of servers share."""
        self._head = head

    def begin_round(self, models: Sequence[ClusterModel], server_blocks: IntArray) -> None:
        """Start from the clusters' models, all equal; the server runs their last blocks, as many as (N,)."""

    def parts(self) -> Sequence[Part]:
        """Return all that the server trains in the current round."""
        return [self._head]

    def parts_for(self, cluster: int) -> Sequence[Part]:  # noqa: ARG002 - one for all
        """Return what a cluster's batches train: encoder blocks in their order, and a head."""
        return self.parts()

    def optimizers(self) -> Sequence[torch.optim.Optimizer]:
        """Return the optimisers of the server's modules in the current round."""
        return [part.optimizer for part in self.parts()]

    def begin_step(self) -> None:
        """Start a local step."""

    def serve(self, cluster: int) -> tuple[Sequence[nn.Module], nn.Module]:
        """Return the encoder blocks and the head for a cluster's next batch, their gradients zeroed."""
        *blocks, head = self.parts_for(cluster)
        for part in (*blocks, head):
            part.flat.gradients.zero_()
        return [block.module for block in blocks], head.module

    def after_batch(self, cluster: int, units: float) -> None:  # noqa: ARG002 - a batch is a batch
        """Use the gradients of a batch from which ``units`` > 0 units arrived."""
        for part in self.parts_for(cluster):
            part.optimizer.step()

    def end_step(self) -> None:
        """End a local step."""

    def head_after(self, weights: Tensor) -> Tensor:  # noqa: ARG002 - copies are averaged
        """Return the parameters that the common head ends the round with, flat.

        The clusters' weights in the average have the shape (N,) and sum to 1.
        """
        return self._head.flat.values

    def end_round(self, models: Sequence[ClusterModel], weights: Tensor) -> None:
        """Make the server's part common again; the weights are those of :meth:`head_after`.

        The clusters' models are already averaged; blocks that only the server trained are written to them.
        """

    def forget(self, blocks: Sequence[int]) -> None:
        """Let the moments of encoder blocks start again from zero, where this server keeps any."""

    def own_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return, by name, the optimisers that this server keeps from round to round."""
        return {}

    def know(self, names: Container[str], models: Sequence[ClusterModel]) -> None:
        """Create the modules whose optimisers have such names, where they do not exist yet."""


class CommonServer(Server):
    """One head for all clusters; in each local step it steps with the mean gradient over all arrivals."""

    def __init__(self, head: Part) -> None:
        super().__init__(head)
        self._gradient = torch.zeros_like(head.flat.gradients)
        self._arrived = 0.0

    def begin_step(self) -> None:
        """Forget the gradients of the last local step."""
        self._gradient.zero_()
        self._arrived = 0.0

    def after_batch(self, cluster: int, units: float) -> None:  # noqa: ARG002 - one for all
        """Add the gradients up, weighted by units."""
        self._gradient.add_(self._head.flat.gradients, alpha=units)
        self._arrived += units

    def end_step(self) -> None:
        """Step with the mean gradient, if anything arrived."""
        if self._arrived:
            torch.div(self._gradient, self._arrived, out=self._head.flat.gradients)
            self._head.optimizer.step()


class CopiesServer(Server):
    """A server-side model for each cluster within a round, then averaged: ``head: copies``, and SplitFed V1.

    A copy starts every round from the common head and takes a step after each of its cluster's batches, with
    an optimiser of its own that lives on from round to round. The server's encoder blocks need no copies
    here: a cluster's own blocks, stepped by its own optimiser and averaged with the others', are the same
    thing, so the server runs those.
    """

    def __init__(self, head: Part, clusters: int, learning: LearningSpec) -> None:
        super().__init__(head)
        rate = learning.server_learning_rate
        self._copies = [Trained.of(copy.deepcopy(head.module), learning, rate) for _ in range(clusters)]
        self._blocks: list[list[nn.Module]] = []

    def begin_round(self, models: Sequence[ClusterModel], server_blocks: IntArray) -> None:
        """Set all copies to the common head, which a round in another mode may have changed."""
        for replica in self._copies:
            replica.flat.values.copy_(self._head.flat.values)
        self._blocks = [
            list(model.blocks)[len(model.blocks) - count :]
            for model, count in zip(models, server_blocks.tolist(), strict=True)
        ]

    def parts(self) -> Sequence[Part]:
        """Return the copies."""
        return self._copies

    def parts_for(self, cluster: int) -> Sequence[Part]:
        """Return the cluster's copy."""
        return [self._copies[cluster]]

    def serve(self, cluster: int) -> tuple[Sequence[nn.Module], nn.Module]:
        """Return the cluster's own blocks and its copy of the head."""
        return self._blocks[cluster], super().serve(cluster)[1]

    def head_after(self, weights: Tensor) -> Tensor:
        """Return the average of the copies."""
        return weights @ torch.stack([copied.flat.values for copied in self._copies])

    def end_round(self, models: Sequence[ClusterModel], weights: Tensor) -> None:  # noqa: ARG002
        """Average the copies into the common head."""
        self._head.flat.values.copy_(self.head_after(weights))

    def own_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return the copies' optimisers, by cluster."""
        return {str(n): replica.optimizer for n, replica in enumerate(self._copies)}


class SequentialServer(Server):
    """SplitFed V2: one server-side model that steps after each batch, the clusters in turn.

    A later cluster meets weights that an earlier one has moved. The common head's optimiser steps the head.
    Each block has an optimiser of its own here, with the clusters' step size; its state lives on over the
    rounds in which the server runs the block. Blocks on the server are not averaged. A cluster's own copies
    of them are idle: they get no gradients, and if the optimiser's moments or weight decay move them all the
    same, the end of the round overwrites them.
    """

    def __init__(self, head: Part, learning: LearningSpec, rounding: torch.Generator) -> None:
        super().__init__(head)
        self._learning, self._rounding = learning, rounding
        self._known: dict[int, Part] = {}
        self._active: dict[int, Part] = {}

    def begin_round(self, models: Sequence[ClusterModel], server_blocks: IntArray) -> None:
        """Fetch the blocks from the common model; ``server_blocks`` are equal for all clusters."""
        blocks = models[0].blocks
        active = range(len(blocks) - int(server_blocks[0]), len(blocks))
        self.know([str(index) for index in active], models)
        self._active = {index: self._known[index] for index in active}
        for index, block in self._active.items():
            block.module.load_state_dict(blocks[index].state_dict())

    def parts(self) -> Sequence[Part]:
        """Return the blocks that the server runs, and the head."""
        return [*self._active.values(), self._head]

    def end_round(self, models: Sequence[ClusterModel], weights: Tensor) -> None:  # noqa: ARG002
        """Copy the server's blocks into every cluster's model."""
        for index, block in self._active.items():
            for model in models:
                model.blocks[index].load_state_dict(block.module.state_dict())

    def forget(self, blocks: Sequence[int]) -> None:
        """Forget the moments of those blocks that the server has run."""
        for index in self._known.keys() & set(blocks):
            self._known[index].optimizer.state.clear()

    def own_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return the optimisers of all blocks that the server has ever run, by block index."""
        return {str(index): block.optimizer for index, block in self._known.items()}

    def know(self, names: Container[str], models: Sequence[ClusterModel]) -> None:
        """Copy blocks that the server has never run; :meth:`begin_round` fills them."""
        for index, block in enumerate(models[0].blocks):
            if str(index) in names and index not in self._known:
                rate, mine = self._learning.learning_rate, copy.deepcopy(block)
                self._known[index] = Trained.of(mine, self._learning, rate, self._rounding)
