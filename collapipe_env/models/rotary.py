"""Rotary positions: queries and keys turned by angles that grow with the position (arXiv 2104.09864)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from collapipe_env.models.architecture import Architecture

LOW_FREQUENCY, HIGH_FREQUENCY = 1.0, 4.0
"""Turns within the original length below which Llama 3 fully stretches a rotation, and above which it does
not."""


def rotary_tables(architecture: Architecture) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of every position's angles, each of shape (q, d / heads / 2).

    Pair i of a head turns by ``theta^(-2 i heads / d)`` per position (Su et al., 2021). Llama 3 divides slow
    rotations by ``rope_factor``: fully if they turn less than once within the original length, not at all
    above four turns, and in between linearly in the number of turns (Dubey et al., 2024, arXiv 2407.21783).

    Args:
        architecture: Sizes, base, factor and original length; heads have an even width.
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
        x: Queries or keys, shape (samples, positions, heads, d / heads).
        cosines: From :func:`rotary_tables`, cut to these positions.
        sines: From :func:`rotary_tables`, cut in the same way.

    Returns:
        A tensor of the same shape and type.
    """
    first, second = x.chunk(2, dim=-1)
    cosines, sines = cosines[:, None], sines[:, None]
    turned = torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)
    return turned.to(x.dtype)  # under mixed precision the tables are wider
