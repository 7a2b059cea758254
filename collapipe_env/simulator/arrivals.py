"""Which micro-batches a round loses (`system_model.md` section 7)."""

from __future__ import annotations

import numpy as np

from collapipe_env.kernels.arrivals import arrivals
from collapipe_env.learners.base import Arrivals, IntArray
from collapipe_env.simulator.streams import FloatArray, Rows, Stream, WordArray
from collapipe_env.state_trees import Tree


class MicroBatchLosses:
    """Draws the survival of micro-batches in every local step.

    Micro-batches survive independently of each other, so the number that does is binomial and any set of
    that size is equally likely: two uniform numbers a cluster and local step are enough for both.

    The same numbers are drawn whatever the allocation is, so that schedulers meet the same luck on the
    same seed (common random numbers); at the same luck, more arrives where survival is likelier.

    Args:
        num_envs: ``E``.
        clusters: ``N``.
        local_steps: ``H``.
        max_micro_batches: Largest allowed ``M``.
        lossy: False where the link mode never loses a micro-batch.
    """

    def __init__(
        self, num_envs: int, clusters: int, local_steps: int, max_micro_batches: int, *, lossy: bool
    ) -> None:
        self._shape = (num_envs, clusters, local_steps)
        self._most = max_micro_batches
        self._stream = Stream(num_envs, 2 * clusters * local_steps) if lossy else None
        self._no_choice = np.zeros(self._shape, dtype=np.uint64)

    def reset(self, rows: Rows, seeds: WordArray) -> None:
        """Start rows afresh.

        Args:
            rows: The rows.
            seeds: Their seeds, in the same order.
        """
        if self._stream is not None:
            self._stream.reset(rows, seeds)

    def draw(self, survival: FloatArray, micro_batches: IntArray) -> Arrivals:
        """Return which micro-batches survive; calling it again draws the same luck until :meth:`next_round`.

        Args:
            survival: Probability that a micro-batch survives a local step (E, N).
            micro_batches: ``M`` (E, N).
        """
        if self._stream is None:
            counts = np.empty(self._shape, dtype=np.int64)
            counts[:] = micro_batches[..., None]
            return Arrivals(counts, micro_batches, self._no_choice, self._most)
        counts, pick = np.empty(self._shape, dtype=np.int64), np.empty(self._shape, dtype=np.uint64)
        whole = np.ascontiguousarray(micro_batches, dtype=np.int64)
        stream = self._stream
        arrivals(stream.seeds, stream.rounds, np.ascontiguousarray(survival), whole, counts, pick)
        return Arrivals(counts, whole, pick, self._most)

    def next_round(self) -> None:
        """Move all rows on by one round."""
        if self._stream is not None:
            self._stream.next_round()

    def get_state(self) -> Tree:
        """The stream; empty where nothing is ever lost. See :mod:`collapipe_env.state_trees`."""
        return {} if self._stream is None else self._stream.get_state()

    def set_state(self, tree: Tree) -> None:
        """Go on from a state of :meth:`get_state`, of the same shapes and types."""
        if self._stream is not None:
            self._stream.set_state(tree)
