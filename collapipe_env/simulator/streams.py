"""Random numbers of a batch of environments: a seed for each row and component, a counter for each row.

A row's numbers depend on its own seed and on how many rounds it has played, so row ``i`` of a batch is
bit-identical to a single environment with the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from collapipe_env.errors import ScenarioError
from collapipe_env.kernels.numbers import products
from collapipe_env.state_trees import Tree

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
WordArray = npt.NDArray[np.uint64]

MOST_FACTORS = 16
"""Factors of one product: each is at least 2^-53, and the product may not vanish."""


def episode_seeds(rows: Rows, parents: Sequence[np.random.Generator], components: int) -> WordArray:
    """Seeds of new episodes: each takes one child of the row's seed sequence, as ``Generator.spawn`` does.

    Args:
        rows: The rows.
        parents: Generators of all rows.
        components: Seeds of an episode, one for each component, so that a component's numbers do not depend
            on how many the others draw.

    Returns:
        Words (rows, components).

    Raises:
        ScenarioError: If a generator has no seed sequence to take children of.
    """
    words = np.empty((len(rows), components), dtype=np.uint64)
    for i, row in enumerate(rows.tolist()):
        seeds = parents[row].bit_generator.seed_seq
        if not isinstance(seeds, np.random.SeedSequence):
            raise ScenarioError(
                f"the generator of environment {row} has no seed sequence, so no seeds can be taken from it: "
                "use numpy.random.default_rng(seed)"
            )
        words[i] = seeds.spawn(1)[0].generate_state(components, np.uint64)
    return words


class SeededGenerators(Sequence[np.random.Generator]):
    """NumPy generators of all rows, each made when it is first asked for: not all learners draw numbers.

    Args:
        everyone: Generators of all rows (E,): what rows without a seed have.
        rows: Rows that have a seed.
        seeds: Their seeds, in the same order.
    """

    def __init__(self, everyone: Sequence[np.random.Generator], rows: Rows, seeds: WordArray) -> None:
        self._everyone = everyone
        self._seeds = dict(zip(rows.tolist(), seeds.tolist(), strict=True))
        self._made: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return len(self._everyone)

    @overload
    def __getitem__(self, row: int) -> np.random.Generator: ...
    @overload
    def __getitem__(self, row: slice) -> list[np.random.Generator]: ...
    def __getitem__(self, row: int | slice) -> np.random.Generator | list[np.random.Generator]:
        places = range(len(self))[row]
        if isinstance(places, range):
            return [self[i] for i in places]
        if places not in self._seeds:
            return self._everyone[places]
        if places not in self._made:
            self._made[places] = np.random.default_rng(self._seeds[places])
        return self._made[places]


class Stream:
    """One component's numbers, the same count of them in every round.

    Args:
        num_envs: ``E``.
        numbers: Uniform numbers of one environment in one round.
    """

    def __init__(self, num_envs: int, numbers: int) -> None:
        self.numbers = numbers
        self.seeds = np.zeros(num_envs, dtype=np.uint64)
        self.rounds = np.zeros(num_envs, dtype=np.uint64)

    def reset(self, rows: Rows, seeds: WordArray) -> None:
        """Start rows afresh.

        Args:
            rows: The rows.
            seeds: Their seeds, in the same order.
        """
        self.seeds[rows] = seeds
        self.rounds[rows] = 0

    def get_state(self) -> Tree:
        """Seeds and rounds of all rows; see :mod:`collapipe_env.state_trees`."""
        return {"seeds": self.seeds.copy(), "rounds": self.rounds.copy()}

    def set_state(self, tree: Tree) -> None:
        """Go on from a state of :meth:`get_state`, of the same shapes and types."""
        self.seeds, self.rounds = tree["seeds"].copy(), tree["rounds"].copy()

    def uniform(
        self, rows: Rows | None = None, factors: int = 1, out: FloatArray | None = None
    ) -> FloatArray:
        """The next round's numbers of some rows (rows, numbers / factors), or products of them.

        Calling it again gives the same until :meth:`next_round`.

        Args:
            rows: The rows; ``None`` for all.
            factors: How many numbers to multiply.
            out: Where to write; ``None`` for a fresh array.
        """
        seeds, rounds = self.seeds, self.rounds
        if rows is not None:
            seeds, rounds = seeds[rows], rounds[rows]
        if out is None:
            out = np.empty((len(seeds), self.numbers // factors))
        products(seeds, rounds, self.numbers, factors, out)
        return out

    def next_round(self, rows: Rows | None = None) -> None:
        """Move rows on by one round."""
        if rows is None:
            self.rounds += np.uint64(1)
        else:
            self.rounds[rows] += np.uint64(1)


def normal(uniform: FloatArray) -> FloatArray:
    """Standard normal numbers from uniform ones, two from two (Box and Muller).

    Args:
        uniform: In (0, 1), an even number of columns (R, C).
    """
    pairs = uniform.reshape(len(uniform), -1, 2)
    radius = np.sqrt(-2.0 * np.log(pairs[..., 0]))
    angle = (2.0 * math.pi) * pairs[..., 1]
    numbers: FloatArray = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
    return numbers.reshape(uniform.shape)
