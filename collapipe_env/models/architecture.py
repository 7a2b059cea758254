"""Sizes and style of the Transformer that is trained; free of PyTorch, so that descriptions stay light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Style = Literal["pre-ln", "transformer", "bert"]
"""Style of blocks and embedding; every one has ``4 d^2 + 2 d d_ff + 9 d + d_ff`` parameters a block.

- ``pre-ln``: layer norm before each branch, GELU, fixed sinusoidal positions (robust at any depth)
- ``transformer``: layer norm after each branch, ReLU, embeddings scaled by ``sqrt(d)``, fixed sinusoidal
  positions (Vaswani et al., 2017, arXiv 1706.03762)
- ``bert``: layer norm after each branch, GELU, learned positions and token types, a layer norm over the
  embedding (Devlin et al., 2019, arXiv 1810.04805)
"""


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
        causal: Whether no position attends to a later one, as in language models.
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
