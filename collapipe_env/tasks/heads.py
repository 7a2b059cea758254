"""Linear heads on the server."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional


class TokenLinear(nn.Module):
    """A linear layer on every position; 2 q d V_out forward FLOPs per sample."""

    def __init__(self, width: int, outputs: int, generator: Generator) -> None:
        super().__init__()
        # Zero weights would give the encoder a zero gradient in the first step; with small ones the loss
        # starts near log(outputs).
        self.weight = nn.Parameter(torch.randn(outputs, width, generator=generator) * 0.5 / width**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, hidden: Tensor, mask: Tensor, targets: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return scores.

        Args:
            hidden: Encoder outputs, shape (samples, q, d).

        Returns:
            Logits, shape (samples, q, V_out).
        """
        return functional.linear(hidden, self.weight, self.bias)


class PooledLinear(TokenLinear):
    """Mean of the real tokens' encoder outputs, then a linear layer; 2 d V_out forward FLOPs per sample."""

    def forward(self, hidden: Tensor, mask: Tensor, targets: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return class scores.

        Args:
            hidden: Encoder outputs, shape (samples, q, d).
            mask: True at real tokens, shape (samples, q); at least one per sample.

        Returns:
            Logits, shape (samples, V_out).
        """
        real = mask.unsqueeze(-1)
        pooled = (hidden * real).sum(dim=1) / real.sum(dim=1)
        return functional.linear(pooled, self.weight, self.bias)
