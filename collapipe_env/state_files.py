"""Trees of states in files: NumPy's ``npz`` with one JSON text for everything that is not an array."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.errors import StateError
from collapipe_env.files import write_bytes
from collapipe_env.state_trees import Tree

TEXT = "tree"
"""Name of the array that holds the JSON text, as bytes."""
DEEPEST = 16


def write_tree(path: str | os.PathLike[str], tree: Tree) -> None:
    """Write a tree so that a reader, or a crash, never meets half of it.

    Args:
        path: The file; by custom it ends in ``.npz``, and ``numpy.load`` reads it.
        tree: The tree.

    Raises:
        DataError: If the place cannot be written to.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    text = json.dumps(_without_arrays(tree, "", arrays))
    arrays[TEXT] = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type] # the names are no option of savez
    write_bytes(Path(path), buffer.getvalue())


def read_tree(path: str | os.PathLike[str]) -> Tree:
    """Read a tree; nothing is unpickled or executed, and no more memory is taken than the file is long.

    Args:
        path: What :func:`write_tree` has written.

    Raises:
        StateError: If the file cannot be read, or is damaged.
    """
    path = Path(path)
    remedy = "use a file that save_state(path) has written"
    if path.exists() and not path.is_file():
        raise StateError(f"{path} is not a file: {remedy}")
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {
                member.filename.removesuffix(".npy"): _read_array(archive, member)
                for member in archive.infolist()
            }
        text = arrays.pop(TEXT).tobytes().decode("utf-8")
        tree = _with_arrays(json.loads(text), arrays, 0)
    except OSError as error:
        raise StateError(f"cannot read {path} ({error.strerror or error}): {remedy}") from None
    except (
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        KeyError,
        EOFError,
        TypeError,
        NotImplementedError,
        RuntimeError,
        RecursionError,
    ) as error:
        raise StateError(f"{path} is damaged or no state ({error}): {remedy}") from None
    if not isinstance(tree, dict) or arrays:
        raise StateError(f"{path} is damaged or no state: {remedy}")
    return tree


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed")
    stream = io.BytesIO(archive.read(member))
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"{member.filename} has the format {version}")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    # The header could ask for more memory than there is.
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != member.file_size - stream.tell():
        raise ValueError(f"{member.filename} is not {dtype} {shape}")
    stream.seek(0)
    array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _without_arrays(value: Any, place: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """The tree with every array replaced by a mapping that names it; the arrays go into ``arrays``."""
    if isinstance(value, np.ndarray):
        arrays[place] = value
        return {"array": place}
    if isinstance(value, dict):
        parts = {name: _without_arrays(v, f"{place}/{name}", arrays) for name, v in value.items()}
        return {"tree": parts}
    return value


def _with_arrays(value: Any, arrays: dict[str, npt.NDArray[Any]], depth: int) -> Any:
    """The inverse; takes the arrays out of ``arrays``."""
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        return arrays.pop(content)
    if kind != "tree":
        raise ValueError(f"{kind!r} is no part of a state")
    return {name: _with_arrays(part, arrays, depth + 1) for name, part in content.items()}
