"""The block of an architecture's style."""

from __future__ import annotations

from torch import Generator

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.encoder_blocks import EncoderBlock
from collapipe_env.models.llama_block import LlamaBlock

Block = EncoderBlock | LlamaBlock
"""A block that a device may hold."""


def build_block(architecture: Architecture, generator: Generator) -> Block:
    """Return a block of an architecture's style.

    Args:
        architecture: Sizes, style and dropout.
        generator: Only source of randomness.

    Raises:
        ScenarioError: If style ``llama`` has heads of an odd width.
    """
    return (LlamaBlock if architecture.style == "llama" else EncoderBlock)(architecture, generator)
