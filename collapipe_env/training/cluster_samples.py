"""Training samples of a run's clusters, as the task has them or packed from documents, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import (
    REMEDY,
    Tree,
    generator_of,
    generator_tree,
    require_array,
    require_names,
)
from collapipe_env.models.tokenization import PADDING
from collapipe_env.training.training_setup import TrainingSetup


class MiniBatch(NamedTuple):
    """Mini-batch of a local step.

    Attributes:
        tokens: Token ids (B, q), some hidden.
        targets: Targets (B, ...).
        units: Number of predictions in each sample (B,).
    """

    tokens: Tensor
    targets: Tensor
    units: FloatArray


class SampleStream:
    """Endless stream of shuffled passes over a cluster's samples; a batch may span two passes."""

    def __init__(self, indices: IntArray, rng: np.random.Generator) -> None:
        self._indices = indices
        self._rng = rng
        self._waiting = rng.permutation(indices)

    def take(self, count: int) -> IntArray:
        """Return the next ``count`` samples' indices, shape (count,)."""
        while len(self._waiting) < count:
            self._waiting = np.concatenate((self._waiting, self._rng.permutation(self._indices)))
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def hide(self, shape: tuple[int, ...], probability: float) -> BoolArray:
        """Draw the tokens to hide, each with ``probability``."""
        return self._rng.random(shape) < probability

    def get_state(self) -> Tree:
        """Return the samples still waiting in this pass, and the generator."""
        return {"waiting": self._waiting.copy(), "rng": generator_tree(self._rng)}

    def set_state(self, tree: Tree, indices: IntArray) -> None:
        """Continue with a cluster's samples from a state of :meth:`get_state`.

        Raises:
            StateError: If the state is damaged.
        """
        waiting = tree["waiting"]
        require_array(waiting, (np.size(waiting),), np.int64, "stream/waiting")
        if not np.isin(waiting, indices).all():
            raise StateError(f"stream/waiting does not choose among the cluster's samples: {REMEDY}")
        rng = generator_of(tree["rng"], "stream/rng")
        self._indices, self._waiting, self._rng = indices, waiting.copy(), rng


@dataclass(frozen=True)
class ClusterSamples:
    """Samples to train on, and their split over the clusters.

    Attributes:
        tokens: Token ids, shape (samples, q).
        targets: Targets, shape (samples, ...).
        units: Number of predictions in each sample, shape (samples,).
        parts: Indices of each cluster's samples.
        dealt: The partition: these, or indices of documents where samples are packed from documents.
    """

    tokens: Tensor
    targets: Tensor
    units: FloatArray
    parts: Sequence[IntArray]
    dealt: Sequence[IntArray]

    @classmethod
    def of(cls, setup: TrainingSetup, dealt: Sequence[IntArray]) -> ClusterSamples:
        """Return the samples of a partition, which is one of documents where the task packs these."""
        tokens, targets = setup.train
        if setup.pack is None:
            return cls(tokens, targets, setup.units, dealt, dealt)
        packed = [setup.pack(part) for part in dealt]
        ends = np.cumsum([len(split) for split in packed])
        rows = np.split(np.arange(ends[-1]), ends[:-1])
        found = torch.from_numpy(np.concatenate([split.targets for split in packed]))
        return cls(
            torch.from_numpy(np.concatenate([split.tokens for split in packed])).to(tokens.device),
            found.to(tokens.device),
            setup.task.units(found).double().numpy(),
            rows,
            dealt,
        )

    @property
    def sizes(self) -> FloatArray:
        """Number of each cluster's samples, shape (N,)."""
        return np.array([len(part) for part in self.parts], dtype=np.float64)

    def next_batch(self, setup: TrainingSetup, stream: SampleStream) -> MiniBatch:
        """Return a cluster's next mini-batch, from the order of its samples."""
        indices = stream.take(setup.batch_size)
        chosen = torch.from_numpy(indices).to(self.tokens.device)
        tokens, targets = self.tokens[chosen], self.targets[chosen]
        hidden = torch.from_numpy(stream.hide(tuple(tokens.shape), setup.learning.token_dropout))
        tokens = tokens.masked_fill(hidden.to(tokens.device) & (tokens != PADDING), setup.hidden)
        return MiniBatch(tokens, targets, self.units[indices])

    def get_state(self) -> Tree:
        """Return the partition."""
        return {str(n): part.copy() for n, part in enumerate(self.dealt)}

    @classmethod
    def from_state(cls, setup: TrainingSetup, tree: Tree) -> ClusterSamples:
        """Return the samples of a state of :meth:`get_state`.

        Raises:
            StateError: If the state does not give each sample or document to one cluster.
        """
        names = [str(n) for n in range(setup.clusters)]
        require_names(tree, names, "partition")
        for name in names:
            require_array(tree[name], (np.size(tree[name]),), np.int64, f"partition/{name}")
        dealt = [tree[name].copy() for name in names]
        everything = np.sort(np.concatenate(dealt))
        if not all(map(len, dealt)) or not np.array_equal(everything, np.arange(len(setup.strata))):
            raise StateError(f"partition does not give each of {len(setup.strata)} to one cluster: {REMEDY}")
        return cls.of(setup, dealt)
