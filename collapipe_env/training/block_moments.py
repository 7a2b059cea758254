"""Moments of blocks that change device: they travel, rounded or not, or start again from zero ([X])."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from collapipe_env.ground.arrays import IntArray
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.physics.moves import LOST, TRAVEL
from collapipe_env.training.flat_parameters import FlatParameters


class BlockMoments:
    """Memory of the clusters' optimisers, block by block.

    A forgotten block is like one that has never taken a step: its moments and its step count are zero, so
    AdamW starts its bias correction again.
    """

    def __init__(
        self,
        models: Sequence[ClusterModel],
        flats: Sequence[FlatParameters],
        optimizers: Sequence[torch.optim.Optimizer],
        moment_bits: int,
    ) -> None:
        """Find the blocks' memory.

        Args:
            optimizers: Their optimisers, which keep the blocks' memory apart.
            moment_bits: Bits per number of moments that travel: 32, or 16 for bfloat16, which has the range
                of single precision, so no second moment vanishes.
        """
        self._optimizers, self._rounds = optimizers, moment_bits < 32
        self._memories = [
            [flat.memories(optimizer, block) for block in model.blocks]
            for model, flat, optimizer in zip(models, flats, optimizers, strict=True)
        ]

    @torch.no_grad()
    def change_hands(self, moments: IntArray) -> None:
        """Let moments travel or be lost before a round.

        Args:
            moments: ``STAY``, ``TRAVEL`` or ``LOST`` for every block, shape (N, L).
        """
        for n, block in np.argwhere(moments == LOST).tolist():
            for part in self._memories[n][block]:
                self._optimizers[n].state.pop(part, None)
        if not self._rounds:
            return
        for n, block in np.argwhere(moments == TRAVEL).tolist():
            for part in self._memories[n][block]:
                for name, values in self._optimizers[n].state.get(part, {}).items():
                    if name != "step" and values is not None:
                        values.copy_(values.bfloat16())
