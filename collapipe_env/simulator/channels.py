"""Channel and load processes of a batch of environments (`system_model.md` sections 3 and 10)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from collapipe_env.simulator.draws import FloatArray, RowDraws, standard_normal, uniform

Rows = npt.NDArray[np.intp]


class Fading:
    """Effective small-scale gains: the mean power of ``m`` complex Gaussian AR(1) branches ([R]).

    ``g_i(t) = rho g_i(t-1) + sqrt(1 - rho^2) w_i(t)``, ``w ~ CN(0, 1)``, gain ``= mean_i |g_i|^2``
    (Nakagami-m; rho = 0 is i.i.d. from round to round).

    Args:
        num_envs: ``E``.
        links: Links of one environment.
        diversity: ``m`` >= 1.
        correlation: ``rho`` in [0, 1).
    """

    def __init__(self, num_envs: int, links: int, diversity: int, correlation: float) -> None:
        self._rho = correlation
        self._diversity = diversity
        # Without memory only the gain matters: the mean power of m branches is Gamma(m) / m, and one draw
        # a link takes the place of 2 m.
        if correlation == 0.0:
            self._draws = RowDraws(num_envs, (links,), self._gamma)
        else:
            self._draws = RowDraws(num_envs, (links, 2 * diversity), standard_normal)
            self._branches = np.zeros((num_envs, links, 2 * diversity))

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> FloatArray:
        """Start rows in the stationary law; returns their gains (rows, links)."""
        self._draws.reset(rows, rngs)
        fresh = self._draws.take(rows)
        if self._rho == 0.0:
            return fresh
        self._branches[rows] = fresh
        return self._gains(fresh)

    def advance(self) -> FloatArray:
        """Move every row one round on; returns the gains (E, links)."""
        fresh = self._draws.take()
        if self._rho == 0.0:
            return fresh
        self._branches = self._rho * self._branches + math.sqrt(1.0 - self._rho**2) * fresh
        return self._gains(self._branches)

    def _gamma(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        return rng.standard_gamma(self._diversity, shape) / self._diversity

    def _gains(self, branches: FloatArray) -> FloatArray:
        # Real and imaginary parts of a CN(0, 1) branch have variance 1/2 each.
        gains: FloatArray = np.einsum("...i,...i->...", branches, branches) / (2.0 * self._diversity)
        return gains


class LoadChain:
    """Background and thermal load: a slow Markov chain over speed factors ([X]).

    In each round a device keeps its level with the stay probability, else it moves to a neighbouring
    level, either one with equal probability (at the ends: the only one).

    Args:
        num_envs: ``E``.
        shape: ``(N, K)``.
        levels: Speed factors in (0, 1], in the order of the chain.
        stay_probability: Probability to keep the level, in [0, 1].
    """

    def __init__(
        self, num_envs: int, shape: tuple[int, int], levels: tuple[float, ...], stay_probability: float
    ) -> None:
        self._levels = np.asarray(levels, dtype=np.float64)
        self._stay = stay_probability
        # Inner levels have two neighbours to come from, the ends one: the stationary law is 1, 2, ..., 2, 1.
        weights = np.full(len(levels), 2.0)
        weights[[0, -1]] = 1.0
        # random() < 1, so without the last edge the index stays below the number of levels.
        self._edges = np.cumsum(weights / weights.sum())[:-1]
        self._draws = RowDraws(num_envs, shape, uniform)
        self._index = np.zeros((num_envs, *shape), dtype=np.int64)

    @property
    def constant(self) -> bool:
        """True where the factors never change."""
        return len(self._levels) == 1

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> FloatArray:
        """Start rows in the stationary law; returns their factors (rows, N, K)."""
        self._draws.reset(rows, rngs)
        if not self.constant:
            self._index[rows] = np.searchsorted(self._edges, self._draws.take(rows), side="right")
        return self._levels[self._index[rows]]

    def advance(self) -> FloatArray:
        """Move every row one round on; returns the factors (E, N, K)."""
        if not self.constant:
            u = self._draws.take()
            last = len(self._levels) - 1
            # The part of the unit interval beyond `stay` is cut in half: down, up.
            up = u >= self._stay + 0.5 * (1.0 - self._stay)
            up = np.where(self._index == 0, True, np.where(self._index == last, False, up))
            self._index = np.where(u < self._stay, self._index, self._index + np.where(up, 1, -1))
        return self._levels[self._index]
