"""Seeds of episodes, and normal numbers from uniform ones.

Random numbers are hashes of seed, round and place
(:meth:`collapipe_env.ground.backends.base.Backend.uniform`), so a process is a function of arrays without a
generator, and a row depends on its own seed alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, WordArray, loop_array, namespace
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.numbers import normal_pair, normals

Index = npt.NDArray[np.intp]

COMPONENTS = ("layout", "shadowing", "fading", "load", "arrivals", "learner")
"""Components with a seed of their own in every episode. The order must never change: seeds depend on it."""

MOST_FACTORS = 16
"""Most factors of one product: each is at least 2^-53, and the product must not vanish."""


def episode_seeds(
    rows: Index, parents: Sequence[np.random.Generator], others: Sequence[str]
) -> dict[str, WordArray]:
    """Seeds of new episodes: each takes one child of the row's seed sequence, as ``Generator.spawn`` does.

    Args:
        rows: The rows (R,).
        parents: Generators of all rows.
        others: Names of more components. Seeds of those beyond :data:`COMPONENTS` come from one more word and
            their name, so that none depends on which others there are.

    Returns:
        Words (R,) by component, so that a component's numbers do not depend on how many the others draw.

    Raises:
        ScenarioError: If a generator has no seed sequence to take children of.
    """
    words = np.empty((len(rows), len(COMPONENTS) + 1), dtype=np.uint64)
    for i, row in enumerate(rows.tolist()):
        seeds = parents[row].bit_generator.seed_seq
        if not isinstance(seeds, np.random.SeedSequence):
            raise ScenarioError(
                f"the generator of environment {row} has no seed sequence, so no seeds can be taken from it: "
                "use numpy.random.default_rng(seed)"
            )
        words[i] = seeds.spawn(1)[0].generate_state(words.shape[1], np.uint64)
    named = dict(zip(COMPONENTS, words.T[:-1], strict=True))
    return named | {name: words[:, -1] + _word(name) for name in others if name not in named}


def _word(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


class SeededGenerators(Sequence[np.random.Generator]):
    """NumPy generators of all rows, each made at its first use, because not all learners draw numbers.

    Args:
        everyone: Generators of all rows (E,), which rows without a seed use.
        rows: Rows that have a seed.
        seeds: Seeds of these rows, in the same order.
    """

    def __init__(self, everyone: Sequence[np.random.Generator], rows: Index, seeds: WordArray) -> None:
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


def normal(u: Array, first: int = 0, count: int | None = None) -> Array:
    """Standard normal numbers from uniform ones, pair by pair (Box and Muller).

    Args:
        u: Uniform numbers in (0, 1) (R, C).
        first: Column of the first one to use.
        count: Numbers to return for each row, from one column more where it is odd; ``None`` for one from
            each column, whose number must be even.

    Returns:
        Numbers (R, count).
    """
    count = u.shape[1] - first if count is None else count
    if type(u) is np.ndarray and u.dtype == np.float64:
        return normals(loop_array(u, np.float64), first, count)
    xp = namespace(u)
    pairs = xp.reshape(u[:, first : first + count + count % 2], (u.shape[0], -1, 2))
    numbers = xp.stack(normal_pair(xp.log(pairs[..., 0]), pairs[..., 1]), axis=-1)
    return xp.reshape(numbers, (u.shape[0], -1))[:, :count]
