"""Plans of a scheduler under another schedule, or with another number of micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.allocation import Allocation, ScheduleName, with_schedule
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

CHUNKS = 2
"""Chunks of a stage under ``interleaved``."""


def replanned(
    inner: Scheduler, scenario: Scenario, schedule: ScheduleName | None, micro_batches: int | None
) -> Scheduler:
    """Return a scheduler, or one whose plans get another schedule or another number of micro-batches.

    Args:
        schedule: The schedule; ``None`` for the scheduler's own.
        micro_batches: The number; ``None`` for the scheduler's own.

    Raises:
        ScenarioError: If the scenario does not allow that number of micro-batches.
    """
    allowed = scenario.workload.micro_batch_choices
    if micro_batches is not None and micro_batches not in allowed:
        raise ScenarioError(
            f"--micro-batches {micro_batches}: {scenario.name} allows {', '.join(map(str, allowed))}"
        )
    if schedule is None and micro_batches is None:
        return inner
    return Replanned(inner, schedule, micro_batches, allowed)


class Replanned:
    """A scheduler whose plans are changed; see :func:`replanned`.

    Args:
        allowed: Numbers of micro-batches that the scenario allows.
    """

    def __init__(
        self,
        inner: Scheduler,
        schedule: ScheduleName | None,
        micro_batches: int | None,
        allowed: Sequence[int],
    ) -> None:
        self.name, self._inner, self._allowed = inner.name, inner, allowed
        self._schedule, self._micro_batches = schedule, micro_batches

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode."""
        self._inner.reset(seed)

    def act(self, observation: Any, state: Any = None) -> Any:
        """Decide a round.

        Raises:
            ScenarioError: If the scheduler answers with an action, which has no schedule, or the schedule
                does not take the plan's number of micro-batches.
        """
        plan = self._inner.act(observation, state)
        if not isinstance(plan, Allocation):
            raise ScenarioError(
                f"--schedule and --micro-batches change plans, and {self.name} answers with actions: leave "
                "them out"
            )
        if self._micro_batches is not None:
            plan = replace(plan, micro_batches=np.full_like(plan.micro_batches, self._micro_batches))
        if self._schedule is None:
            return plan
        if self._schedule == "interleaved":
            _require_whole_groups(plan, self._allowed)
        chunks = CHUNKS if self._schedule == "interleaved" else 1
        caps = np.broadcast_to(chunks * plan.micro_batches[..., None], plan.blocks.shape)
        return with_schedule(plan, self._schedule, np.array(caps), chunks)


def _require_whole_groups(plan: Allocation, allowed: Sequence[int]) -> None:
    """Refuse numbers of micro-batches that are not multiples of the number of stages."""
    stages = np.count_nonzero(plan.blocks, axis=-1)
    odd = np.argwhere(plan.micro_batches % np.maximum(stages, 1) != 0)
    if len(odd):
        at = tuple(odd[0])
        fitting = ", ".join(str(m) for m in allowed if m % stages[at] == 0)
        remedy = (
            f"use --micro-batches {fitting}, or" if fitting else "none that the scenario allows fits: use"
        )
        raise ScenarioError(
            f"--schedule interleaved: the plan for cluster {at[-1]} has {stages[at]} stages and "
            f"{plan.micro_batches[at]} micro-batches, which it takes in groups of {stages[at]}: "
            f"{remedy} a scenario or --scheduler with other stages"
        )
