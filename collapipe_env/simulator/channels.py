"""Channel and load processes of a batch of environments (`system_model.md` sections 3 and 10)."""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.kernels.channels import link_gains
from collapipe_env.simulator.streams import MOST_FACTORS, FloatArray, Rows, Stream, WordArray, normal
from collapipe_env.state_trees import Tree, require_within


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
        # Without memory only the power of a branch matters, which is exponential: minus the logarithm of a
        # uniform number. With memory each branch takes two.
        each = diversity if correlation == 0.0 else 2 * diversity
        self._stream = Stream(num_envs, links * each)
        if correlation > 0.0:
            self._branches = np.zeros((num_envs, links, 2 * diversity))

    def reset(self, rows: Rows, seeds: WordArray) -> FloatArray:
        """Start rows in the stationary law; returns their gains (rows, links).

        Args:
            rows: The rows.
            seeds: Their seeds, in the same order.
        """
        self._stream.reset(rows, seeds)
        if self._rho == 0.0:
            return self._independent(self._stream, rows)
        fresh = self._fresh_branches(rows)
        self._branches[rows] = fresh
        return self._gains(fresh)

    def advance(self, out: FloatArray | None = None) -> FloatArray:
        """Move every row one round on; returns the gains (E, links).

        Args:
            out: Where they may be written, to save making an array; ``None`` for a fresh one.
        """
        self._stream.next_round()
        if self._rho == 0.0:
            return self._independent(self._stream, None, out)
        fresh = self._fresh_branches(None)
        self._branches = self._rho * self._branches + math.sqrt(1.0 - self._rho**2) * fresh
        return self._gains(self._branches)

    def get_state(self) -> Tree:
        """The stream and, with memory, the branches; see :mod:`collapipe_env.state_trees`."""
        tree: Tree = {"stream": self._stream.get_state()}
        if self._rho > 0.0:
            tree["branches"] = self._branches.copy()
        return tree

    def gains_in(self, tree: Tree) -> FloatArray:
        """The gains (E, links) that belong to a state of :meth:`get_state`."""
        if self._rho > 0.0:
            return self._gains(tree["branches"])
        stream = Stream(len(tree["stream"]["seeds"]), self._stream.numbers)
        stream.set_state(tree["stream"])
        return self._independent(stream)

    def set_state(self, tree: Tree) -> None:
        """Go on from a state of :meth:`get_state`, of the same shapes and types."""
        self._stream.set_state(tree["stream"])
        if self._rho > 0.0:
            self._branches = tree["branches"].copy()

    def _independent(
        self, stream: Stream, rows: Rows | None = None, out: FloatArray | None = None
    ) -> FloatArray:
        """Gamma(m) / m: a sum of exponentials is minus the logarithm of a product of uniform numbers."""
        m = self._diversity
        if m <= MOST_FACTORS:
            total = stream.uniform(rows, m, out)
            np.log(total, out=total)
        else:
            uniform = stream.uniform(rows)
            total = np.log(uniform).reshape(len(uniform), -1, m).sum(axis=-1)
        total *= -1.0 / m
        return total

    def _fresh_branches(self, rows: Rows | None) -> FloatArray:
        numbers = normal(self._stream.uniform(rows))
        return numbers.reshape(len(numbers), -1, 2 * self._diversity)

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
        # Uniform numbers are below 1, so without the last edge the index stays below the number of levels.
        self._edges = np.cumsum(weights / weights.sum())[:-1]
        self._shape = shape
        self._stream = Stream(num_envs, shape[0] * shape[1])
        self._index = np.zeros((num_envs, *shape), dtype=np.int64)

    @property
    def constant(self) -> bool:
        """True where the factors never change."""
        return len(self._levels) == 1

    def reset(self, rows: Rows, seeds: WordArray) -> FloatArray:
        """Start rows in the stationary law; returns their factors (rows, N, K).

        Args:
            rows: The rows.
            seeds: Their seeds, in the same order.
        """
        if not self.constant:
            self._stream.reset(rows, seeds)
            u = self._stream.uniform(rows).reshape(-1, *self._shape)
            self._index[rows] = np.searchsorted(self._edges, u, side="right")
        return self._levels[self._index[rows]]

    def advance(self) -> FloatArray:
        """Move every row one round on; returns the factors (E, N, K)."""
        if not self.constant:
            self._stream.next_round()
            u = self._stream.uniform().reshape(-1, *self._shape)
            last = len(self._levels) - 1
            # The part of the unit interval beyond `stay` is cut in half: down, up.
            up = u >= self._stay + 0.5 * (1.0 - self._stay)
            up = np.where(self._index == 0, True, np.where(self._index == last, False, up))
            self._index = np.where(u < self._stay, self._index, self._index + np.where(up, 1, -1))
        return self._levels[self._index]

    def get_state(self) -> Tree:
        """The stream and the levels; see :mod:`collapipe_env.state_trees`."""
        return {"stream": self._stream.get_state(), "index": self._index.copy()}

    def factors_in(self, tree: Tree) -> FloatArray:
        """The factors (E, N, K) that belong to a state of :meth:`get_state`.

        Raises:
            StateError: If it holds levels that there are not.
        """
        require_within(tree["index"], 0, len(self._levels) - 1, "simulator/load/index")
        return self._levels[tree["index"]]

    def set_state(self, tree: Tree) -> None:
        """Go on from a state of :meth:`get_state`, of the same shapes and types."""
        self._stream.set_state(tree["stream"])
        self._index = tree["index"].copy()


def laid_out(
    mean_gain: FloatArray, fading: FloatArray, devices: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Gains of uplinks (rows, N) and node pairs (rows, N, K+1, K+1).

    Args:
        mean_gain: Of the links (rows, links), uplinks first, then each cluster's pairs.
        fading: Likewise.
        devices: ``(rows, N, K)``.
    """
    rows, N, K = devices
    uplink, d2d = np.empty((rows, N)), np.empty((rows, N, K + 1, K + 1))
    link_gains(mean_gain, fading, uplink, d2d)
    return uplink, d2d
