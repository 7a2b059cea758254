"""A slow Markov chain over levels, which only moves to neighbours."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, namespace


class LevelChain:
    """Levels ``0`` to ``last``, each kept for a round with a probability.

    Otherwise the chain moves to a neighbouring level, either one with equal probability (at the ends, to the
    only one). Its stationary law gives inner levels twice the weight of the ends, as they have two neighbours
    to come from.

    Args:
        levels: Number of levels; a single one is never left.
        stay: Probability that a level is kept for a round.
    """

    def __init__(self, levels: int, stay: float) -> None:
        self.last = levels - 1
        self._stay = stay if self.last else 1.0
        weights = np.full(levels, 2.0)
        weights[[0, -1]] = 1.0
        # Uniform numbers are below 1, so without the last edge the index stays below the number of levels.
        self._edges = Constant(np.cumsum(weights / weights.sum())[:-1])

    def begun(self, u: Array) -> Array:
        """Levels of the stationary law, int64, from uniform numbers of any shape."""
        xp = namespace(u)
        level = xp.searchsorted(self._edges.like(u), xp.reshape(u, (-1,)), side="right")
        return xp.reshape(xp.astype(level, xp.int64), u.shape)

    def moved(self, level: Array, u: Array) -> Array:
        """Levels after a round, from uniform numbers of their shape."""
        xp = namespace(u)
        # The part of the unit interval beyond `stay` is cut in half: down, up; at the ends there is one way.
        up = (u >= self._stay + 0.5 * (1.0 - self._stay)) & (level < self.last) | (level == 0)
        moves = xp.astype(u >= self._stay, xp.int64)
        return level + moves * (2 * xp.astype(up, xp.int64) - 1)
