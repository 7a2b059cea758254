"""Arrivals on tensors: which micro-batches' gradients a round delivers (`system_model.md` section 7)."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, namespace
from collapipe_env.ground.backends import Backend


class TensorArrivals:
    """Draws the number of micro-batches that survive every local step.

    Micro-batches survive independently of each other, so the number of survivors is binomial, and all sets
    of that size are equally likely. Two uniform numbers per cluster and local step draw both.

    The numbers drawn do not depend on the allocation, so all schedulers meet the same luck on the same seed
    (common random numbers). With the same luck, more micro-batches arrive where survival is likelier.

    The numbers are those of :func:`collapipe_env.kernels.arrivals.arrivals`, by a table of the whole
    distribution function.

    Args:
        steps: Local steps ``H``.
        most: Largest allowed ``M``.
    """

    def __init__(self, steps: int, most: int, backend: Backend) -> None:
        self._steps, self._backend = steps, backend
        self._counts = Constant(np.arange(float(most)))

    def draw(self, seeds: Array, rounds: Array, survival: Array, micro_batches: Array) -> Array:
        """Return the micro-batches that arrive (E, N, H), real numbers; a second call returns the same.

        Args:
            seeds: The rows' seeds (E,).
            rounds: Rounds of the episodes before this one (E,), int64.
            survival: Probability that a micro-batch survives a local step (E, N).
            micro_batches: ``M`` (E, N).
        """
        xp = namespace(survival)
        N, H = survival.shape[-1], self._steps
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
