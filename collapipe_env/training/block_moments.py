"""Moments of blocks that change device: they travel, rounded or not, or start again from zero ([X])."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from collapipe_env.ground.arrays import IntArray
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.physics.moves import LOST, TRAVEL
from collapipe_env.training.flat_parameters import Trained


@torch.no_grad()
def change_hands(replicas: Sequence[Trained[ClusterModel]], moments: IntArray, *, rounded: bool) -> None:
    """Let the moments of the clusters' blocks travel or be lost before a round.

    A forgotten block is like one that has never taken a step: its moments and its step count are zero, so
    AdamW starts its bias correction again.

    Args:
        replicas: The clusters' models; the optimisers keep the blocks' memory apart.
        moments: ``STAY``, ``TRAVEL`` or ``LOST`` for every block, shape (N, L).
        rounded: Whether moments travel in bfloat16, which has the range of single precision, so no second
            moment vanishes.
    """
    moved = (moments == LOST) | ((moments == TRAVEL) & rounded)
    for n, block in np.argwhere(moved).tolist():
        state = replicas[n].optimizer.state
        for part in replicas[n].memories(replicas[n].module.blocks[block]):
            if moments[n, block] == LOST:
                state.pop(part, None)
            for name, values in state.get(part, {}).items():
                if name != "step" and values is not None:
                    values.copy_(values.bfloat16())
