"""The surrogate learner on tensors: the same bound, the same constants."""

from __future__ import annotations

import torch
from torch import Tensor

from collapipe_env.learners.surrogate import SurrogateLearner, SurrogateOutcome, progress, step_factors
from collapipe_env.physics.learning_curve import loss_at
from collapipe_env.scenario import Scenario
from collapipe_env.torch_backend.placement import Placement


class TorchSurrogate:
    """:class:`~collapipe_env.learners.surrogate.SurrogateLearner` for environments on tensors.

    Args:
        scenario: The scenario.
        placement: Device and type.

    Raises:
        ScenarioError: If no fit is shipped for the task.
    """

    def __init__(self, scenario: Scenario, placement: Placement) -> None:
        learner = SurrogateLearner.from_scenario(scenario, num_envs=1)
        self._constants, self._heterogeneity = learner.constants, learner.heterogeneity
        self._batch_size = scenario.workload.batch_size
        factor = step_factors(scenario)
        self._last = scenario.dynamics.rounds
        self._factors: Tensor | None = None
        if factor is not None:
            # One more than are played: rows that wait for their reset go through one round that is dropped.
            self._factors = placement.reals([factor(t) for t in range(self._last + 1)])

    def loss(self, progress_made: Tensor) -> Tensor:
        """Losses after an amount of progress (E,)."""
        loss: Tensor = loss_at(self._constants, progress_made)
        return loss

    def made(self, arrived: Tensor, micro_batches: Tensor, survival: Tensor, round_index: Tensor) -> Tensor:
        """Progress that a round makes (E,).

        Args:
            arrived: Micro-batches whose gradients arrived (E, N, H), real.
            micro_batches: ``M`` (E, N).
            survival: Probability that a micro-batch survives a local step (E, N).
            round_index: Rounds played before this one (E,).
        """
        samples = self._batch_size / micro_batches.to(arrived.dtype)
        outcome = SurrogateOutcome(
            surviving_samples=arrived * samples[..., None], error_probability=1.0 - survival.mean(dim=-1)
        )
        made: Tensor = progress(self._constants, outcome, self._heterogeneity)
        if self._factors is not None:
            made = made * self._factors[torch.clamp(round_index, max=self._last)]
        return made
