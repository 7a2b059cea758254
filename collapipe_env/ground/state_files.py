"""Files of state trees: safetensors, with one JSON text for everything that is not an array."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError

from collapipe_env.ground.errors import StateError, reason, shown
from collapipe_env.ground.files import parse_json, read_regular, write_bytes
from collapipe_env.ground.state_trees import Tree

REMEDY = "use a file that save_state(path) has written"
"""Remedy for a bad file, unless the caller gives another."""
TEXT, SUM = "tree", "sha256"
"""Names of the arrays that hold the JSON text, as bytes, and the digest of everything else."""
STATE_BYTES = 16 * 1024**3
"""Largest file of a state [byte]."""
HEADER_BYTES = 8 * 1024**2
"""Largest list of a state's arrays [byte], some 130 for each; a real learner has a few hundred arrays for
each environment."""


def write_tree(path: str | os.PathLike[str], tree: Tree) -> None:
    """Write a tree so that a reader never sees half of it, even after a crash.

    Args:
        path: The file; by custom it ends in ``.safetensors``.

    Raises:
        DataError: If the place cannot be written to.
        StateError: If :func:`read_tree` would refuse the file for its size.
    """
    write_bytes(Path(path), tree_bytes(tree))


def tree_bytes(tree: Tree) -> bytes:
    """Return the content of a tree's file.

    Raises:
        StateError: If an array holds no plain numbers, or :func:`read_tree` would refuse the file's size.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    text = json.dumps(_without_arrays(tree, "", arrays))
    arrays[TEXT] = np.frombuffer(text.encode(), dtype=np.uint8)
    arrays[SUM] = _sum(arrays)
    try:
        content = safetensors.numpy.save(arrays)
    except SafetensorError as error:
        raise StateError(f"the state holds an array that is not of plain numbers ({reason(error)})") from None
    for size, most in ((_header_size(content), HEADER_BYTES), (len(content), STATE_BYTES)):
        if size > most:
            what = f"{len(arrays):,} arrays, a list" if most == HEADER_BYTES else "a file"
            raise StateError(
                f"the state has {what} of {size:,} bytes, above the limit of {most:,}: use fewer environments"
            )
    return content


def read_tree(path: str | os.PathLike[str], remedy: str = REMEDY) -> Tree:
    """Read a tree; nothing is unpickled or executed, and lengths are checked before arrays are made.

    Raises:
        StateError: If the file cannot be read, is damaged, or exceeds the limits.
    """
    try:
        content = read_regular(Path(path), STATE_BYTES)
    except OSError as error:
        raise StateError(f"cannot read {path} ({error.strerror or error}): {remedy}") from None
    return tree_of(content, path, remedy)


def tree_of(content: bytes, place: object, remedy: str = REMEDY) -> Tree:
    """Return the tree that the content of a file holds; see :func:`read_tree`.

    Raises:
        StateError: If it is damaged or exceeds the limits.
    """
    try:
        if _header_size(content) > HEADER_BYTES:
            raise ValueError(f"its list of arrays is longer than {HEADER_BYTES:,} bytes")
        arrays = safetensors.numpy.load(content)
        if arrays.pop(SUM).tobytes() != _sum(arrays).tobytes():
            raise ValueError(f"its content does not have the {SUM} that it names")
        tree = _with_arrays(parse_json(arrays.pop(TEXT).tobytes()), arrays)
        if not isinstance(tree, dict) or arrays:
            raise ValueError("arrays and text do not agree")
    except (SafetensorError, ValueError, KeyError, TypeError, ImportError, RecursionError) as error:
        raise StateError(f"{place} is damaged or not a state ({reason(error)}): {remedy}") from None
    return tree


def _header_size(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")


def _sum(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    """The SHA-256 of names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.data)
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def _without_arrays(value: Any, place: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return the tree with every array replaced by a mapping that names it; fills ``arrays``."""
    if isinstance(value, np.ndarray):
        arrays[place] = np.array(value, value.dtype.newbyteorder("="), order="C")
        return {"array": place}
    if isinstance(value, dict):
        parts = {name: _without_arrays(v, f"{place}/{name}", arrays) for name, v in value.items()}
        return {"tree": parts}
    return value


def _with_arrays(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Undo :func:`_without_arrays`; takes the arrays out of ``arrays``."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array" and isinstance(content, str):
        array = arrays.pop(content)
        if array.dtype == np.bool_ and (array.view(np.uint8) > 1).any():
            raise ValueError(f"{shown(content)} holds other bytes than those of True and False")
        return array.copy()  # which may be written to
    if kind == "tree" and isinstance(content, dict):
        return {name: _with_arrays(part, arrays) for name, part in content.items()}
    raise ValueError(f"{shown(value)} is not part of a state")
