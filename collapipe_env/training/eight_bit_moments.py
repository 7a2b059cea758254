"""Moments of Adam in eight bits, block-wise, with codes that are dense near zero ([X]).

As in Dettmers et al. (arXiv 2110.02861), neighbours share a scale, their largest magnitude, and codes are not
linear: most moments are far smaller than the largest of their block, and a second moment that became zero
would throw its weight off. Codes are ``sign(c) (|c| / 127)^4`` for first moments and ``(c / 255)^8`` for
second ones, so that a first moment and the root of a second have the same relative steps. Rounding is
stochastic, up or down such that the expectation is the number itself: with rounding to the nearest code, slow
averages would stand still. A second moment above zero never becomes zero.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional

from collapipe_env.physics.training_memory import MOMENTS_TOGETHER

SIGNED_CODES = 127
UNSIGNED_CODES = 255
SIGNED_POWER = 4
UNSIGNED_POWER = 8


def encode_signed(values: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return first moments in eight bits.

    Args:
        values: The moments, shape (P,), float32.
        generator: Draws the rounding.

    Returns:
        Codes, shape (P,), int8, and scales, shape (ceil(P / 256),), float32.
    """
    codes, scales = _encode(values.abs(), SIGNED_CODES, SIGNED_POWER, generator)
    return (codes * values.sign()).to(torch.int8), scales


def decode_signed(codes: Tensor, scales: Tensor) -> Tensor:
    """Return first moments from :func:`encode_signed`, shape (P,), float32."""
    ratios = codes.float() / SIGNED_CODES
    return ratios.abs() ** SIGNED_POWER * ratios.sign() * _spread(scales, len(codes))


def encode_unsigned(values: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return second moments in eight bits; arguments and results as for :func:`encode_signed`, but uint8."""
    codes, scales = _encode(values, UNSIGNED_CODES, UNSIGNED_POWER, generator)
    return torch.where(values > 0, codes.clamp(min=1.0), codes).to(torch.uint8), scales


def decode_unsigned(codes: Tensor, scales: Tensor) -> Tensor:
    """Return second moments from :func:`encode_unsigned`, shape (P,), float32."""
    return (codes.float() / UNSIGNED_CODES) ** UNSIGNED_POWER * _spread(scales, len(codes))


def scale_count(moments: int) -> int:
    """Return the number of scales for a number of moments."""
    return -(-moments // MOMENTS_TOGETHER)


def _encode(magnitudes: Tensor, most: int, power: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return codes in [0, most] as float32, and the scales."""
    count = len(magnitudes)
    padded = functional.pad(magnitudes, (0, scale_count(count) * MOMENTS_TOGETHER - count))
    scales = padded.view(-1, MOMENTS_TOGETHER).amax(dim=-1)
    largest = _spread(scales, count)
    ratios = torch.where(largest > 0, magnitudes / largest, 0.0)
    below = (ratios ** (1.0 / power) * most).floor().clamp(0, most - 1)
    low, high = (below / most) ** power, ((below + 1) / most) ** power
    up = torch.rand(count, generator=generator, device=magnitudes.device) * (high - low) < ratios - low
    return below + up, scales


def _spread(scales: Tensor, count: int) -> Tensor:
    """Return each moment's scale, shape (count,)."""
    return scales.repeat_interleave(MOMENTS_TOGETHER)[:count]
