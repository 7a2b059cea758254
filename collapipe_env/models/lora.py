"""Low-rank adapters (LoRA), cheaper to train and to send than whole blocks (Hu et al., arXiv 2106.09685)."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional


class Adapter(nn.Module):
    """Adds ``(alpha / r) B A x`` to a frozen linear map, with ``r (d_in + d_out)`` parameters.

    ``B`` starts at zero, so a fresh adapter changes nothing, and ``A`` is Gaussian with variance
    ``1 / d_in``.

    Attributes:
        down: ``A``, shape (r, d_in).
        up: ``B``, shape (d_out, r).
    """

    def __init__(self, inputs: int, outputs: int, rank: int, alpha: float, generator: Generator) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, inputs, generator=generator) / math.sqrt(inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))
        self.scale = alpha / rank

    def forward(self, h: Tensor) -> Tensor:
        """Return the term to add to the map's output, shape (..., d_out)."""
        return self.scale * functional.linear(functional.linear(h, self.down), self.up)


def add_adapters(model: nn.Module, rank: int, alpha: float, generator: Generator) -> None:
    """Freeze a model and give every linear map of its blocks an adapter; only adapters train from now on.

    The clusters' ``A`` and ``B`` are averaged separately, as in FedIT (Zhang et al., arXiv 2305.05644). The
    mean of their products would differ, and would have a higher rank.

    Args:
        model: A :class:`~collapipe_env.models.cluster_model.ClusterModel` with no adapters yet.
        alpha: Scale of the adapters, whose product is multiplied by ``alpha / rank``.
    """
    model.requires_grad_(False)
    for block in model.get_submodule("blocks").children():
        adapt_block(block, rank, alpha, generator)


def adapt_block(block: nn.Module, rank: int, alpha: float, generator: Generator) -> None:
    """Give all four linear maps of a block an adapter; arguments are those of :func:`add_adapters`."""
    adapters = block.get_submodule("adapters")
    assert isinstance(adapters, nn.ModuleDict)
    for name in ("qkv", "out", "up", "down"):  # queries, keys and values are one map
        outputs, inputs = block.get_parameter(f"{name}_weight").shape
        adapters[name] = Adapter(inputs, outputs, rank, alpha, generator)
