"""States as trees: nested dictionaries of NumPy arrays and plain values, which a file can hold as they are.

Every stateful part of an environment gives such a tree and takes it back. Arrays are copied on the way out
and on the way in, so that a tree and the part it came from never share memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collapipe_env.errors import StateError

Tree = dict[str, Any]
"""Keys are strings; values are trees, NumPy arrays, integers, strings, booleans or ``None``."""

BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


def generator_tree(rng: np.random.Generator | None) -> Tree | None:
    """A generator's place in its stream and in its seed sequence, of which episodes take children.

    Raises:
        StateError: For a generator that is none of NumPy's own, or has no seed sequence.
    """
    if rng is None:
        return None
    bits = rng.bit_generator
    seeds, name = bits.seed_seq, type(bits).__name__
    if name not in BIT_GENERATORS or not isinstance(seeds, np.random.SeedSequence):
        raise StateError(
            f"a generator of type {name} with seeds of type {type(seeds).__name__} cannot be written down: "
            "use numpy.random.default_rng(seed)"
        )
    entropy = seeds.entropy
    words = None if entropy is None else [entropy] if isinstance(entropy, int) else list(entropy)
    return {
        "bits": _copied(dict(bits.state)),
        # Python's integers may be longer than any of NumPy's.
        "entropy": None if words is None else " ".join(str(int(word)) for word in words),
        "entropy_is_list": words is not None and not isinstance(entropy, int),
        "spawn_key": " ".join(str(int(word)) for word in seeds.spawn_key),
        "pool_size": int(seeds.pool_size),
        "children": int(seeds.n_children_spawned),
    }


def generator_of(tree: Tree | None, place: str) -> np.random.Generator | None:
    """The generator that :func:`generator_tree` has written down.

    Args:
        tree: What it has returned.
        place: Its name, for the error.

    Raises:
        StateError: If the tree is damaged.
    """
    if tree is None:
        return None
    try:
        entropy: Any = None if tree["entropy"] is None else [int(w) for w in tree["entropy"].split()]
        if entropy is not None and not tree["entropy_is_list"]:
            (entropy,) = entropy
        key = tuple(int(word) for word in tree["spawn_key"].split())
        seeds = np.random.SeedSequence(
            entropy, spawn_key=key, pool_size=tree["pool_size"], n_children_spawned=tree["children"]
        )
        bits = BIT_GENERATORS[tree["bits"]["bit_generator"]](seeds)
        bits.state = _copied(tree["bits"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StateError(f"{place} is not the state of a generator ({error!r}): {REMEDY}") from None
    return np.random.Generator(bits)


def children_of(rng: np.random.Generator) -> int:
    """How many children its seed sequence has given; 0 if it gives none."""
    seeds = rng.bit_generator.seed_seq
    return seeds.n_children_spawned if isinstance(seeds, np.random.SeedSequence) else 0


def rewound(rng: np.random.Generator, children: int) -> np.random.Generator:
    """A copy of a generator whose seed sequence has given fewer children."""
    tree = generator_tree(rng)
    assert tree is not None
    copy = generator_of({**tree, "children": children}, "generator")
    assert copy is not None
    return copy


REMEDY = "use a state that get_state() of an environment of the same make has returned, unchanged"


def require_alike(tree: Any, template: Any, place: str, free: frozenset[str] = frozenset()) -> None:
    """Refuse a tree that differs from another in its names, types or shapes.

    Args:
        tree: The tree.
        template: What it must be like.
        place: Its name, for the error.
        free: Places below which anything may stand.

    Raises:
        StateError: Names the first place that differs, what is there and what is expected.
    """
    if place in free:
        return
    if isinstance(template, Mapping):
        if not isinstance(tree, Mapping):
            raise StateError(f"{place} is a {type(tree).__name__}, expected a dictionary: {REMEDY}")
        for name in (*template, *tree):
            if name not in tree or name not in template:
                word = "missing" if name not in tree else "unknown"
                raise StateError(f"{place}/{name} is {word}: {REMEDY}")
            require_alike(tree[name], template[name], f"{place}/{name}", free)
    elif isinstance(template, np.ndarray):
        require_array(tree, template.shape, template.dtype, place)
    elif type(tree) is not type(template):
        raise StateError(f"{place} is {tree!r}, expected a {type(template).__name__}: {REMEDY}")


def require_array(value: Any, shape: tuple[int, ...], dtype: Any, place: str) -> None:
    """Refuse what is not an array of a shape and type.

    Raises:
        StateError: Names the place, what is there and what is expected.
    """
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype != dtype:
        found = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise StateError(f"{place} is {found}, expected an array {np.dtype(dtype)} {shape}: {REMEDY}")


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(part) for name, part in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value
