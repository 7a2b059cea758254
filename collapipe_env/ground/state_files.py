"""Files of state trees: NumPy's ``npz`` with one JSON text for everything that is not an array."""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.archives import open_zip
from collapipe_env.ground.errors import StateError, reason, shown
from collapipe_env.ground.files import parse_json, read_regular, write_bytes
from collapipe_env.ground.state_trees import Tree

REMEDY = "use a file that save_state(path) has written"
"""Remedy for a bad file, unless the caller gives another."""
TEXT = "tree"
"""Name of the array that holds the JSON text, as bytes."""
STATE_BYTES = 16 * 1024**3
"""Largest file of a state [byte]."""
STATE_ARRAYS = 50_000
"""Most arrays in a state's file; a real learner has a few hundred for each environment."""

_HEADER = re.compile(
    rb"\{'descr': '([<>|][fiub][0-9]{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(([0-9, ]{0,200})\), \} *\n"
)


def write_tree(path: str | os.PathLike[str], tree: Tree) -> None:
    """Write a tree so that a reader never sees half of it, even after a crash.

    Args:
        path: The file; by custom it ends in ``.npz``, and ``numpy.load`` reads it.

    Raises:
        DataError: If the place cannot be written to.
        StateError: If :func:`read_tree` would refuse the file for its size.
    """
    write_bytes(Path(path), tree_bytes(tree))


def tree_bytes(tree: Tree) -> bytes:
    """Return the content of a tree's file.

    Raises:
        StateError: If :func:`read_tree` would refuse the file for its size.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    text = json.dumps(_without_arrays(tree, "", arrays))
    arrays[TEXT] = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    size = sum(array.nbytes for array in arrays.values())
    for count, most, what in ((len(arrays), STATE_ARRAYS, "arrays"), (size, STATE_BYTES, "bytes")):
        if count > most:
            raise StateError(
                f"the state has {count:,} {what}, above the limit of {most:,}: use fewer environments"
            )
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type] # the names are no option of savez
    return buffer.getvalue()


def read_tree(path: str | os.PathLike[str], remedy: str = REMEDY) -> Tree:
    """Read a tree; nothing is unpickled or executed, and arrays take no more memory than the file is long.

    Args:
        path: A file of :func:`write_tree`.
        remedy: Remedy for a bad file, for the error.

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

    Args:
        content: The whole content.
        place: Its origin, for the error.
        remedy: Remedy for a bad file, for the error.

    Raises:
        StateError: If it is damaged or exceeds the limits.
    """
    try:
        with open_zip(content, most_members=STATE_ARRAYS) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > len(content):
                raise ValueError("its members overlap, or are compressed")
            arrays = {m.filename.removesuffix(".npy"): _array_of(m, archive.read(m)) for m in members}
        tree = _with_arrays(parse_json(arrays.pop(TEXT).tobytes()), arrays)
        if not isinstance(tree, dict) or arrays:
            raise ValueError("arrays and text do not agree")
    except (
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        KeyError,
        EOFError,
        TypeError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise StateError(f"{place} is damaged or not a state ({reason(error)}): {remedy}") from None
    return tree


def _array_of(member: zipfile.ZipInfo, content: bytes) -> npt.NDArray[Any]:
    """Return an array in NumPy's format 1.0, if its header is one that NumPy writes for plain numbers."""
    name = shown(member.filename)
    start = 10 + int.from_bytes(content[8:10], "little")
    header = _HEADER.fullmatch(content[10:start])
    if content[:8] != b"\x93NUMPY\x01\x00" or header is None:
        raise ValueError(f"{name} is not an array of numbers")
    dtype, shape = np.dtype(header[1].decode()), tuple(int(n) for n in header[3].split(b",") if n.strip())
    # The header could ask for more memory than there is.
    if math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ValueError(f"{name} is not {dtype} {shape}")
    values = np.frombuffer(content, np.uint8, offset=start)
    if dtype.kind == "b" and (values > 1).any():
        raise ValueError(f"{name} holds other bytes than those of True and False")
    array = np.frombuffer(content, dtype, offset=start)
    return array.reshape(shape, order="F" if header[2] == b"True" else "C").copy()


def _without_arrays(value: Any, place: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return the tree with every array replaced by a mapping that names it; fills ``arrays``."""
    if isinstance(value, np.ndarray):
        arrays[place] = value
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
        return arrays.pop(content)
    if kind == "tree" and isinstance(content, dict):
        return {name: _with_arrays(part, arrays) for name, part in content.items()}
    raise ValueError(f"{shown(value)} is not part of a state")
