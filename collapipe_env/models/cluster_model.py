"""The federated part of the Transformer: the embedding on a control unit, the blocks on its devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor, nn

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.embeddings import Embedding
from collapipe_env.models.encoder_blocks import EncoderBlock
from collapipe_env.models.llama_block import LlamaBlock
from collapipe_env.models.tokenization import PADDING


def build_block(architecture: Architecture, generator: Generator) -> EncoderBlock | LlamaBlock:
    """Return a block of an architecture's style."""
    return (LlamaBlock if architecture.style == "llama" else EncoderBlock)(architecture, generator)


class ClusterModel(nn.Module):
    """A cluster's replica of the federated part: the embedding on its CU and the blocks on its devices."""

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        """Draw the weights: the embedding's, then block after block.

        Raises:
            ScenarioError: If style ``llama`` has heads of an odd width, or that its keys cannot share.
        """
        super().__init__()
        self.architecture = architecture
        self.embedding = Embedding(architecture, generator)
        self.blocks = nn.ModuleList(build_block(architecture, generator) for _ in range(architecture.blocks))

    def segments(self, sizes: Sequence[int]) -> Iterator[list[nn.Module]]:
        """Yield the blocks of contiguous segments of these sizes, which sum to L at most, in their order."""
        left = iter(self.blocks)
        return (list(itertools.islice(left, size)) for size in sizes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Run the uncut model: token ids (samples, q) to encoder outputs (samples, q, d).

        A model in bfloat16 returns single precision, in which the server's head computes.
        """
        x: Tensor = self.embedding(tokens)
        kept = self.embedding.weight.dtype
        attention_mask = additive_mask(tokens).to(kept)
        for block in self.blocks:
            x = block(x, attention_mask)
        return x.float() if kept == torch.bfloat16 else x


def additive_mask(tokens: Tensor) -> Tensor:
    """Return 0 where a token is real and -inf where it is padding, shape (samples, 1, 1, q)."""
    mask = torch.zeros(tokens.shape, device=tokens.device)
    return mask.masked_fill_(tokens == PADDING, -math.inf)[:, None, None, :]
