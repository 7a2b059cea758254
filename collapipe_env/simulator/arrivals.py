"""Arrivals: which micro-batches' gradients a round delivers (`system_model.md` section 7)."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, namespace
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.kernels.arrivals import arrivals
from collapipe_env.simulator.learner import Arrivals


class MicroBatchArrivals:
    """Draws the survival of micro-batches in every local step.

    Micro-batches survive independently of each other, so the number of survivors is binomial, and all sets
    of that size are equally likely. Two uniform numbers per cluster and local step draw both.

    The numbers drawn do not depend on the allocation, so all schedulers meet the same luck on the same seed
    (common random numbers). With the same luck, more micro-batches arrive where survival is likelier.

    Args:
        clusters: ``N``.
        local_steps: ``H``.
        max_micro_batches: Largest allowed ``M``.
        backend: Backend of the arrays.
        lossy: False where the link mode never loses a micro-batch.
    """

    def __init__(
        self, clusters: int, local_steps: int, max_micro_batches: int, backend: Backend, *, lossy: bool
    ) -> None:
        self._shape = (clusters, local_steps)
        self._most, self._lossy, self._backend = max_micro_batches, lossy, backend
        self._counts = Constant(np.arange(float(max_micro_batches)))
        self._count = backend.fuse(self._counted)

    def draw(self, seeds: Array, rounds: Array, survival: Array, micro_batches: Array) -> Arrivals:
        """Return the micro-batches that arrive; a second call returns the same.

        Args:
            seeds: The rows' seeds (E,).
            rounds: Rounds of the episodes before this one (E,), int64.
            survival: Probability that a micro-batch survives a local step (E, N).
            micro_batches: ``M`` (E, N).
        """
        shape = (len(seeds), *self._shape)
        if type(survival) is not np.ndarray:
            xp = namespace(survival)
            if self._lossy:
                counts = self._count(seeds, rounds, survival, micro_batches)
            else:
                every = xp.broadcast_to(micro_batches[..., None], shape)
                counts = xp.astype(every, survival.dtype)
            return Arrivals(counts, micro_batches, None, self._most)
        counts = np.empty(shape, dtype=np.int64)
        if not self._lossy:
            counts[:] = micro_batches[..., None]
            return Arrivals(counts, micro_batches, np.zeros(shape, dtype=np.uint64), self._most)
        pick = np.empty(shape, dtype=np.uint64)
        whole = np.ascontiguousarray(micro_batches, dtype=np.int64)
        arrivals(seeds, rounds.view(np.uint64), np.ascontiguousarray(survival), whole, counts, pick)
        return Arrivals(counts, whole, pick, self._most)

    def restored(self, arrivals: Arrivals) -> Arrivals:
        """Rebuild the arrivals that :meth:`draw` returned from their numbers on the host.

        Args:
            arrivals: Arrivals in NumPy arrays, counts of int64.
        """
        if self._backend is NUMPY:
            return arrivals
        array = self._backend.array
        counts = array(arrivals.counts.astype(np.float64))
        return Arrivals(counts, array(arrivals.micro_batches), None, arrivals.most)

    def _counted(self, seeds: Array, rounds: Array, survival: Array, micro_batches: Array) -> Array:
        """The inverse of the binomial distribution function at uniform numbers (E, N, H), real numbers.

        Same as :func:`collapipe_env.kernels.arrivals.arrivals`, but tabulates the whole function.
        """
        xp = namespace(survival)
        N, H = self._shape
        # The second number of each pair would choose which ones arrive; only real training needs that.
        u = xp.reshape(self._backend.uniform(seeds, rounds, 2 * N * H), (-1, N, H, 2))[..., 0]
        p, M = xp.astype(survival, u.dtype)[..., None], xp.astype(micro_batches, u.dtype)[..., None]
        counts = self._counts.like(u)
        # Counting the rarer outcome keeps the first term away from zero.
        few_lost = p >= 0.5
        rare = xp.where(few_lost, 1.0 - p, p)
        ratios = rare / (1.0 - rare) * (M - counts) / (counts + 1.0)
        terms = xp.cumulative_prod(xp.concat(((1.0 - rare) ** M, ratios[..., :-1]), axis=-1), axis=-1)
        reached = xp.cumulative_sum(terms, axis=-1)[..., None, :]
        beyond = (reached < xp.where(few_lost, u, 1.0 - u)[..., None]) & (counts < M)[..., None, :]
        count = xp.astype(xp.sum(xp.astype(beyond, xp.int64), axis=-1), u.dtype)
        return xp.astype(xp.where(few_lost, M - count, count), survival.dtype)
