"""GPT-2's block: an encoder block of style ``gpt2`` whose attention is causal."""

from __future__ import annotations

from torch import Generator, Tensor
from torch.nn import functional

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.dropout import drop
from collapipe_env.models.encoder_blocks import EncoderBlock


class Gpt2Block(EncoderBlock):
    """A block of GPT-2 (Radford et al., 2019): pre-LN, GELU by its tanh form, causal attention, biases.

    It has as many parameters as every encoder block, 4 d^2 + 2 d d_ff + 9 d + d_ff, and takes as many FLOPs:
    2 q (4 d^2 + 2 d d_ff) + 4 q^2 d forward per sample, masked scores included, since they are computed too.
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        """Draw the weights.

        Args:
            architecture: Sizes, epsilon of the norms and dropout.
            generator: Only source of randomness.
        """
        super().__init__(architecture, generator)
        self.epsilon = architecture.norm_epsilon

    def _attend(self, h: Tensor, attention_mask: Tensor) -> Tensor:  # noqa: ARG002 - see below
        """The attention branch. Padding is behind all real tokens, so that none of them ever reads it."""
        samples, q, d = h.shape
        by_head = self.linear("qkv", h).view(samples, q, 3, self.heads, d // self.heads)
        query, key, value = by_head.permute(2, 0, 3, 1, 4).unbind(0)
        h = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        h = self.linear("out", h.transpose(1, 2).reshape(samples, q, d))
        return drop(h, self.dropout, self.training)
