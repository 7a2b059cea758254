"""Cost of one encoder block: FLOPs, parameters, adapters and stored activations ([R], Llama's [X]).

A block is its linear maps, each from so many numbers of a token to so many, and the two products of the
attention. Boundary tensors are ``q d`` numbers in all styles. Arguments are the model's ``width`` ``d``, its
``feedforward`` width ``d_ff``, ``heads`` ``a``, ``kv_width`` ``d_kv``, and the tokens of a sample
``sequence_length`` ``q``. In style llama ``d_kv`` is the width of a token's keys: ``d`` where every head has
its own keys, less where groups of heads share them (Ainslie et al., 2023, arXiv 2305.13245).
"""

from __future__ import annotations

from typing import TypeAlias

Maps: TypeAlias = tuple[tuple[int, int], ...]
"""Numbers into and out of each linear map."""


def linear_maps(width: int, feedforward: int) -> Maps:
    """Queries, keys and values together; from the heads; up; down: ``4 d^2 + 2 d d_ff`` weights."""
    return (width, 3 * width), (width, width), (width, feedforward), (feedforward, width)


def llama_maps(width: int, feedforward: int, kv_width: int) -> Maps:
    """The same with shared keys, and SwiGLU's gate beside up: ``2 d^2 + 2 d d_kv + 3 d d_ff`` weights."""
    return (width, width + 2 * kv_width), (width, width), (width, 2 * feedforward), (feedforward, width)


def map_weights(maps: Maps) -> int:
    """Weights of linear maps."""
    return sum(inputs * outputs for inputs, outputs in maps)


def weight_flops(maps: Maps, sequence_length: int) -> float:
    """FLOPs of a block's weight gradients for one sample, ``2 q`` for each weight.

    The linear maps' share of the backward pass, which schedules with a split backward pass postpone; the
    attention products have no weights (`algorithms.md` section 7).
    """
    return float(2 * sequence_length * map_weights(maps))


def forward_flops(maps: Maps, width: int, sequence_length: int) -> float:
    """Forward FLOPs of a block for one sample, ``2 q`` for each weight and ``4 q^2 d`` of the attention.

    Shared keys save no products of the attention, because every head's queries meet them. Masked scores are
    counted.
    """
    return weight_flops(maps, sequence_length) + 4 * sequence_length * sequence_length * width


def adapter_parameters(maps: Maps, rank: int) -> int:
    """Parameters of a block's low-rank adapters, ``r (d_in + d_out)`` of each map (arXiv 2106.09685)."""
    return sum(rank * (inputs + outputs) for inputs, outputs in maps)


def block_parameters(width: int, feedforward: int) -> int:
    """Parameters of a block, ``4 d^2 + 2 d d_ff + 9 d + d_ff`` (with biases and two LayerNorms)."""
    return map_weights(linear_maps(width, feedforward)) + 9 * width + feedforward


def llama_parameters(width: int, feedforward: int, kv_width: int, *, qkv_bias: bool) -> int:
    """Parameters of a block: its weights, ``2 d``, and ``d + 2 d_kv`` of Qwen2's biases."""
    biases = width + 2 * kv_width if qkv_bias else 0
    return map_weights(llama_maps(width, feedforward, kv_width)) + 2 * width + biases


def stored_activation_bytes(width: int, heads: int, sequence_length: int, bits: int) -> float:
    """Bytes that one block keeps of one sample for its backward pass.

    ``q d (66 + 9 a q / d)`` at 32 bits, ``q d (34 + 5 a q / d)`` at 16 (dropout masks are one byte in
    both). Derived for ``d_ff = 4 d``.

    Args:
        bits: Precision of the stored activations, 16 or 32.

    Raises:
        ValueError: If ``bits`` is neither 16 nor 32.
    """
    q, d = sequence_length, width
    if bits == 32:
        return q * d * (66.0 + 9.0 * heads * q / d)
    if bits == 16:
        return q * d * (34.0 + 5.0 * heads * q / d)
    raise ValueError(f"bits of stored activations must be 16 or 32, not {bits!r}")


def llama_stored_bytes(
    width: int,
    feedforward: int,
    kv_width: int,
    heads: int,
    sequence_length: int,
    bits: int,
    *,
    half_model: bool = False,
) -> float:
    """Bytes that one block keeps of one sample, ``q (8 d + 2 d_kv + 4 d_ff + a q)`` numbers of ``bits`` each.

    Each RMS norm keeps its input, its input over the root of the mean square, and its output (6 d); then come
    rotated queries, keys and values (d + 2 d_kv), attention weights (a q), the heads' output (d), the outputs
    of gate and up, the gate's non-linearity and the product (4 d_ff). Llama has no dropout. A model in
    bfloat16 has norms that keep only input and output, 4 d instead of 6 d.

    Args:
        bits: Precision of the stored activations, 16 or 32.
        half_model: Whether the model's weights are bfloat16.

    Raises:
        ValueError: If ``bits`` is neither 16 nor 32.
    """
    if bits not in (16, 32):
        raise ValueError(f"bits of stored activations must be 16 or 32, not {bits!r}")
    numbers = (6 if half_model else 8) * width + 2 * kv_width + 4 * feedforward + heads * sequence_length
    return float(sequence_length * numbers * bits // 8)
