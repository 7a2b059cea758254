"""State trees: nested dictionaries of NumPy arrays and plain values, which a file can hold unchanged.

Every stateful part of an environment returns such a tree and accepts it back. Arrays are copied on the way
out and on the way in, so that a tree and the part it came from never share memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.errors import StateError, shortened, shown

Tree = dict[str, Any]
"""Keys are strings; values are trees, NumPy arrays, integers, strings, booleans or ``None``."""

BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


LARGEST_NUMBER = 1e30
"""Largest number in a state: above any quantity of a system, while products of a few such stay finite."""
LARGEST_POOL = 1024
"""Most words in a seed sequence's pool; NumPy's own has 4. The mixing time grows with their square."""


def generator_tree(rng: np.random.Generator) -> Tree:
    """Return a generator's position in its stream and in its seed sequence, which gives episodes children.

    The seed is written in words of 32 bits, as NumPy itself reads it.

    Raises:
        StateError: If the generator is not one of NumPy's own, or has no seed sequence.
    """
    bits = rng.bit_generator
    seeds, name = bits.seed_seq, type(bits).__name__
    if (
        name not in BIT_GENERATORS
        or not isinstance(seeds, np.random.SeedSequence)
        or seeds.pool_size > LARGEST_POOL
    ):
        raise StateError(
            f"a generator of type {name} with seeds of type {type(seeds).__name__} cannot be written down: "
            "use numpy.random.default_rng(seed)"
        )
    return {
        "bits": dict(bits.state),
        "entropy": _words(seeds.entropy),
        "spawn_key": _words(seeds.spawn_key),
        "pool_size": int(seeds.pool_size),
        "children": int(seeds.n_children_spawned),
    }


def _words(numbers: Any) -> str:
    """Whole numbers in words of 32 bits, the lowest word first, as hexadecimal digits."""
    each = [numbers] if isinstance(numbers, int | np.integer) else numbers
    parts = ((int(number), max(1, -(-int(number).bit_length() // 32))) for number in each)
    return b"".join(number.to_bytes(4 * words, "little") for number, words in parts).hex()


def generator_of(tree: Any, place: str) -> np.random.Generator:
    """Return the generator of a tree from :func:`generator_tree`.

    Raises:
        StateError: If the tree is damaged.
    """
    require_names(tree, ("bits", "entropy", "spawn_key", "pool_size", "children"), place)
    try:
        entropy, key = (
            np.frombuffer(bytes.fromhex(tree[name]), "<u4").tolist() for name in ("entropy", "spawn_key")
        )
        pool, children = tree["pool_size"], tree["children"]
        # A huge pool would fill the memory, and too large a count of children would give no seeds.
        if type(pool) is not int or not 4 <= pool <= LARGEST_POOL:
            raise ValueError(f"pool_size is {shown(pool)}, expected 4 to {LARGEST_POOL}")
        if type(children) is not int or not 0 <= children < 2**63:
            raise ValueError(f"children is {shown(children)}, expected 0 to {2**63 - 1}")
        seeds = np.random.SeedSequence(entropy, spawn_key=key, pool_size=pool, n_children_spawned=children)
        bits = BIT_GENERATORS[tree["bits"]["bit_generator"]](seeds)
        require_alike(tree["bits"], bits.state, f"{place}/bits")
        for name, part, most in (("pos", tree["bits"]["state"], 624), ("buffer_pos", tree["bits"], 4)):
            # NumPy would read outside of a generator's buffer.
            if name in part and not 0 <= part[name] <= most:
                raise ValueError(f"{name} is {shown(part[name])}, expected 0 to {most}")
        bits.state = tree["bits"]
    except StateError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = shortened(repr(error))
        raise StateError(f"{place} is not the state of a generator ({reason}): {REMEDY}") from None
    return np.random.Generator(bits)


def children_of(rng: np.random.Generator) -> int:
    """Return the number of children that a generator's seed sequence has given; 0 if it gives none."""
    seeds = rng.bit_generator.seed_seq
    return seeds.n_children_spawned if isinstance(seeds, np.random.SeedSequence) else 0


def rewound(rng: np.random.Generator, children: int) -> np.random.Generator:
    """Return a copy of a generator whose seed sequence has given fewer children."""
    return generator_of({**generator_tree(rng), "children": children}, "generator")


REMEDY = "use a state that get_state() of an environment of the same make has returned, unchanged"


def require_text(tree: Any, place: str) -> None:
    """Refuse anything but a dictionary with texts as names.

    Raises:
        StateError: If it is something else; the message gives the first name.
    """
    if not isinstance(tree, Mapping):
        raise StateError(f"{place} is a {type(tree).__name__}, expected a dictionary: {REMEDY}")
    for name in tree:
        if not isinstance(name, str):
            raise StateError(f"{place}/{shown(name)} is unknown: {REMEDY}")


def require_alike(tree: Any, template: Any, place: str) -> None:
    """Refuse a tree that differs from another in its names, types or shapes.

    Args:
        template: The tree that it must match; ``...`` in it stands for anything.

    Raises:
        StateError: With the first place that differs, its value and the expected one.
    """
    if isinstance(template, Mapping):
        require_text(tree, place)
        for name in (*template, *tree):
            if name not in tree or name not in template:
                word = "missing" if name not in tree else "unknown"
                raise StateError(f"{place}/{shortened(name)} is {word}: {REMEDY}")
            require_alike(tree[name], template[name], f"{place}/{name}")
    elif isinstance(template, np.ndarray):
        require_array(tree, template.shape, template.dtype, place)
    elif template is not ... and type(tree) is not type(template):
        raise StateError(f"{place} is {shown(tree)}, expected a {type(template).__name__}: {REMEDY}")


def require_array(value: Any, shape: tuple[int, ...], dtype: Any, place: str) -> None:
    """Refuse anything but an array of the given shape and type.

    Raises:
        StateError: With the place, its value and the expected one.
    """
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype != dtype:
        found = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise StateError(f"{place} is {found}, expected an array {np.dtype(dtype)} {shape}: {REMEDY}")


def require_within(
    values: npt.NDArray[Any], low: float, high: float, place: str, *, unknown: bool = False
) -> None:
    """Refuse an array that holds a number out of range.

    Args:
        unknown: Whether NaN is also allowed.

    Raises:
        StateError: Names the place, the first number at fault and the range.
    """
    index = first_outside(values, low, high, unknown=unknown)
    if index is not None:
        raise StateError(f"{place} holds {values[index]}, expected {low:g} to {high:g}: {REMEDY}")


def first_outside(
    values: npt.NDArray[Any], low: float, high: float, *, unknown: bool = False
) -> tuple[int, ...] | None:
    """Return the place of the first number out of range, of which NaN always is one unless ``unknown``."""
    fine = (values >= low) & (values <= high)
    if unknown:
        fine |= np.isnan(values)
    return None if fine.all() else tuple(np.argwhere(~fine)[0].tolist())


def require_names(tree: Any, names: Iterable[str], place: str) -> None:
    """Refuse anything but a dictionary with exactly these names, of any values.

    Raises:
        StateError: If a name is missing or unknown; the message gives the first.
    """
    require_alike(tree, dict.fromkeys(names, ...), place)
