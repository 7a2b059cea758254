"""The head of GPT-2 and Llama on the server: the last norm, and the product with the vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.encoder_blocks import DEVIATION
from collapipe_env.models.norms import norm


class LanguageHead(nn.Module):
    """The last norm and scores of the next token.

    The norm is GPT-2's layer norm with style ``gpt2``, which makes (V_out + 2) d parameters, and Llama's RMS
    norm with style ``llama``, (V_out + 1) d. The forward pass takes 2 q d V_out FLOPs per sample of q
    positions.

    A tied head's matrix is the embedding's table, which is on the control units. The server keeps a copy;
    :mod:`collapipe_env.training.tied_head` makes both equal at the end of every round.

    Attributes:
        weight: Output matrix, shape (V_out, d).
        tied: Whether it equals the embedding's table.
    """

    def __init__(self, architecture: Architecture, outputs: int, generator: Generator) -> None:
        """Draw the weights; a tied head has an output for each token of the vocabulary."""
        super().__init__()
        d = architecture.width
        self.epsilon, self.tied = architecture.norm_epsilon, architecture.tied_head
        self.norm_gain = nn.Parameter(torch.ones(d))
        self.norm_bias = nn.Parameter(torch.zeros(d)) if architecture.style == "gpt2" else None
        self.weight = nn.Parameter(torch.randn(outputs, d, generator=generator) * DEVIATION)

    def forward(self, hidden: Tensor, *_: Any) -> Tensor:
        """Map the last block's outputs (samples, n, d) to scores of the next token, (samples, n, V_out)."""
        return functional.linear(norm(hidden, self.norm_gain, self.norm_bias, self.epsilon), self.weight)
