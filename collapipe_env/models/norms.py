"""Norms over a token's numbers: layer norms, and root mean square norms without a bias."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def norm(x: Tensor, gain: Tensor, bias: Tensor | None, epsilon: float = 1e-5) -> Tensor:
    """Return the layer norm of ``x`` over its last axis d, or without a bias its :func:`rms_norm`."""
    if bias is None:
        return rms_norm(x, gain, epsilon)
    return functional.layer_norm(x, x.shape[-1:], gain, bias, epsilon)


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """Return ``gain x / sqrt(mean(x^2) + epsilon)`` over the last axis d of ``x``, in its type."""
    if x.dtype == gain.dtype == torch.bfloat16:
        normed: Tensor = _HalfNorm.apply(x, gain, epsilon)  # type: ignore[no-untyped-call]
        return normed
    return functional.rms_norm(x, x.shape[-1:], gain, epsilon)


class _HalfNorm(torch.autograd.Function):
    """The norm of bfloat16, computed in float32.

    PyTorch's norm would store the input and its ratio to the root mean square in float32. This one stores the
    input as it is, and one float32 number a row.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        """Compute the norm."""
        single = x.float()
        inverse = torch.rsqrt(single.square().mean(dim=-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, inverse, gain)
        return (single * inverse).to(x.dtype) * gain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Compute the gradients of the input and, where it is trained, of the gain."""
        x, inverse, gain = ctx.saved_tensors
        gradient, ratio = gradients[0].float(), x.float() * inverse
        along = gradient * gain.float()
        of_x = inverse * (along - ratio * (along * ratio).mean(dim=-1, keepdim=True))
        of_gain = None
        if ctx.needs_input_grad[1]:
            of_gain = (gradient * ratio).flatten(0, -2).sum(dim=0).to(gain.dtype)
        return of_x.to(x.dtype), of_gain, None
