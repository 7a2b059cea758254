"""One Transformer encoder block, in styles that cost the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.models.adapted_maps import AdaptedMaps
from collapipe_env.models.architecture import CAUSAL_STYLES, Architecture, Style
from collapipe_env.models.dropout import drop

DEVIATION = 0.02
"""Standard deviation of the initial weights of BERT, GPT-2 and Llama, embeddings included."""

BERT_EPSILON = 1e-12
"""Number that BERT adds to the variance in its layer norms (Devlin et al., 2019)."""

_ACTIVATIONS: dict[Style, Callable[[Tensor], Tensor]] = {
    "pre-ln": functional.gelu,
    "transformer": functional.relu,
    "bert": functional.gelu,
    "gpt2": partial(functional.gelu, approximate="tanh"),
}


class EncoderBlock(AdaptedMaps):
    """A Transformer encoder block with 4 d^2 + 2 d d_ff + 9 d + d_ff parameters, whatever its style.

    Query, key, value and output maps and both feed-forward maps have biases; the two layer norms have gain
    and bias. The forward pass takes 2 q (4 d^2 + 2 d d_ff) + 4 q^2 d FLOPs per sample, the backward pass
    twice that.

    In a causal architecture no position attends to a later one; the price is that of full attention. With
    ``pre-ln`` and ``gpt2`` a norm opens each of the two branches, otherwise it follows the sum of a branch
    and its input. In ``training`` mode, dropout applies to attention weights and to the branches' outputs.
    Its masks come from PyTorch's global generator; see :mod:`collapipe_env.models.dropout`.
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        """Draw the weights.

        Args:
            architecture: Sizes, style and dropout.
            generator: Only source of randomness.
        """
        super().__init__()
        d, f = architecture.width, architecture.feedforward
        style = architecture.style
        self.heads, self.dropout = architecture.heads, architecture.dropout
        self.causal = architecture.causal or style in CAUSAL_STYLES
        self.norm_first, self.activation = style in ("pre-ln", "gpt2"), _ACTIVATIONS[style]
        self.epsilon = {"bert": BERT_EPSILON, "gpt2": architecture.norm_epsilon}.get(style, 1e-5)

        def matrix(rows: int, columns: int, *, ends_branch: bool = False) -> nn.Parameter:
            return nn.Parameter(_initial(architecture, rows, columns, ends_branch, generator))

        self.norm1_gain, self.norm1_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.qkv_weight, self.qkv_bias = matrix(3 * d, d), nn.Parameter(torch.zeros(3 * d))
        self.out_weight, self.out_bias = matrix(d, d, ends_branch=True), nn.Parameter(torch.zeros(d))
        self.norm2_gain, self.norm2_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.up_weight, self.up_bias = matrix(f, d), nn.Parameter(torch.zeros(f))
        self.down_weight, self.down_bias = matrix(d, f, ends_branch=True), nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        """Map activations (samples, q, d) to activations of the same shape.

        Args:
            x: The block's input.
            attention_mask: 0 at real tokens and -inf at padding, shape (samples, 1, 1, q). A causal block
                does not need it: padding follows the real tokens, which see nothing after them.
        """
        if self.norm_first:
            x = x + self._attend(self._norm1(x), attention_mask)
            return x + self._transform(self._norm2(x))
        x = self._norm1(x + self._attend(x, attention_mask))
        return self._norm2(x + self._transform(x))

    def _norm1(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.norm1_gain, self.norm1_bias, self.epsilon)

    def _norm2(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.norm2_gain, self.norm2_bias, self.epsilon)

    def _attend(self, h: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the output of the attention branch."""
        samples, q, d = h.shape
        by_head = self.linear("qkv", h).view(samples, q, 3, self.heads, d // self.heads)
        query, key, value = by_head.permute(2, 0, 3, 1, 4).unbind(0)
        h = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if self.causal else attention_mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
        )
        h = self.linear("out", h.transpose(1, 2).reshape(samples, q, d))
        return drop(h, self.dropout, self.training)

    def _transform(self, h: Tensor) -> Tensor:
        """Return the output of the feed-forward branch."""
        h = self.linear("down", self.activation(self.linear("up", h)))
        return drop(h, self.dropout, self.training)


def _initial(
    architecture: Architecture, rows: int, columns: int, ends_branch: bool, generator: Generator
) -> Tensor:
    """Draw a matrix, shape (rows, columns), as its style's authors do.

    ``pre-ln`` keeps the variance of its input, but both branches start small so that the residual stream of L
    blocks keeps the scale of its input. ``transformer`` is Xavier-uniform, ``bert`` normal with a fixed
    deviation, and so is ``gpt2``, whose branches start smaller by ``sqrt(2 L)`` (Radford et al., 2019).
    """
    if architecture.style == "transformer":
        bound = math.sqrt(6 / (rows + columns))
        return (2 * torch.rand(rows, columns, generator=generator) - 1) * bound
    if architecture.style == "bert":
        return torch.randn(rows, columns, generator=generator) * DEVIATION
    scale = 1 / math.sqrt(2 * architecture.blocks) if ends_branch else 1.0
    if architecture.style == "gpt2":
        return torch.randn(rows, columns, generator=generator) * (scale * DEVIATION)
    return torch.randn(rows, columns, generator=generator) * (scale / math.sqrt(columns))
