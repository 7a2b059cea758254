"""Resets of rows: seeds, masks and modes, checked, and values with the masks that Gymnasium gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode

from collapipe_env.ground.arrays import Array, BoolArray, namespace
from collapipe_env.ground.errors import LARGEST_BITS, ScenarioError, shown
from collapipe_env.ground.state_trees import children_of, rewound


def checked_seed(seed: object, place: str = "seed") -> int | None:
    """Return the seed of an environment, checked.

    Args:
        seed: A whole number of Python or NumPy; ``None`` for no seed.

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


def kept_generator(rng: np.random.Generator | None) -> Callable[[], np.random.Generator | None]:
    """Remember a generator; returns a function that returns it as it is now.

    A reset takes a child of the seed sequence, which cannot be given back to it.
    """
    if rng is None:
        return lambda: None
    children = children_of(rng)
    return lambda: rng if children_of(rng) == children else rewound(rng, children)


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
        return AutoresetMode(mode)
    except ValueError:
        names = ", ".join(repr(m.value) for m in AutoresetMode)
        raise ScenarioError(f"autoreset_mode = {mode!r} is not known: use one of {names}") from None


def checked_mask(mask: object, num_envs: int) -> BoolArray | None:
    """Return the mask of the environments to reset, checked.

    Args:
        mask: Booleans (E,), at least one of them True; ``None`` for all environments.

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
