"""Llama's block: RMS norms, rotary positions, grouped-query attention and SwiGLU; Qwen2's with biases."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import HIGH_FREQUENCY, LOW_FREQUENCY, Architecture
from collapipe_env.models.encoder_blocks import ResidualBlock
from collapipe_env.models.style_fields import require_heads


class LlamaBlock(ResidualBlock):
    """A block of Llama (Touvron et al., 2023, arXiv 2302.13971), optionally with Qwen2's biases.

    With d_kv for the width of a token's keys, and of its values, it has 2 d^2 + 2 d d_kv + 3 d d_ff + 2 d
    parameters, and d + 2 d_kv more with biases of queries, keys and values. The forward pass takes 2 q (2 d^2
    + 2 d d_kv + 3 d d_ff) + 4 q^2 d FLOPs per sample, the backward pass twice that; masked scores are
    counted, since they are computed too.

    The rows of ``qkv_weight`` give queries, keys and values, those of ``up_weight`` the gate and then the
    numbers that it scales.
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        """Draw the weights.

        Raises:
            ScenarioError: If the width of a head is odd, or the heads of keys do not divide the heads.
        """
        try:
            require_heads("llama", architecture.width, architecture.heads, architecture.kv_heads)
        except ValueError as error:
            raise ScenarioError(str(error)) from None
        d, f, kv = architecture.width, architecture.feedforward, architecture.kv_width
        maps = {"qkv": (d + 2 * kv, d), "out": (d, d)}, {"up": (2 * f, d), "down": (d, f)}
        super().__init__(architecture, "llama", architecture.blocks, maps, generator)
        self.parts = [d, kv, kv]
        cosines, sines = rotary_tables(architecture)
        self.cosines: Tensor
        self.sines: Tensor
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:  # noqa: ARG002 - see below
        """Map activations (samples, n, d) of whole sequences, n <= q, to activations of the same shape.

        The mask is not read: padding follows all real tokens, so none of them attends to it.
        """
        return self._residual(self._residual(x, 1, self._attend), 2, self._transform)

    def _attend(self, h: Tensor) -> Tensor:
        """Return the output of the attention branch."""
        samples, n, d = h.shape
        query, key, value = (
            part.view(samples, n, -1, d // self.heads)
            for part in torch.split(self.linear("qkv", h), self.parts, -1)
        )
        query, key = (rotate(part, self.cosines[:n], self.sines[:n]) for part in (query, key))
        # A copy: as a view it would keep the unrotated queries and keys for the backward pass, too.
        heads = (part.transpose(1, 2) for part in (query, key, value.contiguous()))
        return self.linear("out", self._attention(*heads, causal=True))

    def _transform(self, h: Tensor) -> Tensor:
        """Return the output of the feed-forward branch."""
        gate, through = self.linear("up", h).chunk(2, dim=-1)
        return self.linear("down", self.activation(gate) * through)


def rotary_tables(architecture: Architecture) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of every position's angles, each of shape (q, d / heads / 2).

    Pair i of a head turns by ``theta^(-2 i heads / d)`` per position (Su et al., 2021, arXiv 2104.09864).
    Llama 3 divides slow rotations by ``rope_factor``: fully if they turn less than once within the original
    length, not at all above four turns, and in between linearly in the number of turns (Dubey et al., 2024,
    arXiv 2407.21783).

    Heads have an even width.
    """
    head_width = architecture.width // architecture.heads
    exponents = torch.arange(0, head_width, 2, dtype=torch.float64) / head_width
    frequencies = architecture.rope_theta**-exponents
    turns = architecture.rope_original_length * frequencies / (2.0 * math.pi)
    kept = ((turns - LOW_FREQUENCY) / (HIGH_FREQUENCY - LOW_FREQUENCY)).clamp(0.0, 1.0)
    frequencies = frequencies * (kept + (1.0 - kept) / architecture.rope_factor)
    positions = torch.arange(architecture.sequence_length, dtype=torch.float64)
    angles = positions[:, None] * frequencies
    kind = torch.get_default_dtype()
    return angles.cos().to(kind), angles.sin().to(kind)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn the pairs of every head, number i of its first half with number i of its second.

    Args:
        x: Queries or keys, shape (samples, positions, heads, d / heads); the result has its shape and type.
        cosines: From :func:`rotary_tables`, as the sines, cut to these positions.
    """
    first, second = x.chunk(2, dim=-1)
    cosines, sines = cosines[:, None], sines[:, None]
    turned = torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)
    return turned.to(x.dtype)  # under mixed precision the tables are wider
