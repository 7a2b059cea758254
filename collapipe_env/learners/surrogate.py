"""The surrogate learner: the convergence bound as loss dynamics (`system_model.md` section 8, [R], [X])."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.learners.base import BoolArray, FloatArray, LearningReport, RoundOutcome
from collapipe_env.learners.surrogate_fits import SurrogateConstants, fit_for

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario
    from collapipe_env.scenario.learning import LearningSpec


def skew(learning: LearningSpec, clusters: int) -> float:
    """How far the partition is from an even one, in [0, 1]; the bound's ``zeta^2`` is in proportion to it.

    ``1 - 1 / N`` for a partition without a parameter. For the Dirichlet kinds this times
    ``1 / (N alpha + 1)``, the variance of a cluster's share under ``Dirichlet(alpha, ..., alpha)`` over its
    greatest possible value. 0 for an even partition, and for a single cluster, which has all data.

    Args:
        learning: Names the partition and its concentration.
        clusters: ``N``.
    """
    if learning.partition == "iid":
        return 0.0
    spread = 1.0 - 1.0 / clusters
    if learning.partition == "length":
        return spread
    return spread / (clusters * learning.dirichlet_alpha + 1.0)


@dataclass(frozen=True)
class SurrogateOutcome:
    """The numbers of a round that the bound depends on.

    Attributes:
        surviving_samples: ``b M_eff`` of each cluster and local step: samples whose gradients arrived,
            (E, N, H).
        error_probability: ``eps``, mean over clusters (E,), in [0, 1].
    """

    surviving_samples: FloatArray
    error_probability: FloatArray

    @property
    def clusters(self) -> int:
        """``N``."""
        return int(self.surviving_samples.shape[1])

    @property
    def local_steps(self) -> int:
        """``H``."""
        return int(self.surviving_samples.shape[2])

    @property
    def imbalance(self) -> FloatArray:
        """How unequally the clusters take part in each local step (E, H), in [0, N - 1].

        ``N sum_n S_n^2 / (sum_n S_n)^2 - 1``: 0 if as much of every cluster arrived, ``N / A - 1`` if all
        of ``A`` clusters arrived and nothing of the others.
        """
        squares = (self.surviving_samples**2).sum(axis=1)
        total = np.maximum(self.surviving_samples.sum(axis=1), 1e-9)
        ratio: FloatArray = np.maximum(self.clusters * squares / total**2 - 1.0, 0.0)
        return ratio

    @classmethod
    def of(cls, outcome: RoundOutcome, batch_size: int) -> SurrogateOutcome:
        """Reduce a simulated round to these numbers.

        Args:
            outcome: The round.
            batch_size: Samples ``B`` of a cluster's mini-batch.
        """
        micro_batches = outcome.micro_batches
        counted = np.arange(outcome.survived.shape[-1]) < micro_batches[:, :, None, None]
        arrived = (outcome.survived & counted).sum(axis=-1)
        return cls(
            surviving_samples=arrived * (batch_size / micro_batches)[..., None],
            error_probability=1.0 - outcome.success.mean(axis=-1),
        )


def progress(constants: SurrogateConstants, outcome: SurrogateOutcome, heterogeneity: float) -> FloatArray:
    """Progress of one round with full step sizes (E,), at least 0 and at most ``H rate``.

    Each local step makes ``rate / (1 + u)``, where ``u`` is what the bound adds to the squared gradient norm,
    in units of the squared gradient norm itself::

        u = noise / (N S) + H^2 (drift noise / S + zeta^2) + participation zeta^2 I + error eps

    with ``S`` the mean of ``b M_eff`` over clusters. With the first term alone this is the law of the
    critical batch size, ``S / (S + S_crit)`` (McCandlish, Kaplan and Amodei, 2018, arXiv 1812.06162). A step
    in which nothing arrives makes no progress. The terms are the bound's, but for the one with the imbalance
    ``I``: where the clusters' data differ, a step of a few of them pulls the model towards theirs. That all
    of them act on the speed in this way is a model of this package [X].

    Args:
        constants: Fitted constants.
        outcome: What the round delivered.
        heterogeneity: ``zeta^2`` of the partition over the squared gradient norm, at least 0.
    """
    samples, steps = outcome.surviving_samples.sum(axis=1), outcome.local_steps
    noise = constants.noise * (1.0 + steps**2 * constants.drift * outcome.clusters)
    rest = (1.0 + steps**2 * heterogeneity + constants.error * outcome.error_probability)[:, None]
    if heterogeneity > 0.0:
        rest = rest + constants.participation * heterogeneity * outcome.imbalance
    made: FloatArray = constants.rate * (samples / (samples * rest + noise)).sum(axis=-1)
    return made


def loss_at(constants: SurrogateConstants, progress_made: FloatArray) -> FloatArray:
    """Loss after an amount of progress, in nats.

    ``F* + (F_0 - F*) (w exp(-v p) + (1 - w) exp(-p^shape))`` with progress ``p``. The second term is what the
    encoder learns: with ``shape`` above 1 an S, as the curves of Transformers trained from scratch are, with
    a slow start, a steep middle and a slow end; with ``shape`` 1 the geometric decay that the descent step
    behind the bound gives under the Polyak-Lojasiewicz condition. The first is the share ``w`` that the head
    gains at once, ``v`` times as fast, by learning how frequent each output is. [X]

    Args:
        constants: Fitted constants.
        progress_made: At least 0, any shape.
    """
    w = constants.head_share
    gap = constants.initial_loss - constants.floor_loss
    left = (1.0 - w) * np.exp(-(progress_made**constants.shape))
    loss: FloatArray = constants.floor_loss + gap * (left + w * np.exp(-constants.head_speed * progress_made))
    return loss


class SurrogateLearner:
    """Follows the fitted bound instead of training; draws no random numbers.

    It reads only which micro-batches survived. How many there are matters in nothing else, for gradient
    accumulation makes any number of them one batch. Stale weights and the server's mode under split training
    (:attr:`RoundOutcome.staleness`, :attr:`RoundOutcome.server_mode`) change the mathematics of training, but
    no constants have been fitted for them, so it ignores them: such plans look as good as synchronous ones
    with one head. Nor does it know what compressed updates lose (``workload.weight_bits``,
    ``workload.update_compression``), so compression seems to cost no progress. Compare such things with the
    torch learner.

    Of the scenario's learning section it knows the partition and the schedule of step sizes, to which
    progress is proportional; other fields are those of the fit.
    """

    def __init__(
        self,
        constants: SurrogateConstants,
        num_envs: int,
        batch_size: int,
        heterogeneity: float = 0.0,
        step_factor: Callable[[int], float] | None = None,
    ) -> None:
        """Describe the learning.

        Args:
            constants: The fitted constants.
            num_envs: ``E``.
            batch_size: Samples ``B`` of a cluster's mini-batch.
            heterogeneity: ``zeta^2`` of the partition over the squared gradient norm, at least 0.
            step_factor: Share of the full step size in a round, in [0, 1]; None for 1 in all.
        """
        self.constants = constants
        self.heterogeneity = heterogeneity
        self._batch_size = batch_size
        self._step_factor = step_factor
        self._factors = np.ones(0)
        self._progress = np.zeros(num_envs)
        self._round = np.zeros(num_envs, dtype=np.int64)
        self._no_metric = np.full(num_envs, np.nan)

    @classmethod
    def from_scenario(cls, scenario: Scenario, num_envs: int) -> SurrogateLearner:
        """Build with the shipped constants that suit the scenario, see :func:`fit_for`.

        Args:
            scenario: The scenario.
            num_envs: ``E``.

        Raises:
            ScenarioError: If no fit is shipped for the task.
            DataError: If the shipped file is damaged.
        """
        constants = fit_for(scenario).constants
        learning = scenario.learning
        zeta = constants.heterogeneity.get(learning.partition, 0.0) * skew(learning, scenario.clusters)
        return cls(constants, num_envs, scenario.workload.batch_size, zeta, step_factors(scenario))

    def reset(
        self,
        rngs: Sequence[np.random.Generator],  # noqa: ARG002 - the bound is deterministic
        mask: BoolArray | None = None,
    ) -> LearningReport:
        """Start again from the initial loss in the masked environments."""
        rows = slice(None) if mask is None else mask
        self._progress = self._progress.copy()
        self._progress[rows] = 0.0
        self._round[rows] = 0
        loss = loss_at(self.constants, self._progress)
        return LearningReport(loss=loss, metric=self._no_metric, train_loss=self._no_metric)

    def train_round(self, outcome: RoundOutcome) -> LearningReport:
        """Move the loss one round on."""
        made = progress(self.constants, SurrogateOutcome.of(outcome, self._batch_size), self.heterogeneity)
        if self._step_factor is not None:
            made = made * self._factors_of(self._round)
        self._progress = self._progress + made
        self._round += 1
        loss = loss_at(self.constants, self._progress)
        return LearningReport(loss=loss, metric=self._no_metric, train_loss=loss)

    def _factors_of(self, rounds: np.ndarray) -> FloatArray:
        """Return the step sizes' factors in these rounds, from a table that grows where it is too short."""
        assert self._step_factor is not None
        last = int(rounds.max())
        if last >= len(self._factors):
            self._factors = np.array([self._step_factor(t) for t in range(max(2 * last, 64))])
        factors: FloatArray = self._factors[rounds]
        return factors


def step_factors(scenario: Scenario) -> Callable[[int], float] | None:
    """Share of the full step size in each round of a scenario; None if it is 1 in all."""
    learning = scenario.learning
    if learning.schedule == "constant" and learning.warmup_rounds == 0:
        return None
    from collapipe_env.learners.step_sizes import step_factor

    rounds = learning.schedule_rounds or scenario.dynamics.rounds
    return lambda t: step_factor(learning.schedule, t, learning.warmup_rounds, rounds)
