"""The world: systems, queues and learner of a batch of environments, one round at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from collapipe_env.ground.arrays import Array, namespace, where
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.ground.errors import AllocationError, NotResetError
from collapipe_env.ground.records import made, mapped
from collapipe_env.kernels.arrivals import arrivals
from collapipe_env.kernels.queues import queue_round
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import participation_queue
from collapipe_env.physics.segments import pipeline_blocks, version_gaps
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.simulator.arrivals import TensorArrivals
from collapipe_env.simulator.check import check_allocation, check_costs
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.learner import Arrivals, Learner, LearningReport, RoundOutcome, require_report
from collapipe_env.simulator.memory_choices import SCHEDULE_CHOICES
from collapipe_env.simulator.record import RoundRecord, server_round
from collapipe_env.simulator.round import Interruption, RoundCosts, Terms, with_terms
from collapipe_env.simulator.round_events import as_left, events_of, moments_after, on_backend
from collapipe_env.simulator.state import SystemState, able_clusters
from collapipe_env.simulator.world_states import WorldStates

LOSS_SMOOTHING = 0.8
"""Weight of the past in the smoothed evaluation loss, per round. Where clusters choose the number of local
steps it is per local step, to treat long rounds fairly."""

Judge: TypeAlias = Callable[[SystemState, RoundCosts, SystemState], Array]
"""Worth of a round (E,), from the system before it, its costs, and the system after it."""


class World(WorldStates):
    """One whole system per row: processes, virtual queues and training.

    A row depends on its own seeds alone: it evolves bit for bit as it would in a batch of one. The learner
    has its own seed and does not affect the system's trajectory. Arrays that have been handed out are never
    written to again.
    """

    def __init__(
        self, scenario: Scenario, learner: Learner, num_envs: int = 1, backend: Backend = NUMPY
    ) -> None:
        super().__init__(scenario, learner, num_envs, backend)
        p = self.parameters
        self._steps, self._most = p.most_local_steps, p.micro_batch_choices[-1]
        self._counts = backend.fuse(TensorArrivals(self._steps, self._most, backend).draw)
        self._may_sit_out = p.may_sit_out
        # Schedules are simulated on the host, so PyTorch cannot fuse them into kernels.
        self._schedules = opens(scenario, "schedule")
        cost = partial(round_costs, p)
        self._price = cost if self._schedules else backend.fuse(cost)
        self._events = events_of(p, self.system, backend)

    def step(self, allocation: Allocation, *, check: bool = True) -> RoundRecord:
        """Play one round in every row and move on, for a world whose rounds nobody judges."""
        return self.play(allocation, lambda *_: None, check=check)[0]

    def play(self, allocation: Allocation, judge: Judge, *, check: bool = True) -> tuple[RoundRecord, Array]:
        """Play one round in every row and move on.

        After an error nothing has changed, unless the learner has begun to train and cannot go back: then
        the rows go on only after a reset.

        Args:
            allocation: Decisions of all rows (E, ...).
            judge: Called before the round is taken, so its errors count.
            check: Refuse infeasible allocations; decoded actions are feasible by construction and
                need no check.

        Returns:
            The round, and what ``judge`` returned.

        Raises:
            AllocationError: If an allocation is infeasible.
            NotResetError: If a row was never reset, or its last round or reset broke off.
        """
        if np.count_nonzero(self._unready):  # quicker than any()
            self._refuse_unready()
        state = self.state
        if check:
            self._check(state, allocation)
        costs = self._price(state, allocation)
        if check:
            check_costs(self.backend.host(costs.delay), self.backend.host(costs.energy_ratio))
        arrived = self._arrived(state, costs)
        left, moments, interruption = costs, costs.terms.notes.get("moments"), None
        if self._events is not None:
            interruption = self._events.inside(state, costs)
        if interruption is not None:
            costs = self._interrupted(costs, state, interruption)
            arrived = arrived.only(interruption.trained)
            moments = moments_after(moments, interruption)
            left = as_left(costs, interruption, self.backend)
        outcome = self._outcome(costs, arrived, moments)
        undo = self._break if self.quick is None else self.quick.remember()
        try:
            learning = self.learner.train_round(outcome)
            if self.quick is None or learning.metrics:
                require_report(learning, self.num_envs)
            record = self.recorded(state, costs, arrived, learning, interruption)
            carried = self.system.advanced(state, left)
            following = self.system.state(
                carried,
                state.budget,
                record.backlog,
                state.round_index + 1,
                record.smoothed_loss,
                record.absence,
            )
            seen = self.system.estimate(following, carried)
            worth = judge(state, costs, following)
        except BaseException:  # users' own learners, processes and rewards may raise anything
            undo()
            raise
        self.learning, self._last_round = learning, record
        self.system.carried, self.state, self.seen = carried, following, seen
        return record, worth

    def _interrupted(self, costs: RoundCosts, state: SystemState, found: Interruption) -> RoundCosts:
        """Costs of a round with the events inside it."""
        terms = Terms(delay=found.cluster_delay, energy=found.energy)
        return with_terms(costs, self.parameters, state, [terms])

    def _arrived(self, state: SystemState, costs: RoundCosts) -> Arrivals:
        """Micro-batches that arrive from the clusters that take part, in the local steps that they take."""
        seeds, rounds, micro_batches = self._seeds, state.round_index, costs.allocation.micro_batches
        pick = None
        if self.backend is NUMPY:
            micro_batches = np.ascontiguousarray(micro_batches, dtype=np.int64)
            survival = np.ascontiguousarray(costs.survival)
            counts, pick = arrivals(seeds, rounds.view(np.uint64), survival, micro_batches, self._steps)
        else:
            counts = self._counts(seeds, rounds, costs.survival, micro_batches)
        found = made(Arrivals, counts=counts, micro_batches=micro_batches, pick=pick, most=self._most)
        if costs.local_steps is not None:
            found = found.within(costs.local_steps)
        return found.only(costs.plays) if self._may_sit_out else found

    def _outcome(self, costs: RoundCosts, arrived: Arrivals, moments: Array | None) -> RoundOutcome:
        """The parts of a round that learners read."""
        plan = costs.allocation
        recompute = None
        if plan.recompute is not None:  # -1 is the workload's own setting
            own = self.parameters.costs.training_memory.recompute
            recompute = (plan.recompute != 0) if own else (plan.recompute > 0)
        return made(
            RoundOutcome,
            blocks=plan.blocks if plan.chunks is None else pipeline_blocks(plan),
            micro_batches=plan.micro_batches,
            arrivals=arrived,
            survival=costs.survival,
            server_blocks=plan.server_blocks,
            server_mode=plan.server_mode,
            staleness=None if plan.schedule is None else version_gaps(plan),
            moments=moments,
            recompute=recompute,
            participates=costs.plays,
            local_steps=costs.local_steps,
        )

    def recorded(
        self,
        state: SystemState,
        costs: RoundCosts,
        arrived: Arrivals,
        learning: LearningReport,
        interruption: Interruption | None = None,
    ) -> RoundRecord:
        """Record a round, with the queues after it."""
        p, plays, absence = self.parameters, costs.plays, state.absence
        backlog, excess, held = queue_round(
            state.backlog, costs.energy_ratio, costs.delay, p.budget_period_s, plays, state.present
        )
        if absence is not None:
            moved = participation_queue(absence, plays, p.participation_min)
            absence = where(able_clusters(p, state), moved, absence)
        if math.isfinite(costs.server_budget_j):
            queue, above = server_round(state, costs)
            held, excess = held + queue, excess + above
        past: Array | float = LOSS_SMOOTHING
        if costs.local_steps is not None:
            xp, steps = namespace(state.loss), costs.local_steps
            taken = xp.where(plays, steps, xp.zeros_like(steps))
            past = LOSS_SMOOTHING ** xp.astype(xp.max(taken, axis=-1), state.loss.dtype)
        return made(
            RoundRecord,
            state=state,
            allocation=costs.allocation,
            costs=costs,
            arrivals=arrived,
            backlog=backlog,
            backlog_sum=held,
            energy_excess=excess,
            learning=learning,
            smoothed_loss=past * state.loss + (1.0 - past) * learning.loss,
            half_duplex=p.half_duplex,
            interruption=interruption,
            absence=absence,
        )

    @property
    def last_round(self) -> RoundRecord | None:
        """Record of the round just played; ``None`` before the first.

        Raises:
            StateError: If the state was set by hand and its last round cannot have been played.
        """
        saved = self._saved_round
        if self._last_round is None and saved is not None:
            saved.check(self.parameters)
            array, plan = self.backend.array, saved.allocation
            state = saved.state.map(partial(array, keep=True))
            costs, interruption = round_costs(self.parameters, state, plan.map(array)), saved.interruption
            if interruption is not None:
                interruption = on_backend(interruption, self.backend)
                costs = self._interrupted(costs, state, interruption)
            given = Arrivals(saved.counts, plan.micro_batches, saved.pick, self._most)
            if self.backend is not NUMPY:
                counts = array(given.counts.astype(np.float64))
                given = Arrivals(counts, array(given.micro_batches), None, given.most)
            learning = mapped(saved.learning, array)
            self._last_round = self.recorded(state, costs, given, learning, interruption)
        return self._last_round

    def _check(self, state: SystemState, allocation: Allocation) -> None:
        if self.backend is NUMPY:
            check_allocation(self.parameters, state, allocation)
            return
        if allocation.schedule is not None and not (
            self._schedules and np.isin(self.backend.host(allocation.schedule), SCHEDULE_CHOICES).all()
        ):
            raise AllocationError(
                f"schedule: the {self.backend.name} backend plays only GPipe and, where decisions list "
                "schedule, the schedules of an action; use backend='numpy' for plans with other schedules"
            )
        host = self.backend.host
        check_allocation(self.parameters, state.map(host), allocation.map(host))

    def _break(self) -> None:
        """Stop all rows until they are reset: the learner has trained on a part of a round."""
        self._unready = np.ones_like(self._unready)

    def _refuse_unready(self) -> None:
        if not self._was_reset.all():
            row = int(np.argmin(self._was_reset))
            raise NotResetError(f"environment {row} was stepped before its first reset: call reset() first")
        self._require_whole()
