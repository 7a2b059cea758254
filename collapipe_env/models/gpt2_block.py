"""GPT-2's block: an encoder block of style ``gpt2`` whose attention is causal."""

from __future__ import annotations

from torch import Generator

from collapipe_env.models.architecture import Architecture
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
        self.epsilon, self.causal = architecture.norm_epsilon, True
