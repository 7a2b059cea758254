"""Progress that a round is expected to make under the fitted law, before it is played ([X])."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.learners.surrogate import heterogeneity_of
from collapipe_env.learners.surrogate_fits import SurrogateConstants, fit_for, has_fit
from collapipe_env.learners.surrogate_progress import SurrogateOutcome, mean_loss_of_packets, progress
from collapipe_env.physics.loss_curve import loss_at
from collapipe_env.scenario.decision_names import judged_by_target

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario
    from collapipe_env.simulator.round import RoundCosts

LEAST_PROGRESS = 1e-12
"""Progress counted for an episode that makes none: its time per unit of progress is then finite, and poor."""
HALVINGS = 60
"""Halvings in the search for a loss on the curve; enough for the last digit."""


@dataclass(frozen=True)
class ExpectedProgress:
    """Progress of rounds under a fit, for average arrivals and the full step size.

    Attributes:
        heterogeneity: ``zeta^2`` of the partition over the squared gradient norm, >= 0.
        batch_size: Samples ``B`` of a cluster's mini-batch.
        local_steps: Local steps ``H`` of rounds whose costs name none.
    """

    constants: SurrogateConstants
    heterogeneity: float
    batch_size: float
    local_steps: int

    @classmethod
    def of(cls, scenario: Scenario) -> ExpectedProgress:
        """Build with the shipped fit that suits a scenario, see :func:`fit_for`.

        Raises:
            ScenarioError: If no fit is shipped for the task.
            DataError: If the shipped file is damaged.
        """
        constants, workload = fit_for(scenario).constants, scenario.workload
        zeta = heterogeneity_of(constants, scenario)
        return cls(constants, zeta, workload.batch_size, workload.local_steps)

    def of_round(self, survival: FloatArray, steps: IntArray) -> FloatArray:
        """Return the progress of a round (E,), >= 0; 0 if nobody takes part.

        Args:
            survival: Probability that a micro-batch survives a local step (E, N), in [0, 1].
            steps: Local steps of the clusters (E, N), int >= 0; 0 for those that sit out.
        """
        most = max(int(steps.max()), 1)
        own = steps.astype(np.float64)
        # Mean arrivals stand in for random ones: the law is nearly linear in them.
        taken = np.arange(1, most + 1) <= steps[..., None]
        samples = self.batch_size * survival[..., None] * taken
        outcome = SurrogateOutcome(samples, mean_loss_of_packets(survival, own), own)
        return np.asarray(progress(self.constants, outcome, self.heterogeneity))

    def of_costs(self, costs: RoundCosts) -> FloatArray:
        """Return the progress of a round from what it costs (E,), >= 0."""
        survival = np.asarray(costs.survival)
        steps = costs.local_steps
        taken = np.full(survival.shape, self.local_steps) if steps is None else np.asarray(steps)
        return self.of_round(survival, np.where(costs.plays, taken, 0))

    def reached(self, loss: FloatArray) -> FloatArray:
        """Return the progress at which the curve reaches a loss; 0 at and above the initial loss, any shape.

        Infinite at the curve's floor and below it.

        Args:
            loss: Losses [nat], any shape.
        """
        c = self.constants
        low = np.zeros_like(loss)
        high = np.ones_like(loss)
        while (short := (loss_at(c, high) > loss) & (loss > c.floor_loss) & (high < 1e9)).any():
            high = np.where(short, 2.0 * high, high)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            above = loss_at(c, middle) > loss
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(loss > c.floor_loss, np.where(loss < c.initial_loss, high, 0.0), np.inf)


def progress_law(scenario: Scenario) -> ExpectedProgress | None:
    """Return the law that compares a scenario's rounds, where their delays alone do not suffice.

    Returns:
        The law; ``None`` where all clusters take the same local steps in every round, or the task has no fit.
    """
    return ExpectedProgress.of(scenario) if judged_by_target(scenario) and has_fit(scenario) else None
