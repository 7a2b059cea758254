"""The simulator: channels, queues and learner of a batch of environments, one round at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.learners.base import Learner, LearningReport, RoundOutcome
from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.physics.queues import update_backlog
from collapipe_env.scenario import Layout, Scenario, draw_layout, fixed_layout
from collapipe_env.simulator.build import energy_budgets, system_parameters
from collapipe_env.simulator.channels import Fading, LoadChain
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.extensions import pipeline_blocks, version_gaps
from collapipe_env.simulator.feasibility import warn_if_infeasible
from collapipe_env.simulator.losses import MicroBatchLosses
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.state import SystemState

LOSS_SMOOTHING = 0.8
"""Weight of the past in the smoothed evaluation loss."""

Rows = npt.NDArray[np.intp]
FloatArray = npt.NDArray[np.float64]


class Simulator:
    """One whole system per row: layout, channels, loads, virtual queues and training.

    A row is governed by its own generator alone: it evolves bit for bit as it would in a batch of one.
    The learner draws from its own child generator and changes nothing of the system's trajectory.

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
        self._pairs = (K + 1) * K // 2
        self._pair_index = _pair_index(K)
        links = N * (1 + self._pairs)
        self._fading = Fading(E, links, radio.diversity, radio.fading_correlation)
        self._load = LoadChain(E, (N, K), dynamics.load_levels, dynamics.load_stay_probability)
        self._losses = MicroBatchLosses(
            E, N, work.local_steps, work.micro_batch_choices[-1], lossy=radio.link_errors == "drop"
        )
        # Mean gains of the links in the order of the fading: uplinks first, then each cluster's pairs.
        self._mean_gain = np.zeros((E, links))
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

    def reset(
        self, rngs: Sequence[np.random.Generator], mask: npt.NDArray[np.bool_] | None = None
    ) -> SystemState:
        """Start new episodes.

        Args:
            rngs: One generator per environment, length E; children are spawned from it, one per
                component, so a component's numbers do not depend on the others'.
            mask: True for the rows to reset (E,); ``None`` for all. The other rows go on.

        Returns:
            The state that the scheduler sees (E, ...).
        """
        rows = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        children = [rngs[int(row)].spawn(6) for row in rows]
        layout_rngs, shadow_rngs, fading_rngs, load_rngs, loss_rngs, _ = zip(*children, strict=True)
        state = self.state.map(np.copy)
        layouts = [self._layout(rng) for rng in layout_rngs]
        self._set_layouts(state, rows, layouts)
        self._set_mean_gains(rows, layouts, shadow_rngs)
        gains = self._fading.reset(rows, fading_rngs)
        factors = self._load.reset(rows, load_rngs)
        self._losses.reset(rows, loss_rngs)
        self._set_channels(state, rows, gains, factors)
        state.backlog[rows] = 0.0
        state.round_index[rows] = 0
        learner_rngs = list(rngs)
        for row, child in zip(rows, children, strict=True):
            learner_rngs[row] = child[-1]
        self.learning = self.learner.reset(learner_rngs, mask)
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
        """
        state = self.state
        if check:
            check_allocation(self.parameters, state, allocation)
        costs = round_costs(self.parameters, state, allocation)
        survived = self._losses.draw(costs.survival)
        self.learning = self.learner.train_round(
            RoundOutcome(
                blocks=pipeline_blocks(allocation),
                micro_batches=allocation.micro_batches,
                survived=survived,
                success=costs.survival,
                server_blocks=allocation.server_blocks,
                server_mode=allocation.server_mode,
                staleness=version_gaps(allocation),
            )
        )
        backlog = update_backlog(state.backlog, costs.energy_ratio)
        self.last_round = RoundRecord(
            state=state,
            allocation=allocation,
            costs=costs,
            survived=survived,
            backlog=backlog,
            learning=self.learning,
            half_duplex=self.parameters.half_duplex,
        )
        following = replace(
            state,
            backlog=backlog,
            round_index=state.round_index + 1,
            loss=LOSS_SMOOTHING * state.loss + (1.0 - LOSS_SMOOTHING) * self.learning.loss,
        )
        self.state = self._with_channels(following, self._fading.advance())
        return self.last_round

    def _layout(self, rng: np.random.Generator) -> Layout:
        if self.scenario.cluster.layout == "fixed":
            return fixed_layout(self.scenario)
        return draw_layout(self.scenario, rng)

    def _set_layouts(self, state: SystemState, rows: Rows, layouts: Sequence[Layout]) -> None:
        costs = self.parameters.costs
        for row, layout in zip(rows, layouts, strict=True):
            state.cross_gain[row] = layout.cross_gain
            state.memory_bytes[row] = layout.memory_bytes
            state.present[row] = layout.present
            self._full_speed[row] = layout.max_clock_hz * layout.flops_per_cycle
            self._flops_per_cycle[row] = layout.flops_per_cycle
            self._capacitance[row] = layout.switched_capacitance
            self._active_power[row] = layout.active_power_w
        state.memory_cap[rows] = memory_cap_blocks(
            state.memory_bytes[rows],
            costs.batch_size,
            costs.block_state_bytes,
            costs.stored_activation_bytes,
        )

    def _set_mean_gains(
        self, rows: Rows, layouts: Sequence[Layout], rngs: Sequence[np.random.Generator]
    ) -> None:
        """Path loss and log-normal shadowing, drawn once per episode; a pair's is the same both ways."""
        radio, N = self.scenario.radio, self.scenario.clusters
        upper = np.triu_indices(self.scenario.max_devices + 1, 1)
        for row, layout, rng in zip(rows, layouts, rngs, strict=True):
            mean = self._mean_gain[row]
            mean[:N] = layout.d2e_path_gain
            mean[N:] = layout.d2d_path_gain[:, upper[0], upper[1]].ravel()
            shadow_db = rng.standard_normal(mean.shape)
            shadow_db[:N] *= radio.d2e_shadowing_db
            shadow_db[N:] *= radio.d2d_shadowing_db
            mean *= 10.0 ** (shadow_db / 10.0)

    def _set_channels(self, state: SystemState, rows: Rows, gains: FloatArray, factors: FloatArray) -> None:
        uplink, d2d = self._gains(self._mean_gain[rows] * gains)
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

    def _with_channels(self, state: SystemState, gains: FloatArray) -> SystemState:
        """The state of the next round; arrays that callers may still hold are left as they are."""
        uplink, d2d = self._gains(self._mean_gain * gains)
        if self._load.constant:
            return replace(state, uplink_gain=uplink, d2d_gain=d2d)
        speed = self._full_speed * self._load.advance()
        power = compute_power(
            speed, self._flops_per_cycle, self._capacitance, self._active_power, self._full_speed
        )
        return replace(state, uplink_gain=uplink, d2d_gain=d2d, speed=speed, compute_power=power)

    def _gains(self, gains: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split link gains (rows, links) into uplinks (rows, N) and matrices (rows, N, K+1, K+1)."""
        N, K = self.scenario.clusters, self.scenario.max_devices
        rows = gains.shape[0]
        pairs = np.zeros((rows, N, self._pairs + 1))  # the last column is the diagonal's zero
        pairs[..., :-1] = gains[:, N:].reshape(rows, N, self._pairs)
        matrices = np.take(pairs, self._pair_index, axis=-1)
        return gains[:, :N].copy(), matrices.reshape(rows, N, K + 1, K + 1)


def _pair_index(devices: int) -> npt.NDArray[np.intp]:
    """Position of each node pair in a row of pairs, flattened; the diagonal points past the last pair."""
    nodes = devices + 1
    index = np.full((nodes, nodes), nodes * devices // 2, dtype=np.intp)
    upper = np.triu_indices(nodes, 1)
    index[upper] = np.arange(len(upper[0]))
    index[upper[1], upper[0]] = np.arange(len(upper[0]))
    return index.ravel()
