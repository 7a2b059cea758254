"""The random numbers of :mod:`collapipe_env.simulator.streams` on tensors, for all environments at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def numbers(words: Tensor) -> Tensor:
    """Numbers in (0, 1) from sums of seeds and counters, as :func:`collapipe_env.kernels.numbers.number` has.

    Integers with a sign wrap around in products as those without one do, so the bits are the same. The type
    is always float64: products of numbers would vanish in float32, and a number near 1 become 1.

    Args:
        words: int64, any shape; the bits are those of NumPy's uint64.
    """
    z = words * _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    z = z ^ _shifted(z, 31)
    return (_shifted(z, 12).double() + 0.5) * 2.220446049250313e-16


def uniform(seeds: Tensor, rounds: Tensor | int, count: int) -> Tensor:
    """A round's numbers (R, count): those of :meth:`collapipe_env.simulator.streams.Stream.uniform`.

    Args:
        seeds: The rows' seeds (R,), int64.
        rounds: Rounds of the streams before this one (R,), or one number for all rows.
        count: Numbers that a row uses in a round.
    """
    first = seeds + rounds * count
    return numbers(first[:, None] + torch.arange(count, device=seeds.device))


def normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers from uniform ones: :func:`collapipe_env.simulator.streams.normal`.

    Args:
        uniform: In (0, 1), an even number of columns (R, C).
    """
    pairs = uniform.reshape(len(uniform), -1, 2)
    radius = torch.sqrt(-2.0 * torch.log(pairs[..., 0]))
    angle = (2.0 * math.pi) * pairs[..., 1]
    drawn = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1)
    return drawn.reshape(uniform.shape)


def _signed(word: int) -> int:
    """The signed number of 64 bits that has the bits of an unsigned one."""
    return word - 2**64 if word >= 2**63 else word


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Shifted right with zeros from the left; PyTorch copies the sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)
