"""Step sizes from local step to local step: warm-up, then constant or falling."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from collapipe_env.scenario.learning import LearningSpec


def step_factor(schedule: str, step: int, warmup_steps: int, steps: int) -> float:
    """Return a local step's share of the full step size, in [0, 1].

    Warm-up: ``(t + 1) / (W + 1)`` in the steps ``t < W``, which reaches 1 at ``t = W``. From there on, with
    ``p = (t - W) / (S - W)``, the share of the way covered (1 from step ``S`` on):

    - ``constant``: 1
    - ``linear``: ``1 - p``
    - ``cosine``: ``(1 + cos(pi p)) / 2`` (Loshchilov and Hutter, arXiv 1608.03983, without restarts)
    - ``inverse-sqrt``: ``sqrt((W + 1) / (t + 1))``, for any S (Vaswani et al., 2017, arXiv 1706.03762, whose
      first step is step 1 and whose peak is at step ``W + 1``)

    Args:
        schedule: One of the four names.
        step: ``t``, 0 for the first local step of the first round; with ``H`` local steps a round, step ``h``
            of round ``r`` is ``r H + h``.
        warmup_steps: ``W``, at least 0.
        steps: ``S``, the steps that linear and cosine span, at least 1.
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if schedule == "inverse-sqrt":
        return math.sqrt((warmup_steps + 1) / (step + 1))
    if schedule == "constant":
        return 1.0
    gone = 1.0 if step >= steps else (step - warmup_steps) / (steps - warmup_steps)
    return 1 - gone if schedule == "linear" else (1 + math.cos(math.pi * gone)) / 2


class StepSizes:
    """Sets the step sizes of a run's optimisers at the start of every local step.

    Attributes:
        step: Local steps begun in all rounds.
    """

    def __init__(self, learning: LearningSpec, steps: int) -> None:
        """Begin before the first local step of a schedule that spans ``steps``."""
        self._learning, self._steps = learning, steps
        self.step = 0

    def next_step(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Set the step sizes of all optimisers of a local step; a new one must have its full step size."""
        factor = self.next_factor()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor

    def next_factor(self) -> float:
        """Begin a local step, and return its share of the full step size."""
        learning = self._learning
        factor = step_factor(learning.schedule, self.step, learning.warmup_steps, self._steps)
        self.step += 1
        return factor
