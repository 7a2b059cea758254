"""Segment of a device: its blocks, computed one micro-batch and one direction at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from collapipe_env.training.compute_device import mixed_precision
from collapipe_env.training.pipeline_step import run_blocks


class Segment:
    """Blocks of a stage, in chunks, with the micro-batches that are under way in them.

    Gradients are added to the blocks' ``grad`` in the order of the calls, as the learner adds them.

    Args:
        chunks: Blocks of each chunk.
        precision: Precision of forward passes.
        recompute: Whether to keep only the input of each block, and run it once more in its backward pass.
    """

    def __init__(
        self,
        chunks: Sequence[Sequence[nn.Module]],
        precision: str = "float32",
        *,
        recompute: bool = False,
    ) -> None:
        self._chunks, self._precision, self._recompute = chunks, precision, recompute
        self._inputs: dict[tuple[int, int], Tensor] = {}
        self._outputs: dict[tuple[int, int], Tensor] = {}
        self._waiting: dict[tuple[int, int], Tensor] = {}

    def forward(self, micro_batch: int, chunk: int, x: Tensor, real: Tensor) -> Tensor:
        """Run a micro-batch forward through a chunk; return the activations (samples, q, d), detached.

        Args:
            x: Activations from the stage before (samples, q, d).
            real: True for tokens that are not padding (samples, q).
        """
        x = x.requires_grad_()
        mask = torch.zeros(real.shape).masked_fill_(~real, -math.inf)[:, None, None, :].to(x.dtype)
        with mixed_precision(self._precision, x.device):
            out = run_blocks(self._chunks[chunk], x, mask, recompute=self._recompute, draws=False)
        self._inputs[micro_batch, chunk], self._outputs[micro_batch, chunk] = x, out
        return out.detach()

    def backward(self, micro_batch: int, chunk: int, gradient: Tensor) -> Tensor:
        """Add the gradients of the weights, and return the gradient of the input (samples, q, d).

        Args:
            gradient: Gradient of the chunk's output (samples, q, d).
        """
        x, out = self._inputs.pop((micro_batch, chunk)), self._outputs.pop((micro_batch, chunk))
        torch.autograd.backward(out, gradient)
        assert x.grad is not None
        return x.grad

    def backward_input(self, micro_batch: int, chunk: int, gradient: Tensor) -> Tensor:
        """Return only the gradient of the input; those of the weights wait for :meth:`weight`."""
        out = self._outputs[micro_batch, chunk]
        (found,) = torch.autograd.grad(out, self._inputs[micro_batch, chunk], gradient, retain_graph=True)
        self._waiting[micro_batch, chunk] = gradient
        return found

    def weight(self, micro_batch: int, chunk: int) -> None:
        """Add the gradients of the weights that :meth:`backward_input` left out."""
        key = micro_batch, chunk
        out, gradient = self._outputs.pop(key), self._waiting.pop(key)
        del self._inputs[key]
        trained = [p for block in self._chunks[chunk] for p in block.parameters() if p.requires_grad]
        torch.autograd.backward(out, gradient, inputs=trained)

    def clear(self) -> None:
        """Forget the micro-batches that are under way."""
        self._inputs.clear()
        self._outputs.clear()
        self._waiting.clear()
