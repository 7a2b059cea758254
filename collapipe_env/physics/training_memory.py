"""Memory of a block's trained parameters: weights, gradients, optimiser moments, each with its bits.

With 32 bits everywhere it is the paper's fp32 Adam, 16 bytes a parameter [R]. Fewer bits and recomputation
are [X]. The real learner keeps exactly this: see :mod:`collapipe_env.training.compact_adam`.
"""

from __future__ import annotations

from dataclasses import dataclass

MOMENTS = 2
"""Moments of Adam."""

MOMENTS_TOGETHER = 256
"""Eight-bit moments that share a scale."""

SCALE_BITS = 32


@dataclass(frozen=True)
class TrainingMemory:
    """Format of the numbers that a device trains.

    Attributes:
        train_bits: Bits of a weight and of its gradient, 16 (bfloat16) or 32.
        moment_bits: Bits of an optimiser moment, 8 or 32. Eight-bit moments have one single-precision scale
            for every :data:`MOMENTS_TOGETHER` of them, which is counted.
        recompute: Whether only the input of each block is stored, so that a block runs forward once more in
            its backward pass.
        start_kept: Whether trained weights of the round's start are kept beside the present ones, so that
            training can go back to them when a device fails.
    """

    train_bits: int = 32
    moment_bits: int = 32
    recompute: bool = False
    start_kept: bool = False

    @property
    def weight_bytes(self) -> float:
        """Bytes of a weight, and of a gradient."""
        return self.train_bits / 8

    @property
    def kept_moment_bits(self) -> float:
        """Bits of one moment with its part of a scale."""
        if self.moment_bits == 32:
            return 32.0
        return self.moment_bits + SCALE_BITS / MOMENTS_TOGETHER

    @property
    def trained_bytes(self) -> float:
        """Bytes of a trained parameter: weight, gradient and moments; 16 with 32 bits everywhere.

        The weight counts once more where that of the round's start is kept.
        """
        weights = 3.0 if self.start_kept else 2.0
        return weights * self.weight_bytes + MOMENTS * self.kept_moment_bits / 8

    def block_bytes(self, parameters: int, adapter_parameters: int = 0) -> float:
        """Bytes of one block's weights, gradients and moments; ``16 w``, or ``4 w + 16 w_a``, in 32 bits.

        Frozen weights are kept without gradients and moments.

        Args:
            parameters: ``w``.
            adapter_parameters: ``w_a`` of the adapters if only these are trained; 0 if the whole block is.
        """
        if not adapter_parameters:
            return self.trained_bytes * parameters
        return self.weight_bytes * parameters + self.trained_bytes * adapter_parameters


FULL_PRECISION = TrainingMemory()
"""Single precision, nothing recomputed."""
