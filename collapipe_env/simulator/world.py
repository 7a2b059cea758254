"""The world: systems, queues and learner of a batch of environments, one round at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from collapipe_env.ground.arrays import Array, BoolArray, where
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.ground.errors import AllocationError, NotResetError, StateError
from collapipe_env.ground.records import mapped, tree_of
from collapipe_env.ground.state_trees import REMEDY, Tree, require_alike
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import participation_queue
from collapipe_env.physics.schedules.segments import pipeline_blocks, version_gaps
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.simulator.arrivals import MicroBatchArrivals
from collapipe_env.simulator.build import energy_budgets, system_parameters
from collapipe_env.simulator.check import check_allocation, check_costs
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.idle_fields import warn_of_idle_fields
from collapipe_env.simulator.learner import (
    Arrivals,
    CountsRounds,
    Learner,
    LearningReport,
    QuickLearner,
    RoundOutcome,
    require_snapshots,
)
from collapipe_env.simulator.memory_choices import SCHEDULE_CHOICES
from collapipe_env.simulator.moving_system import AllCarried, MovingSystem
from collapipe_env.simulator.randomness import SeededGenerators, episode_seeds
from collapipe_env.simulator.record import RoundRecord, queue_round, server_round
from collapipe_env.simulator.round import Interruption, RoundCosts, Terms, with_terms
from collapipe_env.simulator.round_events import RoundEvents, as_left, moments_after
from collapipe_env.simulator.saved_round import (
    SavedRound,
    interruption_on,
    report_of,
)
from collapipe_env.simulator.state import SystemState, able_clusters
from collapipe_env.simulator.state_checks import require_consistent, require_rounds


@dataclass(frozen=True, eq=False)
class Played:
    """A round that has been computed but not taken yet.

    Attributes:
        record: Full record of the round.
        following: The system before the next round (E, ...).
        seen: The next system as schedulers see it.
        carried: Arrays that the processes carry in the next round.
    """

    record: RoundRecord
    following: SystemState
    seen: SystemState
    carried: AllCarried


class World:
    """One whole system per row: processes, virtual queues and training.

    A row depends on its own seeds alone: it evolves bit for bit as it would in a batch of one. The learner
    has its own seed and does not affect the system's trajectory. Arrays that have been handed out are never
    written to again.

    Args:
        scenario: The scenario of all rows.
        learner: Supplies the loss; must have been built for ``num_envs`` environments.
        num_envs: ``E`` >= 1.
        backend: Library of the arrays.

    Attributes:
        state: The system before the next round (E, ...).
        seen: The system as schedulers see it; the true one unless a process estimates or hides something.
        learning: Report of the learner.
        quick: The learner, if it can go back after a round that breaks off.

    Warns:
        IdleFieldWarning: Once for each scenario that sets process fields without effect.
    """

    def __init__(
        self, scenario: Scenario, learner: Learner, num_envs: int = 1, backend: Backend = NUMPY
    ) -> None:
        self.scenario = scenario
        self.parameters = system_parameters(scenario)
        warn_of_idle_fields(scenario)
        self.num_envs = num_envs
        self.learner = learner
        # Checked once, because checking an object for a protocol is slow.
        self.quick = learner if isinstance(learner, QuickLearner) else None
        self.backend = backend
        self.system = MovingSystem(scenario, self.parameters.costs, num_envs, backend)
        work, E = scenario.workload, num_envs
        self._arrivals = MicroBatchArrivals(
            scenario.clusters,
            self.parameters.most_local_steps,
            work.micro_batch_choices[-1],
            backend,
            lossy=self.parameters.lossy,
        )
        self._seeds = backend.array(np.zeros(E, dtype=np.uint64))
        # Schedules are simulated on the host, so PyTorch cannot fuse them into kernels.
        self._schedules = opens(scenario, "schedule")
        cost = partial(round_costs, self.parameters)
        self._cost = cost if self._schedules else backend.fuse(cost)
        self._events = RoundEvents(self.parameters, self.system, backend)
        nodes = (E, scenario.clusters, scenario.max_devices + 1)
        zeros, unknown = backend.array(np.zeros(E)), backend.array(np.full(E, np.nan))
        self.state = self.system.state(
            self.system.carried,
            budget=backend.array(np.broadcast_to(energy_budgets(scenario), nodes)),
            backlog=backend.array(np.zeros(nodes)),
            round_index=backend.array(np.zeros(E, dtype=np.int64)),
            loss=zeros,
            absence=self._nobody_missing(E),
        )
        self.seen = self.system.estimate(self.state, self.system.carried)
        self.learning = LearningReport(loss=zeros, metric=unknown, train_loss=unknown)
        self._last_round: RoundRecord | None = None
        # A round played before the state was set; recomputed only on request.
        self._saved_round: SavedRound | None = None
        self._was_reset = np.zeros(E, dtype=np.bool_)
        # Rows in which a reset, or a round that cannot be undone, has begun and not ended.
        self._broken = np.zeros(E, dtype=np.bool_)

    def _nobody_missing(self, num_envs: int) -> Array | None:
        """Empty participation queues (E, N); ``None`` where all clusters have to take part."""
        if "participation" not in self.parameters.opened:
            return None
        return self.backend.array(np.zeros((num_envs, self.scenario.clusters)))

    def reset(self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None) -> SystemState:
        """Start new episodes.

        Args:
            rngs: One generator per environment, length E; the seeds of the components come from it, see
                :mod:`collapipe_env.simulator.randomness`.
            mask: True for the rows to reset (E,); ``None`` for all. The other rows continue.

        Returns:
            The state as schedulers see it (E, ...).
        """
        mask = np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask
        rows = self.backend.rows(mask)
        seeds = episode_seeds(rows.host, rngs, self.system.streams)
        self.system.begin(rows, seeds)  # on an error nothing has changed
        self._broken = self._broken | mask
        self._seeds = rows.put(self._seeds, self.backend.array(seeds["arrivals"]))
        self._was_reset = self._was_reset | mask
        self.learning = self.learner.reset(SeededGenerators(rngs, rows.host, seeds["learner"]), mask)
        state = self.state
        self.state = self.system.state(
            self.system.carried,
            state.budget,
            backlog=rows.fill(state.backlog, 0.0),
            round_index=rows.fill(state.round_index, 0),
            loss=rows.put(state.loss, rows.of(self.learning.loss)),
            absence=None if state.absence is None else rows.fill(state.absence, 0.0),
        )
        self.seen = self.system.estimate(self.state, self.system.carried)
        self._broken = self._broken & ~mask
        return self.seen

    def step(self, allocation: Allocation, *, check: bool = True) -> RoundRecord:
        """Play one round in every row and move on: :meth:`try_round` and :meth:`take`."""
        played = self.try_round(allocation, check=check)
        self.take(played)
        return played.record

    def try_round(self, allocation: Allocation, *, check: bool = True) -> Played:
        """Compute one round in every row. Only the learner changes, by training; :meth:`take` does the rest.

        Args:
            allocation: Decisions of all rows (E, ...).
            check: Refuse infeasible allocations; decoded actions are feasible by construction and
                need no check.

        Raises:
            AllocationError: If an allocation is infeasible.
            NotResetError: If a row was never reset, or its last round or reset broke off.
        """
        if not self._was_reset.all():
            row = int(np.argmin(self._was_reset))
            raise NotResetError(f"environment {row} was stepped before its first reset: call reset() first")
        self._require_whole()
        state = self.state
        if check:
            self._check(state, allocation)
        costs = self._cost(state, allocation)
        if check:
            self._check_costs(costs)
        arrivals = self._arrivals.draw(
            self._seeds, state.round_index, costs.survival, allocation.micro_batches
        )
        arrivals = _of_the_plan(arrivals, costs)
        interruption = self._events.inside(state, costs)
        if interruption is not None:
            costs = self._interrupted(costs, state, interruption)
            arrivals = arrivals.only(interruption.trained)
        if self.quick is None:
            self._broken = np.ones_like(self._broken)
        learning = self.learner.train_round(
            RoundOutcome(
                blocks=allocation.blocks if allocation.chunks is None else pipeline_blocks(allocation),
                micro_batches=allocation.micro_batches,
                arrivals=arrivals,
                survival=costs.survival,
                server_blocks=allocation.server_blocks,
                server_mode=allocation.server_mode,
                staleness=None if allocation.schedule is None else version_gaps(allocation),
                moments=moments_after(costs.terms.notes.get("moments"), interruption),
                recompute=None if allocation.recompute is None else self._recomputes(allocation.recompute),
                participates=costs.plays,
                local_steps=costs.local_steps,
            )
        )
        record = self.recorded(state, allocation, costs, arrivals, learning, interruption)
        carried = self.system.advanced(state, as_left(costs, interruption, self.backend))
        following = self.system.state(
            carried,
            state.budget,
            record.backlog,
            state.round_index + 1,
            record.smoothed_loss,
            record.absence,
        )
        return Played(record, following, self.system.estimate(following, carried), carried)

    def _recomputes(self, chosen: Array) -> Array:
        """Clusters that recompute activations (E, N), bool; -1 in a plan is the workload's setting."""
        own = self.parameters.costs.training_memory.recompute
        return (chosen != 0) if own else (chosen > 0)

    def take(self, played: Played) -> None:
        """Move to the next round.

        Args:
            played: Result of the last :meth:`try_round`.
        """
        self.learning, self._last_round = played.record.learning, played.record
        self.system.carried, self.state = played.carried, played.following
        self.seen = played.seen
        self._broken = np.zeros_like(self._broken)

    def _require_whole(self) -> None:
        """Refuse to go on, or to take a state, where a round or a reset has broken off."""
        if self._broken.any():
            raise NotResetError(
                f"environments {np.flatnonzero(self._broken).tolist()}: an error broke off the last round or "
                "reset, so the learner may have trained on a part of it; call reset(), or set a state that "
                "was taken before"
            )

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

    def _check_costs(self, costs: RoundCosts) -> None:
        if self.backend is not NUMPY:
            host = self.backend.host
            costs = replace(costs, delay=host(costs.delay), energy_ratio=host(costs.energy_ratio))
        check_costs(costs)

    def _interrupted(self, costs: RoundCosts, state: SystemState, found: Interruption) -> RoundCosts:
        """Costs of a round with the events inside it."""
        terms = Terms(delay=found.cluster_delay, energy=found.energy)
        return with_terms(costs, self.parameters, state, [terms])

    def recorded(
        self,
        state: SystemState,
        allocation: Allocation,
        costs: RoundCosts,
        arrivals: Arrivals,
        learning: LearningReport,
        interruption: Interruption | None = None,
    ) -> RoundRecord:
        """Record a round, with the queues after it."""
        plays, absence = costs.plays, state.absence
        backlog, excess, held = queue_round(
            state.backlog,
            costs.energy_ratio,
            costs.allowance,
            plays,
            state.present,
        )
        if absence is not None:
            able = able_clusters(self.parameters, state)
            moved = participation_queue(absence, plays, self.parameters.participation_min)
            absence = where(able, moved, absence)
        server = server_round(state, costs)
        if server is not None:
            held, excess = held + server[0], excess + server[1]
        return RoundRecord(
            state=state,
            allocation=allocation,
            costs=costs,
            arrivals=arrivals,
            backlog=backlog,
            backlog_sum=held,
            energy_excess=excess,
            learning=learning,
            half_duplex=self.parameters.half_duplex,
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
            array = self.backend.array
            state = saved.state.map(partial(array, keep=True))
            allocation = saved.allocation.map(array)
            costs, interruption = round_costs(self.parameters, state, allocation), saved.interruption
            if interruption is not None:
                interruption = interruption_on(interruption, array)
                costs = self._interrupted(costs, state, interruption)
            learning = mapped(saved.learning, array)
            arrivals = self._arrivals.restored(saved.arrivals)
            self._last_round = self.recorded(state, allocation, costs, arrivals, learning, interruption)
        return self._last_round

    def get_state(self) -> Tree:
        """Everything that determines the next rounds, and the last round, as NumPy arrays.

        Raises:
            StateError: If the learner cannot save its state.
            NotResetError: If the last round or reset broke off.
        """
        self._require_whole()
        record, saved, host = self._last_round, self._saved_round, self.backend.host
        if record is not None:
            saved = SavedRound.of(record, host)
        return {
            **self._own_state(),
            "learning": tree_of(mapped(self.learning, host)),
            "learner": require_snapshots(self.learner).get_state(),
            "last_round": None if saved is None else saved.tree(),
        }

    def _own_state(self) -> Tree:
        """The arrays of the state, without the learner."""
        host = self.backend.host
        own = self.system.get_state()
        own["seeds"]["arrivals"] = host(self._seeds).view(np.uint64)
        return {"system": tree_of(self.state.map(host)), **own, "was_reset": self._was_reset.copy()}

    def set_state(self, tree: Tree, seeded: BoolArray | None = None) -> None:
        """Continue from a state of :meth:`get_state`; an error leaves everything unchanged.

        Args:
            seeded: Rows that have a generator for their next episodes (E,); ``None`` for all.

        Raises:
            StateError: If the state is damaged, or of another number of environments or another scenario.
        """
        learner, own = require_snapshots(self.learner), self._own_state()
        free = ("simulator/learning", "simulator/learner", "simulator/last_round")
        template = {**own, "learning": None, "learner": None, "last_round": None}
        require_alike(tree, template, "simulator", frozenset(free))
        was_reset = tree["was_reset"]
        require_rounds(tree["system"], own["system"]["budget"], self.scenario.dynamics.rounds)
        require_consistent(tree, self.parameters, self.system)
        if seeded is not None and (was_reset & ~seeded).any():
            raise StateError(f"a row that was reset has no generator: {REMEDY}")
        learning = report_of(tree["learning"], self.num_envs, own["system"]["loss"].dtype, free[0])
        saved = None
        if tree["last_round"] is not None:
            steps = self.parameters.most_local_steps
            saved = SavedRound.from_tree(tree["last_round"], self.parameters, own["system"], steps, free[2])
        if isinstance(learner, CountsRounds):
            played = np.where(was_reset, tree["system"]["round_index"], -1)
            learner.require_rounds(tree["learner"], played)
        array, seeds = partial(self.backend.array, keep=True), dict(tree["seeds"])
        own_seeds, state = array(seeds.pop("arrivals")), SystemState(**tree["system"]).map(array)
        before = self.system.snapshot()
        try:
            self.system.set_state({**tree, "seeds": seeds})
            seen = self.system.estimate(state, self.system.carried)
            learner.set_state(tree["learner"])
        except BaseException:
            self.system.put_back(before)
            raise
        # Nothing below can fail.
        self._seeds, self.state, self.seen = own_seeds, state, seen
        self.learning = mapped(learning, array)
        self._was_reset, self._broken = was_reset.copy(), np.zeros_like(was_reset)
        self._last_round, self._saved_round = None, saved

    def remember(self) -> Callable[[], None]:
        """Remember everything that a step or a reset changes; returns a function that puts it back.

        Same as getting and setting the state, but faster, and restores the very same objects.

        Raises:
            StateError, NotResetError: As for :meth:`get_state`.
        """
        self._require_whole()
        system = self.system.snapshot()
        untrained = _untrained(self.learner)
        # These attributes are replaced, never written to.
        names = (
            "state",
            "seen",
            "learning",
            "_last_round",
            "_saved_round",
            "_was_reset",
            "_seeds",
            "_broken",
        )
        kept: dict[str, Any] = {name: getattr(self, name) for name in names}

        def put_back() -> None:
            untrained()
            self.system.put_back(system)
            for name, value in kept.items():
                setattr(self, name, value)

        return put_back


def _of_the_plan(arrivals: Arrivals, costs: RoundCosts) -> Arrivals:
    """Arrivals of the clusters that take part, in the local steps that they take."""
    if costs.local_steps is not None:
        arrivals = arrivals.within(costs.local_steps)
    return arrivals.only(costs.plays)


def _untrained(learner: Learner) -> Callable[[], None]:
    """A function that undoes all training after this call.

    Raises:
        StateError: If the learner cannot save its state.
    """
    if isinstance(learner, QuickLearner):
        return learner.remember()
    able = require_snapshots(learner)
    trained = able.get_state()
    return lambda: able.set_state(trained)
