"""The translating half of the Transformer, on the edge server: it reads the devices' output as its memory."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.embeddings import sinusoids
from collapipe_env.models.encoder_blocks import ResidualBlock
from collapipe_env.models.norms import norm
from collapipe_env.models.style_fields import CAUSAL, Style
from collapipe_env.models.tokenization import PADDING

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of an attention, each of shape (samples, heads, positions, d / heads)."""


class DecoderBlock(ResidualBlock):
    """One Transformer decoder block with 8 d^2 + 2 d d_ff + 15 d + d_ff parameters, whatever its style.

    Causal self-attention, attention to the memory, feed-forward layer. The forward pass takes 2 q (8 d^2 +
    2 d d_ff) + 8 q^2 d FLOPs per sample of q source and q target tokens.
    """

    def __init__(self, architecture: Architecture, blocks: int, generator: Generator) -> None:
        d, f = architecture.width, architecture.feedforward
        maps = (
            {"qkv": (3 * d, d), "out": (d, d)},
            {"query": (d, d), "memory": (2 * d, d), "cross": (d, d)},
            {"up": (f, d), "down": (d, f)},
        )
        drawn_as: Style = "pre-ln" if architecture.style == "pre-ln" else "transformer"
        super().__init__(architecture, drawn_as, blocks, maps, generator)

    def remember(self, memory: Tensor) -> KeyValue:
        """Return the keys and values of a memory (samples, q, d); they serve all target positions."""
        keys, values = self._heads(self.linear("memory", memory), 2)
        return keys, values

    def forward(
        self, x: Tensor, memory: KeyValue, memory_mask: Tensor, past: KeyValue | None = None
    ) -> tuple[Tensor, KeyValue]:
        """Map activations (samples, n, d) to activations of the same shape.

        Args:
            x: All n positions; or, with ``past``, the n = 1 position that follows it.
            memory: Keys and values from :meth:`remember`.
            memory_mask: 0 at real source tokens and -inf at padding, shape (samples, 1, 1, q).
            past: Keys and values of the positions before; None if ``x`` begins the sequence.

        Returns:
            The block's output, and keys and values of all positions so far.
        """
        present: list[Tensor] = []

        def attend_to_self(h: Tensor) -> Tensor:
            query, *own = self._heads(self.linear("qkv", h), 3)
            if past is not None:
                own = [torch.cat(both, dim=2) for both in zip(past, own, strict=True)]
            present.extend(own)
            return self.linear("out", self._attention(query, *own, causal=past is None))

        def attend_to_memory(h: Tensor) -> Tensor:
            (query,) = self._heads(self.linear("query", h), 1)
            return self.linear("cross", self._attention(query, *memory, mask=memory_mask))

        x = self._residual(x, 1, attend_to_self)
        x = self._residual(x, 2, attend_to_memory)
        return self._residual(x, 3, self._transform), (present[0], present[1])


class Decoder(nn.Module):
    """Target embedding, decoder blocks and the output product, whose matrix is the embedding's.

    Tokens enter as sqrt(d) times their row of the table, which is drawn with variance 1/d: so inputs have the
    scale of the positions, and the scores that the same table gives at the end start near 1 (Vaswani et al.,
    2017, section 3.4). With style ``pre-ln`` the encoder's output is not normed, so a layer norm here does
    that, and another one norms the last block's output.

    The forward pass takes L_dec (2 q (8 d^2 + 2 d d_ff) + 8 q^2 d) + 2 q d V_out FLOPs per sample.

    Attributes:
        weight: Table of target tokens, shape (V_out, d).
    """

    def __init__(self, architecture: Architecture, blocks: int, outputs: int, generator: Generator) -> None:
        """Draw the weights of L_dec blocks, at least 1, with the encoder's sizes, style and dropout.

        Raises:
            ScenarioError: If the style is a language model's, which has no decoder that reads an encoder.
        """
        super().__init__()
        if architecture.style in CAUSAL:
            raise ScenarioError(
                f"style {architecture.style!r} has no decoder blocks that read an encoder; give "
                "learning.proxy or the workload another style, or choose another task"
            )
        q, d = architecture.sequence_length, architecture.width
        self.dropout, self.norm_first = architecture.dropout, architecture.style == "pre-ln"
        self.scale = math.sqrt(d)
        self.weight = nn.Parameter(torch.randn(outputs, d, generator=generator) / self.scale)
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(q, d))
        self.blocks: Any = nn.ModuleList(DecoderBlock(architecture, blocks, generator) for _ in range(blocks))
        if self.norm_first:
            self.memory_gain, self.memory_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
            self.norm_gain, self.norm_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, hidden: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """Score the next token at every position of the targets (teacher forcing).

        Args:
            hidden: As for :meth:`remember`, as the mask.
            targets: Target ids, beginning with the begin token and padded at the end, shape (samples, n + 1),
                n at most q.

        Returns:
            Scores of the token after each of the first n tokens, shape (samples * n, V_out). On a CPU, scores
            of padding are left out, since they are not needed: shape (tokens, V_out).
        """
        read, asked = targets[:, :-1], None
        if targets.device.type == "cpu":  # a GPU would have to wait for the numbers
            asked = targets[:, 1:] != PADDING
            longest = max(1, int(asked.sum(dim=1).max()))
            read, asked = read[:, :longest], asked[:, :longest]
        memories, memory_mask = self.remember(hidden, mask)
        x = self.embed(read, 0)
        for block, memory in zip(self.blocks, memories, strict=True):
            x, _ = block(x, memory, memory_mask)
        return self.score(x.flatten(end_dim=1) if asked is None else x[asked])

    def remember(self, hidden: Tensor, mask: Tensor) -> tuple[list[KeyValue], Tensor]:
        """Return each block's keys and values of the encoder outputs, and their additive mask.

        Args:
            hidden: Encoder outputs, shape (samples, q, d).
            mask: True at real source tokens, shape (samples, q).
        """
        if self.norm_first:
            hidden = norm(hidden, self.memory_gain, self.memory_bias)
        memory_mask = torch.zeros(mask.shape, dtype=hidden.dtype, device=mask.device)
        memory_mask = memory_mask.masked_fill_(~mask, -math.inf)[:, None, None, :]
        return [block.remember(hidden) for block in self.blocks], memory_mask

    def embed(self, tokens: Tensor, start: int) -> Tensor:
        """Map ids (samples, n) at positions from ``start`` on to activations (samples, n, d)."""
        x = functional.embedding(tokens, self.weight) * self.scale
        x = x + self.positions[start : start + tokens.shape[1]]
        return functional.dropout(x, self.dropout, self.training)

    def score(self, x: Tensor) -> Tensor:
        """Map activations (..., d) to scores (..., V_out)."""
        if self.norm_first:
            x = norm(x, self.norm_gain, self.norm_bias)
        return functional.linear(x, self.weight)


class CachedDecoding:
    """Decodes a batch token by token, and keeps the keys and values of the tokens that it has read.

    It is made from what :meth:`Decoder.remember` takes.
    """

    def __init__(self, decoder: Decoder, hidden: Tensor, mask: Tensor) -> None:
        self._decoder = decoder
        self._memories, self._mask = decoder.remember(hidden, mask)
        self._past: list[KeyValue] = []

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of every row, shape (rows,), and return scores of the next, (rows, V_out).

        Scores are logarithms of probabilities up to a constant of the row.
        """
        decoder, past = self._decoder, self._past
        x = decoder.embed(tokens[:, None], past[0][0].shape[2] if past else 0)
        self._past = []
        for i, block in enumerate(decoder.blocks):
            x, key_value = block(x, self._memories[i], self._mask, past[i] if past else None)
            self._past.append(key_value)
        return decoder.score(x)[:, 0]

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may occur several times or never."""
        self._mask = self._mask[rows]
        self._memories = [(key[rows], value[rows]) for key, value in self._memories]
        self._past = [(key[rows], value[rows]) for key, value in self._past]
