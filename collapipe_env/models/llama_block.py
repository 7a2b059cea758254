"""Llama's block: RMS norms, rotary positions, grouped-query attention and SwiGLU; Qwen2's with biases."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import HIGH_FREQUENCY, LOW_FREQUENCY, Architecture
from collapipe_env.models.dropout import drop
from collapipe_env.models.encoder_blocks import DEVIATION
from collapipe_env.models.lora import AdaptedMaps
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

        Raises:
            ScenarioError: If the width of a head is odd, or the heads of keys do not divide the heads.
        """
        super().__init__()
        try:
            require_heads("llama", architecture.width, architecture.heads, architecture.kv_heads)
        except ValueError as error:
            raise ScenarioError(str(error)) from None
        d, f, kv = architecture.width, architecture.feedforward, architecture.kv_width
        self.dropout, self.epsilon = architecture.dropout, architecture.norm_epsilon
        self.head_width = d // architecture.heads
        self.grouped = kv != d
        self.parts = [d, kv, kv]

        def add_map(name: str, rows: int, columns: int, *, biased: bool = False) -> None:
            weight = torch.randn(rows, columns, generator=generator) * DEVIATION
            self.add_map(name, weight, biased=biased)

        self.norm1_gain = nn.Parameter(torch.ones(d))
        add_map("qkv", d + 2 * kv, d, biased=architecture.qkv_bias)
        add_map("out", d, d)
        self.norm2_gain = nn.Parameter(torch.ones(d))
        add_map("up", 2 * f, d)
        add_map("down", d, f)
        cosines, sines = rotary_tables(architecture)
        self.cosines: Tensor
        self.sines: Tensor
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:  # noqa: ARG002 - see below
        """Map activations (samples, n, d) of whole sequences, n <= q, to activations of the same shape.

        The mask is not read: padding follows all real tokens, so none of them attends to it.
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


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """Return ``gain x / sqrt(mean(x^2) + epsilon)`` over the last axis d of ``x``, in its type."""
    if x.dtype == gain.dtype == torch.bfloat16:
        normed: Tensor = _HalfNorm.apply(x, gain, epsilon)  # type: ignore[no-untyped-call]
        return normed
    return functional.rms_norm(x, x.shape[-1:], gain, epsilon)


class _HalfNorm(torch.autograd.Function):
    """The norm of bfloat16, computed in float32.

    PyTorch's norm would store the input and its ratio to the root mean square in float32. This one stores the
    input as it is, and one float32 number a row.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        """Compute the norm."""
        single = x.float()
        inverse = torch.rsqrt(single.square().mean(dim=-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, inverse, gain)
        return (single * inverse).to(x.dtype) * gain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Compute the gradients of the input and, where it is trained, of the gain."""
        x, inverse, gain = ctx.saved_tensors
        gradient, ratio = gradients[0].float(), x.float() * inverse
        along = gradient * gain.float()
        of_x = inverse * (along - ratio * (along * ratio).mean(dim=-1, keepdim=True))
        of_gain = None
        if ctx.needs_input_grad[1]:
            of_gain = (gradient * ratio).flatten(0, -2).sum(dim=0).to(gain.dtype)
        return of_x.to(x.dtype), of_gain, None


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
