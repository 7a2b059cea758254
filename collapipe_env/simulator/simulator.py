"""The simulator: channels, queues and learner of a batch of environments, one round at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.errors import StateError
from collapipe_env.kernels.queues import queue_rows
from collapipe_env.learners.base import (
    Arrivals,
    CountsRounds,
    Learner,
    LearningReport,
    RoundOutcome,
    require_snapshots,
)
from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.schedules.segments import pipeline_blocks, version_gaps
from collapipe_env.scenario import Layout, Scenario, draw_layout, fixed_layout
from collapipe_env.simulator.arrivals import MicroBatchLosses
from collapipe_env.simulator.build import energy_budgets, link_path_gains, memory_caps, system_parameters
from collapipe_env.simulator.channels import Fading, LoadChain, laid_out
from collapipe_env.simulator.check import check_allocation, check_costs
from collapipe_env.simulator.costs import RoundCosts, round_costs
from collapipe_env.simulator.feasibility import warn_if_infeasible
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.saved_round import (
    SavedRound,
    report_of,
    report_tree,
    system_of,
    system_tree,
)
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.state_checks import require_consistent, require_rounds
from collapipe_env.simulator.streams import SeededGenerators, Stream, WordArray, episode_seeds, normal
from collapipe_env.state_trees import REMEDY, Tree, require_alike

COMPONENTS = 6
"""Seeds of an episode: layout, shadowing, fading, loads, losses, learner."""

LAYOUT_ARRAYS = ("mean_gain", "full_speed", "flops_per_cycle", "capacitance", "active_power")
"""What the simulator keeps of each row's layout."""

Rows = npt.NDArray[np.intp]
FloatArray = npt.NDArray[np.float64]


class Simulator:
    """One whole system per row: layout, channels, loads, virtual queues and training.

    A row is governed by its own seeds alone: it evolves bit for bit as it would in a batch of one.
    The learner has a seed of its own and changes nothing of the system's trajectory.

    Args:
        scenario: The scenario of all rows.
        learner: Supplies the loss; must have been built for ``num_envs`` environments.
        num_envs: ``E`` >= 1.

    Warns:
        EnergyBudgetWarning: Once for each scenario whose energy budgets cannot be met.
    """

    def __init__(self, scenario: Scenario, learner: Learner, num_envs: int = 1) -> None:
        self.scenario = scenario
        self.parameters = system_parameters(scenario)
        warn_if_infeasible(scenario)
        self.num_envs = num_envs
        self.learner = learner
        E, N, K = num_envs, scenario.clusters, scenario.max_devices
        radio, dynamics, work = scenario.radio, scenario.dynamics, scenario.workload
        links = N * (1 + (K + 1) * K // 2)
        self._fading = Fading(E, links, radio.diversity, radio.fading_correlation)
        self._shadow = Stream(E, links + links % 2)
        self._load = LoadChain(E, (N, K), dynamics.load_levels, dynamics.load_stay_probability)
        self._losses = MicroBatchLosses(
            E, N, work.local_steps, work.micro_batch_choices[-1], lossy=radio.link_errors == "drop"
        )
        # Mean gains of the links in the order of the fading: uplinks first, then each cluster's pairs.
        self._mean_gain = np.zeros((E, links))
        self._fading_gain = np.empty((E, links))  # only to work in
        self._full_speed = np.ones((E, N, K))
        self._flops_per_cycle = np.ones((E, N, K))
        self._capacitance = np.zeros((E, N, K))
        self._active_power = np.zeros((E, N, K))
        self.state = SystemState(
            uplink_gain=np.ones((E, N)),
            d2d_gain=np.ones((E, N, K + 1, K + 1)),
            cross_gain=np.zeros((E, N, N)),
            speed=np.ones((E, N, K)),
            compute_power=np.zeros((E, N, K)),
            memory_bytes=np.zeros((E, N, K)),
            memory_cap=np.zeros((E, N, K), dtype=np.int64),
            present=np.zeros((E, N, K), dtype=np.bool_),
            budget=np.broadcast_to(energy_budgets(scenario), (E, N, K + 1)).copy(),
            backlog=np.zeros((E, N, K + 1)),
            round_index=np.zeros(E, dtype=np.int64),
            loss=np.zeros(E),
        )
        self.learning = LearningReport(
            loss=np.zeros(E), metric=np.full(E, np.nan), train_loss=np.full(E, np.nan)
        )
        self._last_round: RoundRecord | None = None
        # A round played before the state was set: worked out when somebody asks for it.
        self._saved_round: SavedRound | None = None
        self._was_reset = np.zeros(E, dtype=np.bool_)
        self._started = False

    def reset(
        self, rngs: Sequence[np.random.Generator], mask: npt.NDArray[np.bool_] | None = None
    ) -> SystemState:
        """Start new episodes.

        Args:
            rngs: One generator per environment, length E; the seeds of the components come from it, see
                :mod:`collapipe_env.simulator.streams`.
            mask: True for the rows to reset (E,); ``None`` for all. The other rows go on.

        Returns:
            The state that the scheduler sees (E, ...).
        """
        rows = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        seeds = episode_seeds(rows, rngs, COMPONENTS)
        layout, shadow, fading, load, loss, learner = seeds.T
        state = self.state.map(np.copy)
        self._set_layouts(state, rows, layout, shadow)
        gains = self._fading.reset(rows, fading)
        factors = self._load.reset(rows, load)
        self._losses.reset(rows, loss)
        self._set_channels(state, rows, gains, factors)
        state.backlog[rows] = 0.0
        state.round_index[rows] = 0
        self._was_reset[rows] = True
        self._started = bool(self._was_reset.all())
        self.learning = self.learner.reset(SeededGenerators(rngs, rows, learner), mask)
        state.loss[rows] = self.learning.loss[rows]
        self.state = state
        return state

    def step(self, allocation: Allocation, *, check: bool = True) -> RoundRecord:
        """Play one round in every row and move the channels on: :meth:`try_round` and :meth:`take`."""
        record = self.try_round(allocation, check=check)
        self.take(record)
        return record

    def try_round(self, allocation: Allocation, *, check: bool = True) -> RoundRecord:
        """Work out one round in every row. Only the learner changes: it trains; :meth:`take` does the rest.

        Args:
            allocation: Decisions of all rows (E, ...).
            check: Refuse infeasible allocations; decoded actions are feasible by construction and
                need no check.

        Raises:
            AllocationError: If an allocation is infeasible.
            RuntimeError: If a row was never reset.
        """
        if not self._started:
            row = int(np.argmin(self._was_reset))
            raise RuntimeError(f"environment {row} was stepped before its first reset: call reset() first")
        state = self.state
        if check:
            check_allocation(self.parameters, state, allocation)
        costs = round_costs(self.parameters, state, allocation)
        if check:
            check_costs(costs)
        arrivals = self._losses.draw(costs.survival, allocation.micro_batches)
        learning = self.learner.train_round(
            RoundOutcome(
                blocks=pipeline_blocks(allocation),
                micro_batches=allocation.micro_batches,
                arrivals=arrivals,
                success=costs.survival,
                server_blocks=allocation.server_blocks,
                server_mode=allocation.server_mode,
                staleness=version_gaps(allocation),
            )
        )
        return self._recorded(state, allocation, costs, arrivals, learning)

    def take(self, record: RoundRecord) -> None:
        """Go on to the next round.

        Args:
            record: What :meth:`try_round` has just returned.
        """
        self._losses.next_round()
        self.learning, self._last_round = record.learning, record
        self.state = self._following(record)

    def _recorded(
        self,
        state: SystemState,
        allocation: Allocation,
        costs: RoundCosts,
        arrivals: Arrivals,
        learning: LearningReport,
    ) -> RoundRecord:
        """Move the queues by what the round cost."""
        backlog = np.empty_like(state.backlog)
        excess, held = np.empty(self.num_envs), np.empty(self.num_envs)
        queue_rows(state.backlog, np.ascontiguousarray(costs.energy_ratio), backlog, excess, held)
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
        )

    @property
    def last_round(self) -> RoundRecord | None:
        """Everything about the round just played; ``None`` before the first.

        Raises:
            StateError: If a state was set by hand whose last round cannot have been played.
        """
        saved = self._saved_round
        if self._last_round is None and saved is not None:
            saved.check(self.parameters)
            costs = round_costs(self.parameters, saved.state, saved.allocation)
            self._last_round = self._recorded(
                saved.state, saved.allocation, costs, saved.arrivals, saved.learning
            )
        return self._last_round

    def get_state(self) -> Tree:
        """Everything that decides how the simulation goes on, and the last round.

        Raises:
            StateError: If the learner cannot say its state.
        """
        record, saved = self._last_round, self._saved_round
        if record is not None:
            saved = SavedRound.of(record)
        return {
            **self._own_state(),
            "learning": report_tree(self.learning),
            "learner": require_snapshots(self.learner).get_state(),
            "last_round": None if saved is None else saved.tree(),
        }

    def set_state(self, tree: Tree, seeded: npt.NDArray[np.bool_] | None = None) -> None:
        """Go on from a state of :meth:`get_state`; on an error everything is left as it was.

        Args:
            tree: The state.
            seeded: Rows that have a generator for their next episodes (E,); ``None`` for all.

        Raises:
            StateError: If it is damaged, or of another number of environments or another scenario.
        """
        learner, own = require_snapshots(self.learner), self._own_state()
        free = ("simulator/learning", "simulator/learner", "simulator/last_round")
        template = {**own, "learning": None, "learner": None, "last_round": None}
        require_alike(tree, template, "simulator", frozenset(free))
        was_reset = tree["was_reset"]
        require_rounds(tree["system"], self.state.budget, self.scenario.dynamics.rounds)
        require_consistent(tree, self.parameters, self._fading, self._load)
        if seeded is not None and (was_reset & ~seeded).any():
            raise StateError(f"a row that was reset has no generator: {REMEDY}")
        learning = report_of(tree["learning"], self.num_envs, free[0])
        saved = None
        if tree["last_round"] is not None:
            steps = self.scenario.workload.local_steps
            saved = SavedRound.from_tree(tree["last_round"], self.parameters, own["system"], steps, free[2])
        if isinstance(learner, CountsRounds):
            played = np.where(was_reset, tree["system"]["round_index"], -1)
            learner.require_rounds(tree["learner"], played)
        learner.set_state(tree["learner"])
        # Nothing below can fail.
        self._set_parts(tree)
        self.state = system_of(tree["system"])
        self.learning = learning
        self._started = bool(was_reset.all())
        self._last_round, self._saved_round = None, saved

    def remember(self) -> Callable[[], None]:
        """Remember everything that a step or a reset changes; returns a function that puts it back.

        The same as taking and setting the state, but quicker, and with the very objects of before.

        Raises:
            StateError: If the learner cannot say its state.
        """
        learner, parts = require_snapshots(self.learner), self._parts_state()
        trained = learner.get_state()
        # These are replaced and never written to.
        kept = self.state, self.learning, self._last_round, self._started

        def put_back() -> None:
            learner.set_state(trained)
            self._set_parts(parts)
            self.state, self.learning, self._last_round, self._started = kept

        return put_back

    def _own_state(self) -> Tree:
        """The arrays and generators of the state, without the learner."""
        return {"system": system_tree(self.state), **self._parts_state()}

    def _parts_state(self) -> Tree:
        """The arrays that change in place, and the random streams."""
        return {
            "layout": {name: getattr(self, f"_{name}").copy() for name in LAYOUT_ARRAYS},
            "fading": self._fading.get_state(),
            "load": self._load.get_state(),
            "losses": self._losses.get_state(),
            "was_reset": self._was_reset.copy(),
        }

    def _set_parts(self, tree: Tree) -> None:
        for name in LAYOUT_ARRAYS:
            setattr(self, f"_{name}", tree["layout"][name].copy())
        self._fading.set_state(tree["fading"])
        self._load.set_state(tree["load"])
        self._losses.set_state(tree["losses"])
        self._was_reset = tree["was_reset"].copy()

    def _following(self, record: RoundRecord) -> SystemState:
        """The state of the next round; arrays that callers may still hold are left as they are."""
        state = self.state
        uplink, d2d = laid_out(self._mean_gain, self._fading.advance(self._fading_gain), state.present.shape)
        speed, power = state.speed, state.compute_power
        if not self._load.constant:
            speed = self._full_speed * self._load.advance()
            power = compute_power(
                speed, self._flops_per_cycle, self._capacitance, self._active_power, self._full_speed
            )
        # Built by hand: dataclasses.replace would take as long as all the draws.
        return SystemState(
            uplink_gain=uplink,
            d2d_gain=d2d,
            cross_gain=state.cross_gain,
            speed=speed,
            compute_power=power,
            memory_bytes=state.memory_bytes,
            memory_cap=state.memory_cap,
            present=state.present,
            budget=state.budget,
            backlog=record.backlog,
            round_index=state.round_index + 1,
            loss=record.smoothed_loss,
        )

    def _set_layouts(self, state: SystemState, rows: Rows, seeds: WordArray, shadow: WordArray) -> None:
        if self.scenario.cluster.layout == "fixed":
            self._set_layout(state, rows, fixed_layout(self.scenario))
        else:
            for row, seed in zip(rows, seeds.tolist(), strict=True):
                layout = draw_layout(self.scenario, np.random.default_rng(seed))
                self._set_layout(state, np.array([row]), layout)
        state.memory_cap[rows] = memory_caps(self.parameters.costs, state.memory_bytes[rows])
        # Log-normal shadowing, drawn once per episode; a pair's is the same both ways.
        radio, N = self.scenario.radio, self.scenario.clusters
        self._shadow.reset(rows, shadow)
        shadow_db = normal(self._shadow.uniform(rows))[:, : self._mean_gain.shape[1]]
        shadow_db[:, :N] *= radio.d2e_shadowing_db
        shadow_db[:, N:] *= radio.d2d_shadowing_db
        self._mean_gain[rows] *= 10.0 ** (shadow_db / 10.0)

    def _set_layout(self, state: SystemState, rows: Rows, layout: Layout) -> None:
        """Put some rows into one layout, without shadowing."""
        state.cross_gain[rows] = layout.cross_gain
        state.memory_bytes[rows] = layout.memory_bytes
        state.present[rows] = layout.present
        self._full_speed[rows] = layout.max_clock_hz * layout.flops_per_cycle
        self._flops_per_cycle[rows] = layout.flops_per_cycle
        self._capacitance[rows] = layout.switched_capacitance
        self._active_power[rows] = layout.active_power_w
        self._mean_gain[rows] = link_path_gains(layout)

    def _set_channels(self, state: SystemState, rows: Rows, gains: FloatArray, factors: FloatArray) -> None:
        uplink, d2d = laid_out(self._mean_gain[rows], gains, state.present[rows].shape)
        state.uplink_gain[rows] = uplink
        state.d2d_gain[rows] = d2d
        speed = self._full_speed[rows] * factors
        state.speed[rows] = speed
        state.compute_power[rows] = compute_power(
            speed,
            self._flops_per_cycle[rows],
            self._capacitance[rows],
            self._active_power[rows],
            self._full_speed[rows],
        )
