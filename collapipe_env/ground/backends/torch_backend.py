"""PyTorch: the backend of tensors on a CPU or a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collapipe_env.ground.arrays import BoolArray
from collapipe_env.ground.backends.base import F, Rows
from collapipe_env.ground.errors import ScenarioError, nearest_name

DTYPES = {"float64": torch.float64, "float32": torch.float32}


class TorchBackend:
    """Tensors on one device.

    Args:
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a device object.
        dtype: Type of everything that is not a whole number: ``"float64"``, ``"float32"`` or one of PyTorch's
            types of these names.
        compiled: Whether PyTorch compiles the functions that :meth:`fuse` is given.

    Raises:
        ScenarioError: If the device is not available, or the type is not supported.
    """

    name = "torch"

    def __init__(
        self,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float64",
        *,
        compiled: bool = False,
    ) -> None:
        try:
            self.device = torch.device(device)
        except RuntimeError:
            raise ScenarioError(
                f"device = {device!r} is not known to PyTorch: use 'cpu', 'cuda' or 'cuda:1'"
            ) from None
        if self.device.type == "cuda" and (self.device.index or 0) >= torch.cuda.device_count():
            raise ScenarioError(
                f"device = {str(device)!r}, but PyTorch {torch.__version__} can use "
                f"{torch.cuda.device_count()} GPUs here: use device='cpu', or install a driver and a "
                "build of PyTorch for your GPU"
            )
        name = str(dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise ScenarioError(f"dtype = {dtype!r} is not known: {nearest_name(name, DTYPES)}")
        self.real = DTYPES[name]
        self.compiled = compiled

    def array(self, values: npt.ArrayLike, *, keep: bool = False) -> Tensor:
        """Copy numbers to the device without waiting for it; 64-bit words keep their bits."""
        copied = np.array(values, order="C")
        tensor = torch.from_numpy(copied.view(np.int64) if copied.dtype == np.uint64 else copied)
        if self.device.type == "cuda":
            # A GPU copies by itself only from pinned memory.
            tensor = tensor.pin_memory()
        real = self.real if copied.dtype.kind == "f" and not keep else None
        return tensor.to(self.device, real, non_blocking=True)

    def host(self, values: Tensor) -> npt.NDArray[Any]:
        """Copy a tensor to the host."""
        copied: npt.NDArray[Any] = values.detach().cpu().numpy().copy()
        return copied

    def rows(self, mask: BoolArray) -> Rows:
        """Choose rows of a batch; if all are chosen, nothing is copied to the device."""
        if mask.all():
            everyone = torch.ones(len(mask), dtype=torch.bool, device=self.device)
            return Rows(mask, None, everyone)
        index = torch.from_numpy(np.flatnonzero(mask)).to(self.device)
        return Rows(mask, index, torch.from_numpy(mask.copy()).to(self.device))

    def uniform(self, seeds: Tensor, rounds: Tensor, count: int, factors: int = 1) -> Tensor:
        """Return uniform numbers, or products of them, in float64."""
        first = seeds + rounds * count
        drawn = numbers(first[:, None] + torch.arange(count, device=seeds.device))
        return drawn if factors == 1 else drawn.reshape(len(seeds), factors, -1).prod(dim=1)

    def fuse(self, function: F) -> F:
        """Return a function whose operations PyTorch joins into few kernels, if the backend compiles.

        It is compiled in the first call, which takes seconds to a minute, and again for tensors of another
        shape; results differ by rounding. The first call also runs it as it is, for what it keeps on the
        device: a function that changed this while it is compiled would be compiled twice.
        """
        if not self.compiled:
            return function
        fresh = True

        @wraps(function)
        def quiet(*arguments: Any) -> Any:
            nonlocal fresh
            if fresh:
                function(*arguments)
                fresh = False
            with _silence():
                return compiled(*arguments)

        with _silence():
            # An environment's shapes and numbers never change. Left to choose, PyTorch compiles for all
            # numbers once a second environment has others, and splits what looks at them.
            compiled = torch.compile(function, dynamic=False)
        return quiet  # type: ignore[return-value]


def numbers(words: Tensor) -> Tensor:
    """Return numbers in (0, 1) from sums of seeds and counters; see :func:`~.kernels.numbers.number`.

    Signed integers wrap around in products like unsigned ones, so the bits are the same. The type is always
    float64: in float32 products of numbers would vanish, and numbers near 1 would become 1.

    Args:
        words: int64, any shape; the bits are those of NumPy's uint64.
    """
    z = words * _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    z = z ^ _shifted(z, 31)
    return (_shifted(z, 12).double() + 0.5) * 2.220446049250313e-16


def _signed(word: int) -> int:
    """Return the signed 64-bit number that has the bits of an unsigned one."""
    return word - 2**64 if word >= 2**63 else word


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Return words shifted right, with zeros from the left; PyTorch's own shift copies the sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the compiler's warnings about PyTorch's own parts and about caches of types."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
