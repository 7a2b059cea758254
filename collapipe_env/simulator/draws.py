"""Random numbers for a batch of environments, each row from its own generator.

A row's numbers depend on its own generator only, so row ``i`` of a batch is bit-identical to a single
environment with the same seed. Rounds are drawn some at a time: drawing ``C`` rounds at once or one by
one consumes a generator identically, and the loop over environments then runs once in ``C`` rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

CHUNK_BYTES = 8_000_000
MAX_CHUNK_ROUNDS = 64


class RowDraws:
    """One array of numbers a round for each of ``E`` environments.

    Args:
        num_envs: ``E``.
        shape: Shape of one environment's numbers in one round.
        draw: Draws an array of a given shape from a generator, for instance
            ``lambda rng, shape: rng.standard_normal(shape)``.
    """

    def __init__(
        self,
        num_envs: int,
        shape: tuple[int, ...],
        draw: Callable[[np.random.Generator, tuple[int, ...]], FloatArray],
    ) -> None:
        self._draw = draw
        self._shape = shape
        size = max(int(np.prod(shape)), 1)
        rounds = int(CHUNK_BYTES // (8 * size * num_envs))
        self._rounds = min(max(rounds, 1), MAX_CHUNK_ROUNDS)
        self._buffer = np.empty((num_envs, self._rounds, *shape))
        self._next = np.full(num_envs, self._rounds)
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        self._rows = np.arange(num_envs)

    def reset(self, rows: npt.NDArray[np.intp], rngs: Sequence[np.random.Generator]) -> None:
        """Give rows new generators; their unused numbers are dropped.

        Args:
            rows: Indices of the rows to reset.
            rngs: Their generators, in the same order.
        """
        for row, rng in zip(rows, rngs, strict=True):
            self._rngs[row] = rng
        self._next[rows] = self._rounds

    def take(self, rows: npt.NDArray[np.intp] | None = None) -> FloatArray:
        """Return the next round's numbers (rows, *shape), a copy.

        Args:
            rows: Rows to advance; ``None`` for all.
        """
        rows = self._rows if rows is None else rows
        for row in rows[self._next[rows] >= self._rounds]:
            rng = self._rngs[row]
            if rng is None:
                raise RuntimeError(f"environment {row} was stepped before its first reset")
            self._buffer[row] = self._draw(rng, (self._rounds, *self._shape))
            self._next[row] = 0
        taken: FloatArray = self._buffer[rows, self._next[rows]]
        self._next[rows] += 1
        return taken


def standard_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Standard normal numbers of a shape."""
    return rng.standard_normal(shape)


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Uniform numbers in [0, 1) of a shape."""
    return rng.random(shape)
