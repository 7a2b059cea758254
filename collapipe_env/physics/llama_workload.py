"""Cost of a Llama block: FLOPs, parameters, stored activations, adapters.

Formulas are [X]: counts of the trained block, like those of :mod:`collapipe_env.physics.workload` for the
other styles. ``d_kv`` is the width of a token's keys: ``d`` where every head has its own keys, less where
groups of heads share them (Ainslie et al., 2023, arXiv 2305.13245). Boundary tensors are ``q d`` numbers, as
in all styles.

Arguments are the model's ``width`` ``d``, its ``feedforward`` width ``d_ff``, ``kv_width`` ``d_kv``,
``heads`` ``a``, the tokens of a sample ``sequence_length`` ``q``, and the ``rank`` ``r`` of adapters.
"""

from __future__ import annotations


def llama_weights(width: int, feedforward: int, kv_width: int) -> int:
    """Weights of a block's linear maps, ``2 d^2 + 2 d d_kv + 3 d d_ff``.

    Queries and output, keys and values, and the three maps of SwiGLU: gate, up and down.
    """
    return width * (2 * width + 2 * kv_width + 3 * feedforward)


def llama_parameters(width: int, feedforward: int, kv_width: int, *, qkv_bias: bool) -> int:
    """Parameters of a block, :func:`llama_weights` ``+ 2 d``, and ``d + 2 d_kv`` of Qwen2's biases."""
    biases = width + 2 * kv_width if qkv_bias else 0
    return llama_weights(width, feedforward, kv_width) + 2 * width + biases


def llama_weight_flops(width: int, feedforward: int, kv_width: int, sequence_length: int) -> float:
    """FLOPs of one block's weight gradients for one sample, ``2 q`` times :func:`llama_weights`."""
    return float(2 * sequence_length * llama_weights(width, feedforward, kv_width))


def llama_forward_flops(width: int, feedforward: int, kv_width: int, sequence_length: int) -> float:
    """Forward FLOPs of one block for one sample, ``2 q (2 d^2 + 2 d d_kv + 3 d d_ff) + 4 q^2 d``.

    Shared keys save no products of the attention, because every head's queries meet them. The masked half of
    the scores is counted, as for every other style.
    """
    attention = 4 * sequence_length * sequence_length * width
    return llama_weight_flops(width, feedforward, kv_width, sequence_length) + attention


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


def llama_adapter_parameters(width: int, feedforward: int, kv_width: int, rank: int) -> int:
    """Parameters of one block's low-rank adapters, ``r (6 d + 2 d_kv + 3 d_ff)``.

    There are four: to queries, keys and values together, from the heads, to gate and up together, and down.
    """
    maps = (
        (width, width + 2 * kv_width),
        (width, width),
        (width, 2 * feedforward),
        (feedforward, width),
    )
    return sum(rank * (inputs + outputs) for inputs, outputs in maps)
