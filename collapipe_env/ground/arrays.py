"""Arrays of any library of the Python array API standard: namespace, bounds, joining.

Bounds are plain numbers. The standard's ``maximum`` and ``minimum`` may turn a Python number into an array,
which on a GPU means waiting for a copy; ``clip`` takes it as it is. NumPy's ``clip`` is slow, so NumPy arrays
still use ``maximum`` and ``minimum``.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any
"""An array of any library of the Python array API standard (NumPy, PyTorch, CuPy, JAX, ...)."""

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
WordArray: TypeAlias = npt.NDArray[np.uint64]


def namespace(*arrays: Array) -> ModuleType:
    """Return the array-API namespace of the arrays (plain NumPy first: it is the hot path).

    Numbers are NumPy's, too: with ``NUMBA_DISABLE_JIT=1`` loops are not compiled, and give them to formulas.
    """
    for array in arrays:
        if type(array) is not np.ndarray:
            break
    else:
        return np
    if all(map(_is_number, arrays)):
        return np
    module: ModuleType = array_api_compat.array_namespace(*arrays)
    return module


def _is_number(value: Any) -> bool:
    """Return what ``np.isscalar`` would, which PyTorch's compiler takes for an operation on tensors.

    Every call would split a compiled function in two, and fails where shapes are symbolic (PyTorch 2.13:
    ``'bool' object has no attribute 'node'``).
    """
    return isinstance(value, int | float | np.generic)


def on_host(array: Array) -> npt.NDArray[Any]:
    """Return an array of any library as a NumPy array; on a GPU this waits for the numbers."""
    if type(array) is np.ndarray or _is_number(array):
        return np.asarray(array)
    return np.asarray(array_api_compat.to_device(array, "cpu"))


def loop_array(array: Any, kind: Any) -> npt.NDArray[Any]:
    """Return an array in the one form that compiled loops are compiled for: contiguous and writable.

    Numba compiles a function anew for read-only arrays (such as broadcast ones) and for other types and
    orders in memory, which takes up to half a minute. A copy is made only where the form differs.
    """
    found = np.ascontiguousarray(array, dtype=kind)
    return found if found.flags.writeable else found.copy()


def loop_record(numbers: Any) -> npt.NDArray[Any]:
    """Return a named tuple's numbers, also those of nested ones, as one record of the same names (1,).

    Compiled functions pass an array of records as one pointer, but a named tuple as all of its numbers in
    every call: for fifty numbers that takes longer than a round of a small scenario. Nothing may write to it.
    """
    return np.array([numbers], dtype=_record_type(numbers))


def _record_type(numbers: Any) -> np.dtype[Any]:
    fields = [
        (name, _record_type(value) if isinstance(value, tuple) else np.asarray(value).dtype)
        for name, value in numbers._asdict().items()
    ]
    return np.dtype((np.record, np.dtype(fields, align=True)))


def from_host(values: npt.NDArray[Any], like: Array) -> Array:
    """Return a host array as an array with the library, device and type of ``like``."""
    xp = namespace(like)
    if xp is np:
        return values.astype(like.dtype, copy=False)
    return xp.asarray(values, dtype=like.dtype, device=array_api_compat.device(like))


def log1p(x: Array) -> Array:
    """``log(1 + x)`` of an array; compiled loops have their own version for numbers."""
    return namespace(x).log1p(x)


def log(x: Array) -> Array:
    """``log(x)`` of an array; compiled loops have their own version for numbers."""
    return namespace(x).log(x)


def exp(x: Array) -> Array:
    """``exp(x)`` of an array; compiled loops have their own version for numbers."""
    return namespace(x).exp(x)


def expm1(x: Array) -> Array:
    """``exp(x) - 1`` of an array; compiled loops have their own version for numbers."""
    return namespace(x).expm1(x)


def floor(x: Array) -> Array:
    """Whole parts of an array, of its type; compiled loops have their own version for numbers."""
    return namespace(x).floor(x)


def whole(x: Array) -> Array:
    """Whole numbers of an array as int64; compiled loops have their own version for numbers."""
    xp, one = namespace(x), _is_number(x)
    return int(x) if one else xp.astype(x, xp.int64)


def sqrt(x: Array) -> Array:
    """Square roots of an array; compiled loops have their own version for numbers."""
    return namespace(x).sqrt(x)


def cos_sin_of_turns(turns: Array) -> tuple[Array, Array]:
    """``cos(2 pi t)`` and ``sin(2 pi t)`` of an array; compiled loops have their own version."""
    xp, angle = namespace(turns), (2.0 * math.pi) * turns
    return xp.cos(angle), xp.sin(angle)


def where(condition: Array, x: Array | float, y: Array | float) -> Array:
    """Return ``x`` where the condition holds, ``y`` elsewhere; compiled loops have their own version."""
    return namespace(condition).where(condition, x, y)


def possible(condition: Array) -> Any:  # noqa: ARG001 - numbers look at it
    """Return whether a branch is to be taken: always for arrays; compiled loops return a number's condition.

    What the branch changes must depend on the condition element by element. Loops then skip work in vain.
    """
    return True


def at_least(values: Array, bound: float) -> Array:
    """Return the larger of each value and the bound, of the values' type; NaN stays NaN."""
    xp = namespace(values)
    return np.maximum(values, bound) if xp is np else xp.clip(values, bound, None)


def at_most(values: Array, bound: float) -> Array:
    """Return the smaller of each value and the bound, of the values' type; NaN stays NaN."""
    xp = namespace(values)
    return np.minimum(values, bound) if xp is np else xp.clip(values, None, bound)


def concatenate(arrays: tuple[Array, ...]) -> Array:
    """Join arrays along their last axis."""
    xp = namespace(*arrays)
    return np.concatenate(arrays, axis=-1) if xp is np else xp.concat(arrays, axis=-1)


class Constant:
    """Constant numbers, available as an array of any library, on any device.

    Args:
        values: The numbers, on the host.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values
        self._elsewhere: dict[Any, Array] = {}

    def like(self, array: Array, dtype: Any = None) -> Array:
        """Return the numbers in the library and on the device of an array; they are copied there once.

        Args:
            array: Any array of the library and device wanted.
            dtype: Type of the numbers; ``None`` for the array's type. NumPy gets the numbers as they are.
        """
        if type(array) is np.ndarray:
            return self.values
        key = (array.device, dtype or array.dtype)
        if key not in self._elsewhere:
            xp = namespace(array)
            self._elsewhere[key] = xp.asarray(self.values, dtype=key[1], device=key[0])
        return self._elsewhere[key]
