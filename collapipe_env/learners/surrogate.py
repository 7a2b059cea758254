"""The surrogate learner: the convergence bound as loss dynamics (`system_model.md` section 8, [R])."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from collapipe_env.errors import DataError, ScenarioError
from collapipe_env.learners.base import BoolArray, FloatArray, LearningReport, RoundOutcome

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario


@dataclass(frozen=True)
class SurrogateConstants:
    """Constants of the per-round form of the bound, fitted to real runs.

    One round changes the loss by
    ``-H rate ramp(t) (F - F* - variance / (N S) - H^2 drift (1 / S + heterogeneity) - error eps)``,
    which is the descent step behind the bound with the gradient norm replaced by the optimality gap
    (Polyak-Lojasiewicz). ``S = b M_eff`` is the mean number of surviving samples per cluster and local
    step, ``eps`` the probability that a micro-batch is lost, and ``ramp(t) = min((t + 1) / warmup, 1)``
    stands for the slow start of an adaptive optimiser.

    Attributes:
        initial_loss: ``F_0`` [nat].
        floor_loss: ``F*`` [nat].
        rate: Contraction per local step, in (0, 1].
        warmup: Rounds until full rate, >= 1.
        variance: ``eta Lip sigma^2`` over twice the PL constant [nat * samples].
        drift: ``C eta^2 Lip^2 sigma^2``, likewise [nat * samples].
        heterogeneity: ``zeta^2 / sigma^2`` [1/samples].
        error: ``Gamma^2``, likewise [nat].
    """

    initial_loss: float
    floor_loss: float
    rate: float
    warmup: float
    variance: float
    drift: float
    heterogeneity: float
    error: float

    def next_loss(self, loss: FloatArray, round_index: FloatArray, outcome: SurrogateOutcome) -> FloatArray:
        """Loss after one more round (E,).

        Args:
            loss: Loss before the round (E,) [nat].
            round_index: Rounds played (E,).
            outcome: What the round delivered.
        """
        H = outcome.local_steps
        samples = np.maximum(outcome.surviving_samples, 1e-9)
        floor = (
            self.floor_loss
            + self.variance / (outcome.clusters * samples)
            + H**2 * self.drift * (1.0 / samples + self.heterogeneity)
            + self.error * outcome.error_probability
        )
        ramp = np.minimum((round_index + 1.0) / self.warmup, 1.0)
        # H local steps contract the gap like one step applied H times; a single step's law at H = 1.
        contraction = 1.0 - (1.0 - self.rate * ramp) ** H
        moved = loss - contraction * (loss - floor)
        # Where nothing arrived at all, nothing was learnt.
        return np.where(outcome.surviving_samples > 0.0, moved, loss)


@dataclass(frozen=True)
class SurrogateOutcome:
    """The numbers of a round that the bound depends on.

    Attributes:
        clusters: ``N``.
        local_steps: ``H``.
        surviving_samples: ``S = b M_eff``, mean over clusters and local steps (E,).
        error_probability: ``eps``, mean over clusters (E,), in [0, 1].
    """

    clusters: int
    local_steps: int
    surviving_samples: FloatArray
    error_probability: FloatArray

    @classmethod
    def of(cls, outcome: RoundOutcome, batch_size: int) -> SurrogateOutcome:
        """Reduce a simulated round to these numbers."""
        micro_batches = outcome.micro_batches
        clusters, local_steps, widest = outcome.survived.shape[1:]
        counted = np.arange(widest) < micro_batches[:, :, None, None]
        arrived = (outcome.survived & counted).sum(axis=(-2, -1)) / local_steps
        samples = arrived * (batch_size / micro_batches)
        return cls(
            clusters=clusters,
            local_steps=local_steps,
            surviving_samples=samples.mean(axis=-1),
            error_probability=1.0 - outcome.success.mean(axis=-1),
        )


class SurrogateLearner:
    """Follows the fitted bound instead of training; draws no random numbers.

    It reads only which micro-batches survived. Stale weights and the server's mode under split training
    (:attr:`RoundOutcome.staleness`, :attr:`RoundOutcome.server_mode`) change the mathematics of training, but
    no constants have been fitted for them, so it ignores them: such plans look as good as synchronous ones
    with one head. Compare them with the torch learner.

    Args:
        constants: The fitted constants.
        num_envs: ``E``.
        batch_size: Samples ``B`` of a cluster's mini-batch.
    """

    def __init__(self, constants: SurrogateConstants, num_envs: int, batch_size: int) -> None:
        self.constants = constants
        self._batch_size = batch_size
        self._loss = np.full(num_envs, constants.initial_loss)
        self._round = np.zeros(num_envs)
        self._no_metric = np.full(num_envs, np.nan)

    @classmethod
    def from_scenario(cls, scenario: Scenario, num_envs: int) -> SurrogateLearner:
        """Build with the constants shipped for the scenario's task.

        Raises:
            ScenarioError: If no fit is shipped for the task.
        """
        fits = load_fits()
        task = scenario.workload.task
        if task not in fits:
            raise ScenarioError(
                f"workload.task = {task!r} has no surrogate fit (fitted: {', '.join(sorted(fits))}); use "
                "learner='torch', or make a fit with `python -m collapipe_env.learners.fit_surrogate`"
            )
        return cls(fits[task], num_envs, scenario.workload.batch_size)

    def reset(
        self,
        rngs: Sequence[np.random.Generator],  # noqa: ARG002 - the bound is deterministic
        mask: BoolArray | None = None,
    ) -> LearningReport:
        """Start again from the initial loss in the masked environments."""
        rows = slice(None) if mask is None else mask
        self._loss = self._loss.copy()
        self._round = self._round.copy()
        self._loss[rows] = self.constants.initial_loss
        self._round[rows] = 0.0
        return LearningReport(loss=self._loss, metric=self._no_metric, train_loss=self._no_metric)

    def train_round(self, outcome: RoundOutcome) -> LearningReport:
        """Move the loss one round on."""
        reduced = SurrogateOutcome.of(outcome, self._batch_size)
        self._loss = self.constants.next_loss(self._loss, self._round, reduced)
        self._round = self._round + 1.0
        return LearningReport(loss=self._loss, metric=self._no_metric, train_loss=self._loss)


@lru_cache(maxsize=1)
def load_fits() -> dict[str, SurrogateConstants]:
    """Constants shipped with the package, by task.

    Raises:
        DataError: If the shipped file is damaged.
    """
    source = resources.files("collapipe_env") / "data" / "surrogate_fits.json"
    content: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    names = {f.name for f in fields(SurrogateConstants)}
    fits = {}
    for task, entry in content["fits"].items():
        constants = entry["constants"]
        if set(constants) != names:
            raise DataError(
                f"{source}: fit of {task!r} has fields {sorted(constants)}, expected {sorted(names)}"
            )
        fits[task] = SurrogateConstants(**constants)
    return fits
