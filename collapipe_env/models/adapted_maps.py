"""Linear maps of a block, which adapters may add to."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional


class AdaptedMaps(nn.Module):
    """A block's four linear maps by name: ``"qkv"``, ``"out"``, ``"up"`` and ``"down"``.

    A map called ``name`` has the parameters ``{name}_weight``, shape (rows, columns), and ``{name}_bias``,
    which is ``None`` where the block's style has none.

    Attributes:
        adapters: Modules by the name of a map, called with the map's input; their results are added to its
            output. Empty unless adapters were added.
    """

    def __init__(self) -> None:
        """Begin without adapters."""
        super().__init__()
        self.adapters = nn.ModuleDict()

    def linear(self, name: str, h: Tensor) -> Tensor:
        """Apply a linear map and, if it has one, its adapter.

        Args:
            name: ``"qkv"``, ``"out"``, ``"up"`` or ``"down"``.
            h: Its input, shape (samples, q, columns).

        Returns:
            Its output, shape (samples, q, rows).
        """
        # Straight from the dictionaries: nn.Module's look-ups take a tenth of a small map's time.
        parameters: Any = self._parameters
        adapters: Any = self._modules["adapters"]
        out: Tensor = functional.linear(h, parameters[f"{name}_weight"], parameters[f"{name}_bias"])
        return out + adapters[name](h) if name in adapters else out
