"""The driver of a round on tensors; the physics are the functions that the NumPy simulator calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.queues import update_backlog
from collapipe_env.scenario import Scenario, fixed_layout
from collapipe_env.simulator.build import action_codec, energy_budgets, system_parameters
from collapipe_env.simulator.costs import RoundCosts, round_costs
from collapipe_env.simulator.feasibility import warn_if_infeasible
from collapipe_env.simulator.record import LOSS_SMOOTHING
from collapipe_env.simulator.state import SystemState
from collapipe_env.torch_backend.draws import Draws, EpisodeStart
from collapipe_env.torch_backend.fusing import fused
from collapipe_env.torch_backend.layout_tensors import LayoutTensors, pair_places
from collapipe_env.torch_backend.placement import Placement
from collapipe_env.torch_backend.rows import Rows
from collapipe_env.torch_backend.surrogate import TorchSurrogate


class TorchSimulator:
    """Layout, channels, loads, virtual queues and the surrogate of ``E`` environments on one device.

    A round runs in the order of :meth:`collapipe_env.simulator.simulator.Simulator.step`. Tensors that have
    been handed out are not written to again.

    Args:
        scenario: The scenario of all rows.
        num_envs: ``E`` >= 1.
        draws: Supplies the random numbers.
        placement: Device and type.
        compiled: Compile what a round computes.

    Warns:
        EnergyBudgetWarning: Once for each scenario whose energy budgets cannot be met.
    """

    def __init__(
        self, scenario: Scenario, num_envs: int, draws: Draws, placement: Placement, *, compiled: bool
    ) -> None:
        warn_if_infeasible(scenario)
        self.scenario = scenario
        self.parameters = system_parameters(scenario)
        self.num_envs = num_envs
        self._draws = draws
        self._place = placement
        self._learner = TorchSurrogate(scenario, placement)
        self.codec = action_codec(scenario)
        self._choices = torch.tensor(self.codec.micro_batch_choices, device=placement.device)
        self._cost = fused(self._costs, compiled)
        self._follow = fused(self._following, compiled)
        E, N, K = num_envs, scenario.clusters, scenario.max_devices
        layout = LayoutTensors.of([fixed_layout(scenario)], self.parameters.costs, placement)
        self._layout = layout.repeated(E)
        self._pair_places = pair_places(K, placement.device)
        links = layout.mean_gain.shape[-1]
        radio = scenario.radio
        deviation = [radio.d2e_shadowing_db] * N + [radio.d2d_shadowing_db] * (links - N)
        self._shadow_deviation = placement.reals(deviation)
        self._mean_gain = self._layout.mean_gain
        self.last_costs: RoundCosts | None = None
        self.progress, self.loss = placement.zeros(E), placement.zeros(E)
        uplink_gain, d2d_gain = self._gains(self._mean_gain)
        self.state = SystemState(
            uplink_gain=uplink_gain,
            d2d_gain=d2d_gain,
            cross_gain=self._layout.cross_gain,
            speed=self._layout.full_speed,
            compute_power=self._compute_power(self._layout.full_speed),
            memory_bytes=self._layout.memory_bytes,
            memory_cap=self._layout.memory_cap,
            present=self._layout.present,
            budget=placement.reals(energy_budgets(scenario)).expand(E, N, K + 1),
            backlog=placement.zeros(E, N, K + 1),
            round_index=torch.zeros(E, dtype=torch.int64, device=placement.device),
            loss=self.loss,
        )

    def reset(self, rows: Rows) -> SystemState:
        """Start new episodes in some rows; the others go on.

        Returns:
            The state that the scheduler sees (E, ...).
        """
        start = self._draws.start(rows)
        self._set_layouts(rows, start)
        uplink, d2d = self._gains(rows.of(self._mean_gain) * start.fading)
        layout, state = self._layout, self.state
        # Rows that go on keep their load: the factor is read off their speed.
        speed = rows.put(state.speed, rows.of(layout.full_speed) * start.load)
        self.progress = rows.fill(self.progress, 0.0)
        self.loss = self._learner.loss(self.progress)
        self.state = replace(
            state,
            uplink_gain=rows.put(state.uplink_gain, uplink),
            d2d_gain=rows.put(state.d2d_gain, d2d),
            cross_gain=layout.cross_gain,
            speed=speed,
            compute_power=self._compute_power(speed),
            memory_bytes=layout.memory_bytes,
            memory_cap=layout.memory_cap,
            present=layout.present,
            backlog=rows.fill(state.backlog, 0.0),
            round_index=rows.fill(state.round_index, 0),
            loss=rows.put(state.loss, rows.of(self.loss)),
        )
        return self.state

    def step(self, actions: Tensor) -> RoundCosts:
        """Play one round in every row and move the channels on.

        Args:
            actions: (E, N (2K + 3)), finite, of the real type.
        """
        costs = self._cost(actions, self.state)
        rounds = self.state.round_index
        arrived = self._draws.arrived(costs.survival, costs.allocation.micro_batches, rounds)
        fading, factors = self._draws.fading(rounds + 1), self._draws.load(rounds + 1)
        self.state, self.progress, self.loss = self._follow(
            self.state, self.progress, costs, arrived, fading * self._mean_gain, factors
        )
        self.last_costs = costs
        return costs

    def remember(self) -> Callable[[], None]:
        """Remember everything that a step changes; returns a function that puts it back.

        Only references are kept: a step replaces tensors and writes to none.
        """
        kept = self.state, self.progress, self.loss, self.last_costs
        put_back_draws = self._draws.remember()

        def put_back() -> None:
            self.state, self.progress, self.loss, self.last_costs = kept
            put_back_draws()

        return put_back

    def _costs(self, actions: Tensor, state: SystemState) -> RoundCosts:
        """What the actions cost in a state."""
        allocation = self.codec.decode_finite(actions, state.memory_cap, self._choices)
        return round_costs(self.parameters, state, allocation)

    def _following(
        self,
        state: SystemState,
        progress: Tensor,
        costs: RoundCosts,
        arrived: Tensor,
        gains: Tensor,
        factors: Tensor | None,
    ) -> tuple[SystemState, Tensor, Tensor]:
        """State, progress of learning and loss after a round.

        Args:
            state: The state before it.
            progress: Progress of learning before it (E,).
            costs: The round.
            arrived: Micro-batches whose gradients arrived (E, N, H).
            gains: Gains of all links in the next round (E, links).
            factors: Speed factors in the next round (E, N, K); ``None`` where they never change.
        """
        progress = progress + self._learner.made(
            arrived, costs.allocation.micro_batches, costs.survival, state.round_index
        )
        loss = self._learner.loss(progress)
        uplink, d2d = self._gains(gains)
        following = replace(
            state,
            uplink_gain=uplink,
            d2d_gain=d2d,
            backlog=update_backlog(state.backlog, costs.energy_ratio),
            round_index=state.round_index + 1,
            loss=LOSS_SMOOTHING * state.loss + (1.0 - LOSS_SMOOTHING) * loss,
        )
        if factors is not None:
            speed = self._layout.full_speed * factors
            following = replace(following, speed=speed, compute_power=self._compute_power(speed))
        return following, progress, loss

    def _set_layouts(self, rows: Rows, start: EpisodeStart) -> None:
        """Layouts, and path gains with log-normal shadowing, drawn once per episode."""
        if start.layouts is not None:
            fresh = LayoutTensors.of(start.layouts, self.parameters.costs, self._place)
            self._layout = self._layout.put(rows, fresh)
        shadow = 10.0 ** (start.shadowing * self._shadow_deviation / 10.0)
        self._mean_gain = rows.put(self._mean_gain, rows.of(self._layout.mean_gain) * shadow)

    def _compute_power(self, speed: Tensor) -> Tensor:
        a = self._layout
        power: Tensor = compute_power(
            speed, a.flops_per_cycle, a.switched_capacitance, a.active_power, a.full_speed
        )
        return power

    def _gains(self, gains: Tensor) -> tuple[Tensor, Tensor]:
        """Split link gains (rows, links) into uplinks (rows, N) and matrices (rows, N, K+1, K+1)."""
        N, nodes = self.scenario.clusters, self.scenario.max_devices + 1
        pairs = gains[:, N:].reshape(len(gains), N, -1)
        # One more, of zero, for the diagonals.
        padded = torch.nn.functional.pad(pairs, (0, 1))
        matrices = padded.index_select(-1, self._pair_places)
        return gains[:, :N].contiguous(), matrices.reshape(len(gains), N, nodes, nodes)
