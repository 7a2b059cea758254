"""One local step of one cluster, executed as its devices would: segment by segment, in micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from collapipe_env.learners.model import ClusterModel, additive_mask
from collapipe_env.tasks.tokenization import PADDING

LossFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class StepResult:
    """What a local step trained on.

    Attributes:
        samples: Samples of the surviving micro-batches.
        loss: Mean loss over them, a detached scalar; 0 if there are none.
    """

    samples: int
    loss: Tensor


class _InFlight:
    """A micro-batch between its forward and its backward pass.

    Every host (control unit, stages, server) keeps the input it received and the output it sent. An input is
    cut off from the graph of the host before, so the gradient crosses a boundary only where :meth:`backward`
    hands it over.
    """

    def __init__(
        self,
        model: ClusterModel,
        head: nn.Module,
        loss: LossFunction,
        tokens: Tensor,
        targets: Tensor,
        segments: Sequence[Sequence[nn.Module]],
    ) -> None:
        attention_mask = additive_mask(tokens)
        self._sent: list[Tensor] = [model.embedding(tokens)]
        self._received: list[Tensor] = []
        for segment in segments:
            x = self._receive()
            for block in segment:
                x = block(x, attention_mask)
            self._sent.append(x)
        self.loss = loss(head(self._receive(), tokens != PADDING), targets)
        self.samples = len(tokens)

    def _receive(self) -> Tensor:
        """Return the last output as it arrives at the next host."""
        self._received.append(self._sent[-1].detach().requires_grad_())
        return self._received[-1]

    def backward(self, weight: float) -> None:
        """Add ``weight`` times the gradients of the loss to all parameters' ``grad``, last host first."""
        torch.autograd.backward(self.loss * weight)
        for sent, received in zip(reversed(self._sent), reversed(self._received), strict=True):
            torch.autograd.backward(sent, received.grad)


def pipeline_step(
    model: ClusterModel,
    head: nn.Module,
    loss: LossFunction,
    tokens: Tensor,
    targets: Tensor,
    blocks: Sequence[int],
    survived: Sequence[bool],
    samples_per_pass: int = 1,
) -> StepResult:
    """Accumulate the gradients of one mini-batch in GPipe order: all forwards, flush, all backwards.

    The mini-batch is cut into as many micro-batches as ``survived`` has entries, their sizes differing by
    one at most. A lost micro-batch gives no gradient and is not computed. Each surviving one is weighted by
    its share of the *surviving* samples, so the accumulated gradient is that of the mean loss over what
    arrived: an unbiased estimate of the full gradient whatever the number of losses (with shares of the
        whole mini-batch, losses would shrink it).

    Args:
        model: The cluster's replica. Gradients are added to its parameters' ``grad``.
        head: The server's module; the same.
        loss: Mean loss of (outputs, targets).
        tokens: Token ids of the mini-batch, shape (B, q).
        targets: Its targets, shape (B, ...).
        blocks: Blocks of each stage slot, summing to L; slots with 0 are skipped.
        survived: Which micro-batches' gradients arrive; at most B entries.
        samples_per_pass: Surviving micro-batches in a row are computed in one pass as long as together they
            have at most that many samples. The accumulated gradient is the same sum, and passes over very
            few samples cost as much time as larger ones. 1 computes every micro-batch on its own.

    Returns:
        Samples and mean loss of the surviving micro-batches.
    """
    segments = list(model.segments([size for size in blocks if size]))
    parts = zip(
        tokens.tensor_split(len(survived)), targets.tensor_split(len(survived)), survived, strict=True
    )
    arrived = [(part, target) for part, target, arrives in parts if arrives and len(part)]
    in_flight = [
        _InFlight(model, head, loss, part_tokens, part_targets, segments)
        for part_tokens, part_targets in _merged(arrived, samples_per_pass)
    ]
    samples = sum(micro_batch.samples for micro_batch in in_flight)
    mean_loss = torch.zeros((), device=tokens.device)
    for micro_batch in in_flight:
        weight = micro_batch.samples / samples
        micro_batch.backward(weight)
        mean_loss += micro_batch.loss.detach() * weight
    return StepResult(samples, mean_loss)


def _merged(parts: Sequence[tuple[Tensor, Tensor]], most: int) -> list[tuple[Tensor, Tensor]]:
    """Join neighbouring micro-batches while they stay within ``most`` samples."""
    groups: list[list[tuple[Tensor, Tensor]]] = []
    held = 0
    for part in parts:
        size = len(part[0])
        if groups and held + size <= most:
            groups[-1].append(part)
            held += size
        else:
            groups.append([part])
            held = size
    return [
        group[0] if len(group) == 1 else (torch.cat([t for t, _ in group]), torch.cat([y for _, y in group]))
        for group in groups
    ]
