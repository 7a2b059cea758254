"""Llama's block: RMS norms, rotary positions, grouped-query attention and SwiGLU; Qwen2's with biases."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.adapted_maps import AdaptedMaps
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.dropout import drop
from collapipe_env.models.encoder_blocks import DEVIATION
from collapipe_env.models.rms_norm import rms_norm
from collapipe_env.models.rotary import rotary_tables, rotate
from collapipe_env.scenario.style_fields import require_heads


class LlamaBlock(AdaptedMaps):
    """A block of Llama (Touvron et al., 2023, arXiv 2302.13971), optionally with Qwen2's biases.

    With d_kv for the width of a token's keys, and of its values, it has 2 d^2 + 2 d d_kv + 3 d d_ff + 2 d
    parameters, and d + 2 d_kv more with biases of queries, keys and values. The forward pass takes 2 q (2 d^2
    + 2 d d_kv + 3 d d_ff) + 4 q^2 d FLOPs per sample, the backward pass twice that; masked scores are
    counted, since they are computed too.

    The rows of ``qkv_weight`` give queries, keys and values, those of ``up_weight`` the gate and then the
    numbers that it scales.
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        """Draw the weights, normal with a fixed deviation, as the code of Llama's and Qwen2's authors does.

        Args:
            architecture: Sizes, rotations, biases, epsilon of the norms and dropout.
            generator: Only source of randomness.

        Raises:
            ScenarioError: If the width of a head is odd, or the heads of keys do not divide the heads.
        """
        super().__init__()
        try:
            require_heads(architecture.width, architecture.heads, architecture.kv_heads)
        except ValueError as error:
            raise ScenarioError(str(error)) from None
        d, f, kv = architecture.width, architecture.feedforward, architecture.kv_width
        self.dropout, self.epsilon = architecture.dropout, architecture.norm_epsilon
        self.head_width = d // architecture.heads
        self.grouped = kv != d
        self.parts = [d, kv, kv]

        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns, generator=generator) * DEVIATION)

        self.norm1_gain = nn.Parameter(torch.ones(d))
        self.qkv_weight = matrix(d + 2 * kv, d)
        self.qkv_bias: nn.Parameter | None
        bias = nn.Parameter(torch.zeros(d + 2 * kv)) if architecture.qkv_bias else None
        self.register_parameter("qkv_bias", bias)
        self.out_weight = matrix(d, d)
        self.norm2_gain = nn.Parameter(torch.ones(d))
        self.up_weight = matrix(2 * f, d)
        self.down_weight = matrix(d, f)
        for name in ("out_bias", "up_bias", "down_bias"):
            self.register_parameter(name, None)
        cosines, sines = rotary_tables(architecture)
        self.cosines: Tensor
        self.sines: Tensor
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:  # noqa: ARG002 - see below
        """Map activations (samples, n, d) of whole sequences to activations of the same shape.

        Args:
            x: The block's input; its n rows are positions 0 to n - 1, at most q of them.
            attention_mask: Not read: padding follows all real tokens, so none of them attends to it.
        """
        x = x + self._attend(rms_norm(x, self.norm1_gain, self.epsilon))
        return x + self._transform(rms_norm(x, self.norm2_gain, self.epsilon))

    def _attend(self, h: Tensor) -> Tensor:
        """Return the output of the attention branch."""
        samples, n, d = h.shape
        query, key, value = (
            part.view(samples, n, -1, self.head_width)
            for part in torch.split(self.linear("qkv", h), self.parts, -1)
        )
        query, key = (rotate(part, self.cosines[:n], self.sines[:n]) for part in (query, key))
        # A copy: as a view it would keep the unrotated queries and keys for the backward pass, too.
        value = value.contiguous()
        h = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
            enable_gqa=self.grouped,
        )
        h = self.linear("out", h.transpose(1, 2).reshape(samples, n, d))
        return drop(h, self.dropout, self.training)

    def _transform(self, h: Tensor) -> Tensor:
        """Return the output of the feed-forward branch."""
        gate, through = self.linear("up", h).chunk(2, dim=-1)
        return drop(self.linear("down", functional.silu(gate) * through), self.dropout, self.training)
