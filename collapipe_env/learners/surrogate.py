"""The surrogate learner: the convergence bound as loss dynamics (`system_model.md` section 8, [R], [X])."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.ground.arrays import Array, BoolArray, FloatArray, IntArray, loop_record, namespace
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import LARGEST_NUMBER, REMEDY, Tree, require_alike, require_within
from collapipe_env.kernels.surrogate import LearnTerms, learn_rows
from collapipe_env.learners.surrogate_fits import SurrogateConstants, fit_for
from collapipe_env.learners.surrogate_progress import SurrogateOutcome, law_terms, progress
from collapipe_env.physics.loss_curve import CurveTerms, loss_at
from collapipe_env.scenario.decision_names import judged_by_target
from collapipe_env.simulator.learner import LearningReport, RoundOutcome

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario
    from collapipe_env.scenario.learning import LearningSpec


MOST_STEPS = 20_000_000
"""Local steps that a state may have: the table of their step sizes must fit into memory."""


def skew(learning: LearningSpec, clusters: int) -> float:
    """Return the skew of a partition, in [0, 1]; the bound's ``zeta^2`` is in proportion to it.

    ``1 - 1 / N`` for a partition without a parameter. The Dirichlet kinds multiply this by
    ``1 / (N alpha + 1)``, the variance of a cluster's share under ``Dirichlet(alpha, ..., alpha)`` divided by
    its greatest possible value. 0 for an even partition, and for a single cluster, which has all data.
    """
    if learning.partition == "iid":
        return 0.0
    spread = 1.0 - 1.0 / clusters
    if learning.partition == "length":
        return spread
    return spread / (clusters * learning.dirichlet_alpha + 1.0)


def heterogeneity_of(constants: SurrogateConstants, scenario: Scenario) -> float:
    """Return ``zeta^2`` of a scenario's partition over the squared gradient norm, at least 0."""
    learning = scenario.learning
    return constants.heterogeneity.get(learning.partition, 0.0) * skew(learning, scenario.clusters)


class SurrogateLearner:
    """Learner that follows the fitted bound instead of training; draws no random numbers.

    It reads only how many of the micro-batches arrived, and their survival. Which ones arrived, and into how
    many a mini-batch is cut, does not matter, since gradient accumulation makes any number of them one batch.
    Stale weights and the server's mode under split training (:attr:`RoundOutcome.staleness`,
    :attr:`RoundOutcome.server_mode`) change the mathematics of training, but no constants have been fitted
    for them, so it ignores them: such plans look as good as synchronous ones with one head. Nor does it know
    the errors of compressed updates (``workload.weight_bits``, ``workload.update_compression``), so
    compression seems to cost no progress. Compare such plans with the real learner.

    From the scenario's learning section it reads the partition and the step-size schedule, to which progress
    is proportional; for all other fields the values of the fit hold.
    """

    def __init__(
        self,
        constants: SurrogateConstants,
        num_envs: int,
        batch_size: int,
        heterogeneity: float = 0.0,
        step_factor: Callable[[int], float] | None = None,
        backend: Backend = NUMPY,
        *,
        own_steps: bool = False,
    ) -> None:
        """Describe the learning.

        Args:
            batch_size: Samples ``B`` of a cluster's mini-batch.
            heterogeneity: ``zeta^2`` of the partition over the squared gradient norm, at least 0.
            step_factor: Share of the full step size in a local step, counted over all rounds, in [0, 1]; None
                for 1 in all.
            own_steps: Whether clusters may sit out or take different numbers of local steps.
        """
        self.constants = constants
        self.heterogeneity = heterogeneity
        self._batch_size = batch_size
        self._step_factor = step_factor
        c = constants
        self._curve = CurveTerms(c.initial_loss, c.floor_loss, c.exponent, c.head_share, c.head_speed)
        self._backend = backend
        self._own_steps = own_steps
        self._progress = backend.array(np.zeros(num_envs))
        self._round = backend.array(np.zeros(num_envs, dtype=np.int64))
        # Local steps of all rounds.
        self._steps = self._round
        # No environment has taken more local steps than this since its reset.
        self._longest = 0
        self._factors = backend.array(np.ones(0))
        # Shape of the arrivals (E, N, H), known from the first round on.
        self._shape: tuple[int, ...] = ()
        self._no_metric = backend.array(np.full(num_envs, np.nan))
        if backend is NUMPY:
            self._no_metric.setflags(write=False)
        self._learn = backend.fuse(self._learned)

    @classmethod
    def from_scenario(cls, scenario: Scenario, num_envs: int, backend: Backend = NUMPY) -> SurrogateLearner:
        """Build with the shipped constants that suit the scenario, see :func:`fit_for`.

        Raises:
            ScenarioError: If no fit is shipped for the task.
            DataError: If the shipped file is damaged.
        """
        constants = fit_for(scenario).constants
        return cls(
            constants,
            num_envs,
            scenario.workload.batch_size,
            heterogeneity_of(constants, scenario),
            step_factors(scenario),
            backend,
            own_steps=judged_by_target(scenario),
        )

    def reset(
        self,
        rngs: Sequence[np.random.Generator],  # noqa: ARG002 - the bound is deterministic
        mask: BoolArray | None = None,
    ) -> LearningReport:
        """Start again from the initial loss in the masked environments."""
        rows = self._backend.rows(np.ones(len(self._round), dtype=np.bool_) if mask is None else mask)
        self._progress = rows.fill(self._progress, 0.0)
        self._round = rows.fill(self._round, 0)
        self._steps = rows.fill(self._steps, 0)
        if rows.all:
            self._longest = 0
        loss = loss_at(self.constants, self._progress)
        return LearningReport(loss=loss, metric=self._no_metric, train_loss=self._no_metric)

    def train_round(self, outcome: RoundOutcome) -> LearningReport:
        """Move the loss one round on."""
        shape = outcome.arrivals.counts.shape
        if shape != self._shape:
            self._prepare(shape)
        before, taken, lasts = self._steps, self._every_step, shape[-1]
        if self._own_steps:
            xp = namespace(before)
            taken = xp.astype(outcome.real_steps, before.dtype)
            lasts = xp.max(taken, axis=-1)
        if self._longest + shape[-1] > len(self._factors):
            self._grow(shape[-1])
        given = outcome.arrivals.counts, outcome.micro_batches, outcome.survival
        if self._backend is NUMPY:
            reached, loss = learn_rows(
                self._terms,
                np.ascontiguousarray(given[0], dtype=np.int64),
                np.ascontiguousarray(given[1], dtype=np.int64),
                np.ascontiguousarray(given[2], dtype=np.float64),
                self._factors,
                taken,
                before,
                self._progress,
            )
        else:
            reached, loss = self._learn(*given, self._factors, before, taken, self._progress)
        self._progress, self._round, self._steps = reached, self._round + 1, before + lasts
        self._longest += shape[-1]
        return LearningReport(loss=loss, metric=self._no_metric, train_loss=loss)

    def _prepare(self, shape: tuple[int, ...]) -> None:
        """Work out what all rounds with arrivals of one shape (E, N, H) share."""
        self._shape = shape
        law = law_terms(self.constants, shape[1], self.heterogeneity)
        self._terms = loop_record(LearnTerms(*law, self._curve, float(self._batch_size)))
        self._every_step = self._backend.array(np.full(shape[:2], shape[2]))

    def _learned(
        self,
        arrived: Array,
        micro_batches: Array,
        survival: Array,
        factors: Array,
        before: Array,
        taken: Array,
        progress_made: Array,
    ) -> tuple[Array, Array]:
        """Progress and loss after a round; the loops of :mod:`collapipe_env.kernels.surrogate` on tensors."""
        xp = namespace(progress_made)
        outcome = SurrogateOutcome.of_arrays(arrived, micro_batches, survival, taken, self._batch_size)
        # Counted on the arrays' own device.
        place = xp.cumulative_sum(xp.ones_like(arrived[:, 0], dtype=before.dtype), axis=-1) - 1
        scaled = None if self._step_factor is None else factors[before[:, None] + place]
        reached = progress_made + progress(self.constants, outcome, self.heterogeneity, scaled)
        return reached, loss_at(self.constants, reached)

    def get_state(self) -> Tree:
        """Return progress and rounds of every environment; see :mod:`collapipe_env.ground.state_trees`."""
        host = self._backend.host
        return {"progress": host(self._progress), "round": host(self._round), "step": host(self._steps)}

    def set_state(self, tree: Tree) -> None:
        """Continue from a state of :meth:`get_state`.

        Raises:
            StateError: If the state is damaged, or has another number of environments.
        """
        require_alike(tree, self.get_state(), "learner")
        for name, most in (("round", np.inf), ("progress", LARGEST_NUMBER), ("step", MOST_STEPS)):
            require_within(tree[name], 0, most, f"learner/{name}")
        arrays = [self._backend.array(tree[name]) for name in ("progress", "round", "step")]
        self._progress, self._round, self._steps = arrays
        self._longest = int(self._steps.max())

    def remember(self) -> Callable[[], None]:
        """Remember progress and rounds, and return a function that restores them."""
        kept = self._progress, self._round, self._longest, self._steps

        def put_back() -> None:
            self._progress, self._round, self._longest, self._steps = kept

        return put_back

    def require_rounds(self, tree: Tree, rounds: IntArray) -> None:
        """Refuse other numbers of rounds; see :class:`~collapipe_env.simulator.learner.CountsRounds`."""
        require_alike(tree, self.get_state(), "learner")
        if (tree["round"] != np.maximum(rounds, 0)).any():
            raise StateError(f"learner/round does not agree with the system's rounds: {REMEDY}")

    def _grow(self, local_steps: int) -> None:
        """Make the table of step sizes long enough for another round of so many local steps."""
        self._longest = int(self._steps.max())
        if self._longest + local_steps > len(self._factors):
            steps = max(2 * (self._longest + local_steps), 64 * local_steps)
            self._factors = self._backend.array(factor_table(self._step_factor, steps))


def factor_table(step_factor: Callable[[int], float] | None, steps: int) -> FloatArray:
    """Return the share of the full step size in each local step (steps,).

    Args:
        step_factor: The share as a function of the local step, counted over all rounds; None for 1 in all.
    """
    return np.ones(steps) if step_factor is None else np.array([step_factor(t) for t in range(steps)])


def step_factors(scenario: Scenario) -> Callable[[int], float] | None:
    """Return the share of the full step size as a function of the local step, counted over all rounds.

    None if it is 1 in all steps.
    """
    learning, local_steps = scenario.learning, scenario.workload.local_steps
    if learning.schedule == "constant" and learning.warmup_steps == 0:
        return None
    from collapipe_env.training.step_sizes import step_factor

    steps = learning.schedule_steps or scenario.dynamics.rounds * local_steps
    # Not a lambda, which could not be pickled.
    return partial(step_factor, learning.schedule, warmup_steps=learning.warmup_steps, steps=steps)
