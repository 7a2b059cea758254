"""Choosing environments out of a batch, on the host and on the device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

BoolArray = npt.NDArray[np.bool_]


class Rows:
    """Some of ``E`` environments.

    All of them are the common case, when episodes of equal length end together: then nothing has to be
    copied to the device and tensors are replaced as a whole.

    Args:
        mask: True for those that are meant (E,), on the host.
        device: Where the tensors live.
    """

    def __init__(self, mask: BoolArray, device: torch.device) -> None:
        self.host: npt.NDArray[np.intp] = np.flatnonzero(mask)
        self.all = len(self.host) == len(mask)
        self._index = None if self.all else torch.from_numpy(self.host).to(device)
        if self.all:
            self.mask = torch.ones(len(mask), dtype=torch.bool, device=device)
        else:
            self.mask = torch.from_numpy(mask.copy()).to(device)

    def __len__(self) -> int:
        return len(self.host)

    def put(self, old: Tensor, fresh: Tensor) -> Tensor:
        """A tensor (E, ...) with fresh values (rows, ...) in these rows; the old one is left as it was."""
        if self._index is None:
            return fresh
        return old.index_copy(0, self._index, fresh)

    def fill(self, old: Tensor, value: float) -> Tensor:
        """A tensor (E, ...) with one value in these rows; the old one is left as it was."""
        if self._index is None:
            return torch.full_like(old, value)
        return old.index_fill(0, self._index, value)

    def of(self, values: Tensor) -> Tensor:
        """These rows of a tensor (E, ...)."""
        return values if self._index is None else values.index_select(0, self._index)
