"""The simulator: channels, queues and learner of a batch of environments, one round at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.kernels.channels import link_gains
from collapipe_env.kernels.queues import queue_rows
from collapipe_env.learners.base import Learner, LearningReport, RoundOutcome
from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.scenario import Layout, Scenario, draw_layout, fixed_layout
from collapipe_env.simulator.build import energy_budgets, link_path_gains, system_parameters
from collapipe_env.simulator.channels import Fading, LoadChain
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.extensions import pipeline_blocks, version_gaps
from collapipe_env.simulator.feasibility import warn_if_infeasible
from collapipe_env.simulator.losses import MicroBatchLosses
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.streams import SeededGenerators, Stream, WordArray, episode_seeds, normal

COMPONENTS = 6
"""Seeds of an episode: layout, shadowing, fading, loads, losses, learner."""

LOSS_SMOOTHING = 0.8
"""Weight of the past in the smoothed evaluation loss."""

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
        self.last_round: RoundRecord | None = None
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
        """Play one round in every row and move the channels on.

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
        arrivals = self._losses.draw(costs.survival, allocation.micro_batches)
        self.learning = self.learner.train_round(
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
        backlog = np.empty_like(state.backlog)
        excess, held = np.empty(self.num_envs), np.empty(self.num_envs)
        queue_rows(state.backlog, np.ascontiguousarray(costs.energy_ratio), backlog, excess, held)
        self.last_round = RoundRecord(
            state=state,
            allocation=allocation,
            costs=costs,
            arrivals=arrivals,
            backlog=backlog,
            backlog_sum=held,
            energy_excess=excess,
            learning=self.learning,
            half_duplex=self.parameters.half_duplex,
        )
        self.state = self._following(backlog)
        return self.last_round

    def _following(self, backlog: FloatArray) -> SystemState:
        """The state of the next round; arrays that callers may still hold are left as they are."""
        state = self.state
        uplink, d2d = self._gains(self._mean_gain, self._fading.advance(self._fading_gain))
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
            backlog=backlog,
            round_index=state.round_index + 1,
            loss=LOSS_SMOOTHING * state.loss + (1.0 - LOSS_SMOOTHING) * self.learning.loss,
        )

    def _set_layouts(self, state: SystemState, rows: Rows, seeds: WordArray, shadow: WordArray) -> None:
        if self.scenario.cluster.layout == "fixed":
            self._set_layout(state, rows, fixed_layout(self.scenario))
        else:
            for row, seed in zip(rows, seeds.tolist(), strict=True):
                layout = draw_layout(self.scenario, np.random.default_rng(seed))
                self._set_layout(state, np.array([row]), layout)
        costs = self.parameters.costs
        state.memory_cap[rows] = memory_cap_blocks(
            state.memory_bytes[rows],
            costs.batch_size,
            costs.block_state_bytes,
            costs.stored_activation_bytes,
        )
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
        uplink, d2d = self._gains(self._mean_gain[rows], gains)
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

    def _gains(self, mean: FloatArray, fading: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gains of uplinks (rows, N) and node pairs (rows, N, K+1, K+1) from those of links (rows, links)."""
        rows, N, nodes = len(mean), self.scenario.clusters, self.scenario.max_devices + 1
        uplink, d2d = np.empty((rows, N)), np.empty((rows, N, nodes, nodes))
        link_gains(mean, fading, uplink, d2d)
        return uplink, d2d
