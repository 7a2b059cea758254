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

LARGEST_CODES = {torch.int8: (127, 4), torch.uint8: (255, 8)}
"""Largest code of first and of second moments, and the power of its share."""


def encode(values: Tensor, kind: torch.dtype, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return moments in eight bits.

    Args:
        values: The moments, shape (P,), float32.
        kind: int8 for first moments; uint8 for second ones, which are at least 0.

    Returns:
        Codes, shape (P,), and scales, shape (ceil(P / 256),), float32.
    """
    (most, power), count, magnitudes = LARGEST_CODES[kind], len(values), values.abs()
    padded = functional.pad(magnitudes, (0, scale_count(count) * MOMENTS_TOGETHER - count))
    scales = padded.view(-1, MOMENTS_TOGETHER).amax(dim=-1)
    largest = _spread(scales, count)
    ratios = torch.where(largest > 0, magnitudes / largest, 0.0)
    below = (ratios ** (1.0 / power) * most).floor().clamp(0, most - 1)
    low, high = (below / most) ** power, ((below + 1) / most) ** power
    up = torch.rand(count, generator=generator, device=values.device) * (high - low) < ratios - low
    codes = below + up
    if kind == torch.uint8:
        codes = codes.clamp(min=1.0)
    return (codes * values.sign()).to(kind), scales


def decode(codes: Tensor, scales: Tensor) -> Tensor:
    """Return moments from :func:`encode`, shape (P,), float32."""
    most, power = LARGEST_CODES[codes.dtype]
    ratios = codes.float() / most
    return ratios.abs() ** power * ratios.sign() * _spread(scales, len(codes))


def scale_count(moments: int) -> int:
    """Return the number of scales for a number of moments."""
    return -(-moments // MOMENTS_TOGETHER)


def _spread(scales: Tensor, count: int) -> Tensor:
    """Return each moment's scale, shape (count,)."""
    return scales.repeat_interleave(MOMENTS_TOGETHER)[:count]
