"""Sizes and style of the trained Transformer; free of PyTorch, to keep descriptions light.

All styles of blocks and embedding but ``llama`` have ``4 d^2 + 2 d d_ff + 9 d + d_ff`` parameters a block.

- ``pre-ln``: layer norm before each branch, GELU, fixed sinusoidal positions (robust at any depth)
- ``transformer``: layer norm after each branch, ReLU, embeddings scaled by ``sqrt(d)``, fixed sinusoidal
  positions (Vaswani et al., 2017, arXiv 1706.03762)
- ``bert``: layer norm after each branch, GELU, learned positions and token types, a layer norm over the
  embedding (Devlin et al., 2019, arXiv 1810.04805)
- ``gpt2``: causal, layer norm before each branch, GELU by its tanh form, learned positions (Radford et al.,
  2019)
- ``llama``: causal, RMS norm before each branch, rotary positions, SwiGLU, keys and values shared by groups
  of heads, no biases except Qwen2's (Touvron et al., 2023, arXiv 2302.13971; Ainslie et al., 2023,
  arXiv 2305.13245; Yang et al., 2024, arXiv 2407.10671)
"""

from __future__ import annotations

from dataclasses import dataclass

from collapipe_env.models.style_fields import Style

LOW_FREQUENCY, HIGH_FREQUENCY = 1.0, 4.0
"""Turns within the original length below which Llama 3 fully stretches a rotation, and above which it does
not."""


@dataclass(frozen=True)
class Architecture:
    """Sizes of an embedding and encoder.

    Attributes:
        blocks: Encoder blocks L.
        width: Model width d, a multiple of ``heads``.
        feedforward: Feed-forward width d_ff.
        heads: Attention heads.
        sequence_length: Tokens per sample q.
        vocabulary: Rows of the embedding table.
        style: Style of blocks and embedding.
        learned_positions: Rows of the table of learned positions, at least q; 0 for fixed sinusoids.
        token_types: Rows of the table of token types (segment embeddings); 0 for none.
        dropout: Dropout probability on embeddings, attention weights and residual branches, in [0, 1).
        causal: Whether no position attends to a later one, as in language models; styles ``gpt2`` and
            ``llama`` are always causal.
        kv_heads: Heads of keys and values, a divisor of ``heads``, with style ``llama``; 0 for all of them.
        qkv_bias: Whether queries, keys and values have biases with style ``llama``, as Qwen2's have.
        rope_theta: Base of the rotary frequencies, style ``llama``.
        rope_factor: Factor by which Llama 3 stretches its slow rotations; 1 for no stretch.
        rope_original_length: Tokens that rotations were trained for before they were stretched.
        norm_epsilon: Number added to the variance in the norms of styles ``gpt2`` and ``llama``.
        tied_head: Whether a language model's head is the embedding's table, styles ``gpt2`` and ``llama``.
    """

    blocks: int
    width: int
    feedforward: int
    heads: int
    sequence_length: int
    vocabulary: int
    style: Style = "pre-ln"
    learned_positions: int = 0
    token_types: int = 0
    dropout: float = 0.0
    causal: bool = False
    kv_heads: int = 0
    qkv_bias: bool = False
    rope_theta: float = 10_000.0
    rope_factor: float = 1.0
    rope_original_length: int = 8192
    norm_epsilon: float = 1e-5
    tied_head: bool = False

    @property
    def key_heads(self) -> int:
        """Heads of keys, and of values."""
        return self.kv_heads or self.heads

    @property
    def kv_width(self) -> int:
        """Width of a token's keys, and of its values: ``d`` unless groups of heads share them."""
        return self.width // self.heads * self.key_heads
