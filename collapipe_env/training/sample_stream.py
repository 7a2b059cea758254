"""Order of a cluster's training samples."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import BoolArray, IntArray
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY, Tree, generator_of, generator_tree, require_array


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
        if rng is None:
            raise StateError(f"stream/rng is missing: {REMEDY}")
        self._indices, self._waiting, self._rng = tree["indices"].copy(), tree["waiting"].copy(), rng
