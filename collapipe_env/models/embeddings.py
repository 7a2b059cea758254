"""Embeddings: token ids to activations, on the control unit."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.encoder_blocks import BERT_EPSILON, DEVIATION
from collapipe_env.models.norms import norm
from collapipe_env.models.style_fields import CAUSAL


class Embedding(nn.Module):
    """Token embedding with fixed sinusoidal positions, learned ones, or, as blocks rotate in Llama, none.

    It has (vocabulary + learned positions + types) d parameters. BERT adds token types and a layer norm of
    2 d more (Devlin et al., 2019). All its tokens are of type 0: texts are single sentences. The other types'
    rows are there for checkpoints that have them. With style ``transformer`` the table is drawn small and
    multiplied by sqrt(d) (Vaswani et al., 2017, section 3.4), so it starts at the same scale as ``pre-ln``.

    Attributes:
        weight: Table of tokens, shape (vocabulary, d).
        positions: Positions, shape (q or learned positions, d); None with style ``llama``.
        types: Table of token types, shape (types, d); None if there are no types.
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        """Draw the tables."""
        super().__init__()
        q, d, style = architecture.sequence_length, architecture.width, architecture.style
        rows = architecture.learned_positions
        learned = style in ("bert", "gpt2")
        self.dropout, self.normed = architecture.dropout, style == "bert"
        self.scale = math.sqrt(d) if style == "transformer" else 1.0
        deviation = DEVIATION if style in ("bert", *CAUSAL) else 1 / self.scale

        def table(rows: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, d, generator=generator) * deviation)

        self.weight = table(architecture.vocabulary)
        self.positions: Tensor | None
        if learned or style == "llama":
            self.positions = table(rows) if learned else None
        else:
            self.register_buffer("positions", sinusoids(q, d))
        self.types = table(architecture.token_types) if self.normed and architecture.token_types else None
        if self.normed:
            self.norm_gain, self.norm_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (samples, up to q) to activations (samples, up to q, d)."""
        x = functional.embedding(tokens, self.weight)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions[: tokens.shape[-1]]
        if self.types is not None:
            x = x + self.types[0]
        if self.normed:
            x = norm(x, self.norm_gain, self.norm_bias, BERT_EPSILON)
        return functional.dropout(x, self.dropout, self.training)


def sinusoids(length: int, width: int) -> Tensor:
    """Return the fixed positions of Vaswani et al. (2017, section 3.5).

    Returns:
        Sines at even places and cosines at odd ones, with wavelengths of 2 pi to 10,000 * 2 pi; shape
        (length, width).
    """
    frequencies = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).view(length, -1)[:, :width]
