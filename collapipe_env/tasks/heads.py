"""Linear heads on the server, and what tasks with a class for each sample, word or position share."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.norms import norm
from collapipe_env.tasks.base import NO_TARGET, TaskSpec
from collapipe_env.tasks.preparation import DataTask


class TokenLinear(nn.Module):
    """A linear layer on every position, maybe after a layer norm; 2 q d V_out forward FLOPs per sample."""

    def __init__(self, width: int, outputs: int, generator: Generator, *, norm_first: bool = False) -> None:
        super().__init__()
        self.norm_first = norm_first
        if norm_first:
            self.norm_gain, self.norm_bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        # Zero weights would give the encoder a zero gradient in the first step; with small ones the loss
        # starts near log(outputs).
        self.weight = nn.Parameter(torch.randn(outputs, width, generator=generator) * 0.5 / width**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, hidden: Tensor, mask: Tensor, targets: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Map encoder outputs (samples, q, d) to scores (samples, q, V_out)."""
        if self.norm_first:
            hidden = norm(hidden, self.norm_gain, self.norm_bias)
        return functional.linear(hidden, self.weight, self.bias)


class PooledLinear(TokenLinear):
    """Mean of the real tokens' encoder outputs, then a linear layer; 2 d V_out forward FLOPs per sample."""

    def forward(self, hidden: Tensor, mask: Tensor, targets: Tensor | None = None) -> Tensor:
        """Map encoder outputs (samples, q, d) to scores (samples, V_out).

        Args:
            mask: True at real tokens, shape (samples, q); at least one per sample.
        """
        real = mask.unsqueeze(-1)
        return super().forward((hidden * real).sum(dim=1) / real.sum(dim=1), mask, targets)


class ChoosingTask(DataTask):
    """Base of tasks whose targets are the number of a class or token for each sample or position.

    A position without one has the target :data:`~collapipe_env.tasks.base.NO_TARGET`.
    """

    name: str
    head: ClassVar[type[TokenLinear]] = TokenLinear
    """Class of the server's head."""

    def check(self, spec: TaskSpec) -> None:
        """Refuse decoder blocks: the head is a linear layer."""
        if spec.decoder_blocks:
            raise ScenarioError(
                f"decoder_blocks is {spec.decoder_blocks}, but {self.name} has a linear head on the server "
                "and no decoder; set decoder_blocks: 0"
            )

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the head with an output for each class."""
        return self.head(spec.architecture.width, spec.outputs, generator)

    def units(self, targets: Tensor) -> Tensor:
        """Return the number of targets of each sample."""
        return (targets != NO_TARGET).reshape(len(targets), -1).sum(dim=1).float()

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the mean cross-entropy over targets in nats.

        Args:
            outputs: Scores, shape (samples, V_out), or (samples, n, V_out) where there are no targets after
                the first n positions.
            targets: Numbers, shape (samples,) or (samples, q).
            smoothing: Label smoothing over all V_out outputs.
        """
        expected = targets[..., : outputs.shape[-2]].flatten()
        return functional.cross_entropy(
            outputs.flatten(end_dim=-2), expected, ignore_index=NO_TARGET, label_smoothing=smoothing
        )

    def predict(self, head: nn.Module, hidden: Tensor, mask: Tensor, spec: TaskSpec) -> Tensor:  # noqa: ARG002
        """Return the most likely class of each sample, or of each of the n positions, shape (samples, n)."""
        scores: Tensor = head(hidden, mask)
        return scores.argmax(dim=-1)
