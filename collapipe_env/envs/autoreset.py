"""Episodes of a vector environment: seeds of rows, ends of episodes, and restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode

from collapipe_env.ground.arrays import Array, BoolArray, IntArray, namespace
from collapipe_env.ground.errors import LARGEST_BITS, ScenarioError, shown


class Episodes:
    """Counts the rounds of every environment on the host, so that no device has to be read.

    Args:
        num_envs: ``E``.
        limit: Rounds of an episode.

    Attributes:
        done: Rows whose episode is over and that wait for a reset (E,). Replaced and never written to.
    """

    def __init__(self, num_envs: int, limit: int) -> None:
        self._limit = limit
        self.done: BoolArray = np.zeros(num_envs, dtype=np.bool_)
        self._rounds = np.zeros(num_envs, dtype=np.int64)

    def start(self, mask: BoolArray) -> None:
        """Begin episodes in some rows (E,)."""
        self._rounds = np.where(mask, 0, self._rounds)
        self.done = self.done & ~mask

    def play(self, reached: BoolArray | None) -> BoolArray:
        """Count a round; returns the rows whose episode it ended (E,).

        Args:
            reached: Rows that have reached their target (E,); ``None`` where there is none.
        """
        waiting = self.done
        self._rounds = self._rounds + 1
        ended = self._rounds >= self._limit
        if reached is not None:
            ended = ended | reached
        self.done = ended & ~waiting
        return self.done

    def set(self, done: BoolArray, rounds: IntArray) -> None:
        """Continue from a state.

        Args:
            done: Rows that wait for a reset (E,).
            rounds: Rounds of the rows' episodes (E,).
        """
        self.done, self._rounds = done.copy(), rounds

    def remember(self) -> Callable[[], None]:
        """Remember where the episodes are; returns a function that puts it back."""
        kept = self.done, self._rounds

        def put_back() -> None:
            self.done, self._rounds = kept

        return put_back


def checked_seed(seed: object, place: str = "seed") -> int | None:
    """Return the seed of an environment, checked.

    Args:
        seed: A whole number of Python or NumPy; ``None`` for no seed.
        place: Its name in the error.

    Raises:
        ScenarioError: For another type (also a bool), or a number below 0 or of more than
            :data:`~collapipe_env.ground.errors.LARGEST_BITS` bits.
    """
    if seed is None:
        return None
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and 0 <= seed < 2**LARGEST_BITS:
        return int(seed)
    raise ScenarioError(
        f"{place} = {shown(seed)}: use a whole number of at least 0 and below 2^{LARGEST_BITS}, or None"
    )


def seed_rows(
    rngs: list[np.random.Generator | None], seed: int | Sequence[int | None] | None, mask: BoolArray | None
) -> None:
    """Give the rows of a vector environment their generators, in place.

    Args:
        rngs: Generators of all rows, ``None`` for a row that never had one; rows without a seed continue.
        seed: One number for row 0, the next numbers for the other rows; or a list, one entry per row.
        mask: Rows that are to be reset; ``None`` for all.

    Raises:
        ScenarioError: For a list of the wrong length, or a seed that :func:`checked_seed` refuses; no row has
            a new generator then.
    """
    envs = len(rngs)
    given: Any = seed
    listed = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    if listed or (isinstance(given, np.ndarray) and given.ndim):
        if len(given) != envs:
            raise ScenarioError(
                f"seed = {shown(given)} lists {len(given)} entries for {envs} environments; give one for "
                "each, or one whole number"
            )
        seeds = [checked_seed(one, f"seed[{row}]") for row, one in enumerate(given)]
    else:
        first = checked_seed(seed)
        seeds = [None if first is None else first + row for row in range(envs)]
    for row, one in enumerate(seeds):
        if (mask is None or mask[row]) and (one is not None or rngs[row] is None):
            rngs[row] = seeding.np_random(one)[0]


def copied(array: Array) -> Array:
    """A copy of an array of any library."""
    return namespace(array).asarray(array, copy=True)


def masked(values: dict[str, Any], rows: Array) -> dict[str, Any]:
    """Values with the mask of the rows that have them, under the names that Gymnasium gives masks."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        out[name], out[f"_{name}"] = value, copied(rows)
    return out


def autoreset_mode_of(mode: str | AutoresetMode) -> AutoresetMode:
    """Return the mode in which a vector environment continues after an episode.

    Args:
        mode: Gymnasium's enum, or its value: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.

    Raises:
        ScenarioError: For any other name.
    """
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        names = ", ".join(repr(m.value) for m in AutoresetMode)
        raise ScenarioError(f"autoreset_mode = {mode!r} is not known: use one of {names}") from None


def checked_mask(mask: object, num_envs: int) -> BoolArray | None:
    """Return the mask of the environments to reset, checked.

    Args:
        mask: Booleans (E,), at least one of them True; ``None`` for all environments.
        num_envs: ``E``.

    Raises:
        ScenarioError: For another shape or type, or a mask without a True.
    """
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.shape != (num_envs,) or array.dtype != np.bool_ or not array.any():
        raise ScenarioError(
            f"options['reset_mask'] must be an array of {num_envs} booleans with at least one True, got "
            f"shape {array.shape}, dtype {array.dtype}"
        )
    return array
