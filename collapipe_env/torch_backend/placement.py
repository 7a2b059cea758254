"""Where the tensors live, and of which type they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collapipe_env.errors import ScenarioError, nearest_name

DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Placement:
    """A device and a real type.

    Attributes:
        device: Where tensors live.
        real: Type of everything that is no whole number.
    """

    device: torch.device
    real: torch.dtype

    @classmethod
    def of(cls, device: str | torch.device, dtype: str | torch.dtype) -> Placement:
        """Read what a user asks for.

        Args:
            device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a device object.
            dtype: ``"float64"``, ``"float32"`` or one of PyTorch's types of these names.

        Raises:
            ScenarioError: If there is no such device here, or for another type.
        """
        try:
            found = torch.device(device)
        except RuntimeError:
            raise ScenarioError(
                f"device = {device!r} is not known to PyTorch: use 'cpu', 'cuda' or 'cuda:1'"
            ) from None
        if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
            raise ScenarioError(
                f"device = {str(device)!r}, but PyTorch {torch.__version__} can use "
                f"{torch.cuda.device_count()} GPUs here: use device='cpu', or install a driver and a "
                "build of PyTorch for your GPU"
            )
        name = str(dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise ScenarioError(f"dtype = {dtype!r} is not known: {nearest_name(name, DTYPES)}")
        return cls(found, DTYPES[name])

    def reals(self, array: npt.ArrayLike) -> Tensor:
        """A tensor of real numbers; a copy, since arrays of layouts may not be written."""
        return torch.from_numpy(np.array(array, dtype=np.float64)).to(self.device, self.real)

    def as_is(self, array: npt.NDArray[Any]) -> Tensor:
        """A tensor of the array's own type; a copy."""
        return torch.from_numpy(np.array(array)).to(self.device)

    def arriving(self, array: npt.NDArray[Any]) -> Tensor:
        """A tensor of the array's own type that is copied without waiting for the device."""
        tensor = torch.from_numpy(np.array(array, order="C"))
        if self.device.type == "cuda":
            # Only from pinned memory does a GPU copy by itself.
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def zeros(self, *shape: int) -> Tensor:
        """Real zeros."""
        return torch.zeros(shape, dtype=self.real, device=self.device)
