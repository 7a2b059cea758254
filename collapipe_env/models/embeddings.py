"""Embeddings: token ids to activations, on the control unit."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import CAUSAL_STYLES, Architecture
from collapipe_env.models.dropout import drop
from collapipe_env.models.encoder_blocks import BERT_EPSILON, DEVIATION


def build_embedding(
    architecture: Architecture, generator: Generator
) -> SinusoidalEmbedding | LearnedEmbedding:
    """Return the embedding of an architecture's style.

    Args:
        architecture: Sizes, style and dropout.
        generator: Only source of randomness.

    Raises:
        ScenarioError: If style ``bert`` or ``gpt2`` has fewer learned positions than tokens.
    """
    if architecture.style in ("bert", *CAUSAL_STYLES):
        return LearnedEmbedding(architecture, generator)
    return SinusoidalEmbedding(architecture, generator)


class SinusoidalEmbedding(nn.Module):
    """Token embedding plus fixed sinusoidal positions; vocabulary x d parameters.

    With style ``transformer`` the table is drawn small and multiplied by sqrt(d) (Vaswani et al., 2017,
    section 3.4), so both styles start at the same scale.

    Attributes:
        weight: Table of tokens, shape (vocabulary, d).
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        """Draw the table.

        Args:
            architecture: Sizes, style and dropout.
            generator: Only source of randomness.
        """
        super().__init__()
        q, d = architecture.sequence_length, architecture.width
        self.dropout = architecture.dropout
        self.scale = math.sqrt(d) if architecture.style == "transformer" else 1.0
        self.weight = nn.Parameter(
            torch.randn(architecture.vocabulary, d, generator=generator) * (1 / self.scale)
        )
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(q, d))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (samples, up to q) to activations (samples, up to q, d)."""
        x = functional.embedding(tokens, self.weight)
        if self.scale != 1.0:
            x = x * self.scale
        return drop(x + self.positions[: tokens.shape[-1]], self.dropout, self.training)


class LearnedEmbedding(nn.Module):
    """Token embedding with learned positions, or, in Llama, whose blocks encode positions, without any.

    It has (vocabulary + positions + types) d parameters. BERT adds token types and a layer norm of 2 d more
    (Devlin et al., 2019). All its tokens are of type 0: texts are single sentences. The other types' rows are
    there for checkpoints that have them.

    Attributes:
        weight: Table of tokens, shape (vocabulary, d).
        positions: Table of positions, shape (learned positions, d); None with style ``llama``.
        types: Table of token types, shape (types, d); None if there are no types.
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        """Draw the tables.

        Args:
            architecture: Sizes, style and dropout.
            generator: Only source of randomness.

        Raises:
            ScenarioError: If style ``bert`` or ``gpt2`` has fewer learned positions than tokens.
        """
        super().__init__()
        d, rows, style = architecture.width, architecture.learned_positions, architecture.style
        if style != "llama" and rows < architecture.sequence_length:
            raise ScenarioError(
                f"learned_positions is {rows}, but style {style!r} needs one for each of the "
                f"{architecture.sequence_length} tokens of sequence_length; set learned_positions: "
                f"{architecture.sequence_length} or more"
            )
        self.dropout, self.normed = architecture.dropout, style == "bert"

        def table(rows: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, d, generator=generator) * DEVIATION)

        self.weight = table(architecture.vocabulary)
        self.positions = table(rows) if style != "llama" else None
        self.types = table(architecture.token_types) if self.normed and architecture.token_types else None
        if self.normed:
            self.norm_gain, self.norm_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (samples, up to q) to activations (samples, up to q, d)."""
        x = functional.embedding(tokens, self.weight)
        if self.positions is not None:
            x = x + self.positions[: tokens.shape[-1]]
        if self.types is not None:
            x = x + self.types[0]
        if self.normed:
            x = functional.layer_norm(x, x.shape[-1:], self.norm_gain, self.norm_bias, BERT_EPSILON)
        return drop(x, self.dropout, self.training)


def sinusoids(length: int, width: int) -> Tensor:
    """Return the fixed positions of Vaswani et al. (2017, section 3.5).

    Args:
        length: Positions q.
        width: Model width d.

    Returns:
        Sines at even places and cosines at odd ones, with wavelengths of 2 pi to 10,000 * 2 pi; shape (q, d).
    """
    frequencies = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).view(length, -1)[:, :width]
