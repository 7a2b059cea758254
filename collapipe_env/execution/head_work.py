"""Head of a cluster on the server: forward and backward passes of one micro-batch at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from collapipe_env.training.compute_device import full_precision, mixed_precision
from collapipe_env.training.flat_parameters import FlatParameters

LossFunction = Callable[[Tensor, Tensor], Tensor]


class HeadWork:
    """Head of one cluster in one local step, with the micro-batches that are under way in it.

    Gradients are those of the mean loss over the micro-batches that arrive, each weighted by its share of the
    predictions.

    Args:
        head: The module; gradients are added to its parameters' ``grad``.
        loss: Mean loss of (outputs, targets).
        units: Number of predictions of each micro-batch that arrives, 0 for the others.
        precision: Precision of forward passes.
    """

    def __init__(
        self, head: nn.Module, loss: LossFunction, units: list[float], precision: str = "float32"
    ) -> None:
        self._head, self._loss, self._precision = head, loss, precision
        self._units, self.total = units, sum(units)
        self._under_way: dict[int, tuple[Tensor, Tensor]] = {}
        self.mean_loss = torch.zeros(())

    def forward(self, micro_batch: int, x: Tensor, real: Tensor, targets: Tensor) -> None:
        """Run a micro-batch forward.

        Args:
            x: Output of the encoder (samples, q, d).
            real: True for tokens that are not padding (samples, q).
            targets: Targets (samples, ...).
        """
        x = x.requires_grad_()
        with mixed_precision(self._precision, x.device):
            out = full_precision(self._head(x, real, targets))
        loss = self._loss(out, targets)
        self.mean_loss += loss.detach() * self._share(micro_batch)
        self._under_way[micro_batch] = x, loss

    def backward(self, micro_batch: int, *, weights: bool = True) -> Tensor:
        """Return the gradient of the head's input (samples, q, d), and add the gradients of its weights.

        Args:
            weights: Whether the gradients of the weights are added now, rather than by :meth:`weight`.
        """
        x, loss = self._under_way[micro_batch]
        if not weights:
            (found,) = torch.autograd.grad(loss * self._share(micro_batch), x, retain_graph=True)
            return found
        del self._under_way[micro_batch]
        torch.autograd.backward(loss * self._share(micro_batch))
        assert x.grad is not None
        return x.grad

    def weight(self, micro_batch: int) -> None:
        """Add the gradients of the weights that :meth:`backward` left out."""
        _, loss = self._under_way.pop(micro_batch)
        trained = [p for p in self._head.parameters() if p.requires_grad]
        torch.autograd.backward(loss * self._share(micro_batch), inputs=trained)

    def _share(self, micro_batch: int) -> float:
        return self._units[micro_batch] / self.total


def shadow_of(head: nn.Module, values: Sequence[Tensor] | None = None) -> tuple[nn.Module, Tensor]:
    """Return a module that shares another's weights but has its own gradients, and their vector.

    Args:
        values: Weights to use instead of the module's.
    """
    shadow = copy.deepcopy(head)
    size = sum(p.numel() for p in shadow.parameters() if p.requires_grad)
    gradients = torch.zeros(size)
    FlatParameters(shadow, torch.empty(size).to(next(shadow.parameters())), gradients)
    of_head = [p.data for p in head.parameters()] if values is None else values
    for mine, its in zip(shadow.parameters(), of_head, strict=True):
        mine.data = its
    return shadow, gradients
