"""Step sizes from round to round: warm-up, then constant or falling."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from collapipe_env.scenario.learning import LearningSpec


def step_factor(schedule: str, round_index: int, warmup_rounds: int, rounds: int) -> float:
    """Return a round's share of the full step size, in [0, 1].

    Warm-up: ``(t + 1) / (W + 1)`` in the rounds ``t < W``, which meets 1 at ``t = W``. From there on, with
    ``p = (t - W) / (R - W)`` of the way gone (1 from the round ``R`` on):

    - ``constant``: 1
    - ``linear``: ``1 - p``
    - ``cosine``: ``(1 + cos(pi p)) / 2`` (Loshchilov and Hutter, arXiv 1608.03983, without restarts)
    - ``inverse-sqrt``: ``sqrt((W + 1) / (t + 1))``, whatever R (Vaswani et al., 2017, arXiv 1706.03762, whose
      first step is step 1 and whose peak is at step ``W + 1``)

    Args:
        schedule: One of the four names.
        round_index: ``t``, 0 for the first round.
        warmup_rounds: ``W``, at least 0.
        rounds: ``R`` that linear and cosine are laid out for, at least 1.

    Raises:
        ValueError: If there is no such schedule.
    """
    if schedule not in ("constant", "linear", "cosine", "inverse-sqrt"):
        raise ValueError(f"schedule {schedule!r}: constant, linear, cosine and inverse-sqrt exist")
    if round_index < warmup_rounds:
        return (round_index + 1) / (warmup_rounds + 1)
    if schedule == "inverse-sqrt":
        return math.sqrt((warmup_rounds + 1) / (round_index + 1))
    if schedule == "constant":
        return 1.0
    gone = 1.0 if round_index >= rounds else (round_index - warmup_rounds) / (rounds - warmup_rounds)
    return 1 - gone if schedule == "linear" else (1 + math.cos(math.pi * gone)) / 2


class StepSizes:
    """Sets the step sizes of a run's optimisers at the start of every round.

    Attributes:
        round: Rounds that have begun.
    """

    def __init__(self, learning: LearningSpec, rounds: int) -> None:
        """Begin before the first round.

        Args:
            learning: Schedule and warm-up.
            rounds: Rounds that the schedule is laid out for.
        """
        self._learning, self._rounds = learning, rounds
        self.round = 0

    def next_round(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Set the round's step sizes.

        Args:
            optimizers: All that the round uses; one that is seen for the first time has its full step size.
        """
        learning = self._learning
        factor = step_factor(learning.schedule, self.round, learning.warmup_rounds, self._rounds)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor
        self.round += 1
