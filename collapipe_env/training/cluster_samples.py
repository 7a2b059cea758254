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
        """Return the cluster's samples, those still waiting in this pass, and the generator."""
        return {
            "indices": self._indices.copy(),
            "waiting": self._waiting.copy(),
            "rng": generator_tree(self._rng),
        }

    def set_state(self, tree: Tree, samples: int) -> None:
        """Continue from a state of :meth:`get_state`.

        Args:
            samples: Number of samples of all clusters.

        Raises:
            StateError: If the state is damaged.
        """
        for name in ("indices", "waiting"):
            array = tree[name]
            require_array(array, (np.size(array),), np.int64, f"stream/{name}")
            if ((array < 0) | (array >= samples)).any() or not len(tree["indices"]):
                raise StateError(f"stream/{name} does not choose among {samples} samples: {REMEDY}")
        rng = generator_of(tree["rng"], "stream/rng")
        self._indices, self._waiting, self._rng = tree["indices"].copy(), tree["waiting"].copy(), rng


@dataclass(frozen=True)
class ClusterSamples:
    """Samples to train on, and their split over the clusters.

    Attributes:
        tokens: Token ids, shape (samples, q).
        targets: Targets, shape (samples, ...).
        units: Number of predictions in each sample, shape (samples,).
        parts: Indices of each cluster's samples.
        documents: Indices of each cluster's documents, where samples are packed from documents.
    """

    tokens: Tensor
    targets: Tensor
    units: FloatArray
    parts: Sequence[IntArray]
    documents: Sequence[IntArray] | None = None

    @classmethod
    def of(cls, setup: TrainingSetup, parts: Sequence[IntArray]) -> ClusterSamples:
        """Return the samples of a partition, which is one of documents where the task packs these."""
        tokens, targets = setup.train
        if setup.pack is None:
            return cls(tokens, targets, setup.units, parts)
        packed = [setup.pack(part) for part in parts]
        ends = np.cumsum([len(split) for split in packed])
        rows = np.split(np.arange(ends[-1]), ends[:-1])
        found = torch.from_numpy(np.concatenate([split.targets for split in packed]))
        return cls(
            torch.from_numpy(np.concatenate([split.tokens for split in packed])).to(tokens.device),
            found.to(tokens.device),
            setup.task.units(found).double().numpy(),
            rows,
            parts,
        )

    def next_batch(self, setup: TrainingSetup, stream: SampleStream) -> MiniBatch:
        """Return a cluster's next mini-batch, from the order of its samples."""
        indices = stream.take(setup.batch_size)
        chosen = torch.from_numpy(indices).to(self.tokens.device)
        tokens, targets = self.tokens[chosen], self.targets[chosen]
        hidden = torch.from_numpy(stream.hide(tuple(tokens.shape), setup.learning.token_dropout))
        tokens = tokens.masked_fill(hidden.to(tokens.device) & (tokens != PADDING), setup.hidden)
        return MiniBatch(tokens, targets, self.units[indices])

    def get_state(self) -> Tree:
        """Return each cluster's documents; empty where samples are not packed from documents."""
        return {str(n): part.copy() for n, part in enumerate(self.documents or ())}

    @classmethod
    def from_state(cls, setup: TrainingSetup, tree: Tree) -> ClusterSamples:
        """Return the samples of a state of :meth:`get_state`.

        Raises:
            StateError: If the state does not give each document to one cluster.
        """
        names = [str(n) for n in range(setup.clusters)]
        require_names(tree, names, "documents")
        for name in names:
            require_array(tree[name], (np.size(tree[name]),), np.int64, f"documents/{name}")
        parts = [tree[name].copy() for name in names]
        dealt = np.sort(np.concatenate(parts))
        if not all(map(len, parts)) or not np.array_equal(dealt, np.arange(len(setup.strata))):
            raise StateError(f"documents does not give each of {len(setup.strata)} to one cluster: {REMEDY}")
        return cls.of(setup, parts)
