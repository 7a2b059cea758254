"""Exchange at the end of a round: updates go up, their mean comes down, and the common model moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.state_trees import Tree
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.aggregation import Aggregation
from collapipe_env.training.compact_adam import rounded_like
from collapipe_env.training.compute_device import full_precision
from collapipe_env.training.flat_parameters import Trained
from collapipe_env.training.optimizer_state import array_of, tensor_of
from collapipe_env.training.update_compression import UpdateCompressor


class Exchange:
    """Merges the clusters' models into the next common one, by messages of the sizes that are priced.

    The parts of an update are the embedding and the encoder blocks. Blocks that the server trains are not
    sent up, and not sent down if it trains them for all clusters. All parties apply the update as it was
    broadcast, the server too, so they keep one common model.
    """

    def __init__(
        self,
        replicas: Sequence[Trained[ClusterModel]],
        update_format: UpdateFormat,
        learning: LearningSpec,
        generator: Generator,
    ) -> None:
        """Begin with empty memories.

        Args:
            generator: Draws stochastic rounding, including that of new weights in bfloat16.
        """
        model, flat, _ = replicas[0]
        self._places = [flat.slices([part]) for part in (model.embedding, *model.blocks)]
        like = full_precision(flat.values)
        self.compressor = UpdateCompressor(update_format, self._places, len(replicas), like, generator)
        self._aggregation = Aggregation(learning, like)
        self._rounding = generator

    def get_state(self) -> Tree:
        """Return the clusters' unsent residuals, the rule's memory, and the generator of the rounding."""
        return {
            "residuals": array_of(self.compressor.residuals),
            "aggregation": self._aggregation.get_state(),
            "rounding": array_of(self._rounding.get_state()),
        }

    def set_state(self, tree: Tree) -> None:
        """Continue from a state of :meth:`get_state` of an exchange alike."""
        self.compressor.residuals = tensor_of(tree["residuals"], self.compressor.residuals)
        self._aggregation.set_state(tree["aggregation"])
        self._rounding.set_state(torch.from_numpy(tree["rounding"].copy()))

    @torch.no_grad()
    def end_round(
        self,
        parameters: Tensor,
        common: Tensor,
        weights: Tensor,
        server_blocks: IntArray,
        idle: Sequence[slice],
        of_server: tuple[slice, Tensor],
    ) -> None:
        """Replace every cluster's model by the next common one.

        Args:
            parameters: The clusters' parameters after their local steps, shape (N, P).
            common: Parameters at the beginning of the round, shape (P,).
            weights: Weights of the clusters, shape (N,), summing to 1; 0 where a cluster takes no part.
            server_blocks: Last blocks that the server trained, shape (N,).
            idle: Places of blocks that a sequential server trained. They are common already; it writes them
                to the models afterwards.
            of_server: Place of a tied table, and the server head's addition to the clusters' mean update of
                it; empty without a tied table.
        """
        blocks = len(self._places) - 1
        trained_on_devices = np.arange(-1, blocks) < blocks - server_blocks[:, None]
        # Updates are in single precision; parameters in that precision are overwritten in place.
        updates = full_precision(parameters).sub_(common)
        for place in idle:
            updates[:, place] = 0.0  # the optimisers' moments may have moved the clusters' copies
        takes_part = (weights > 0).cpu().numpy()
        self.compressor.upload(updates, trained_on_devices & takes_part[:, None])
        mean = weights @ updates
        table, added = of_server
        mean[table] += added
        self.compressor.broadcast(mean, np.logical_or.reduce(trained_on_devices))
        parameters.copy_(rounded_like(common + self._aggregation.step(mean), parameters, self._rounding))
