"""DSSRA, the Lyapunov reference scheduler: segments, micro-batches, bandwidth and powers of every round.

Reconstruction of CollaPipe's "Dynamic Segment Scheduling and Resource Allocation" ([S]: the problem, its
Lyapunov form and what is decided; [R]: every formula and the solver, see ``algorithms.md`` 1.5). Each round
minimises ``V max_n T_n + sum_k z_k e_k`` from the current channels, speeds and backlogs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.errors import AllocationError
from collapipe_env.physics import radio
from collapipe_env.physics.queues import drift_plus_penalty
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.refusal import require_room
from collapipe_env.simulator.state import SystemParameters, SystemState

from .cluster_costs import RoundConstants, RoundInput
from .parallel_rounds import default_threads, solve_batch
from .round_solver import SearchBudget

FloatArray = npt.NDArray[np.float64]


def round_constants(parameters: SystemParameters, tradeoff_v: float) -> RoundConstants:
    """Scalars of the search.

    Args:
        parameters: Scalars of the scenario.
        tradeoff_v: ``V`` [1/s].
    """
    costs = parameters.costs
    batch = costs.batch_size
    return RoundConstants(
        blocks=costs.blocks,
        steps=float(costs.local_steps),
        activation_bits=float(batch * costs.activation_bits),
        gradient_bits=float(batch * costs.gradient_bits),
        collect_bits=float(costs.block_payload_bits),
        update_bits=float(costs.update_payload_bits),
        server_s=float(batch * costs.decoder_forward_flops / (parameters.server_flops / parameters.clusters)),
        backward_over_forward=float(BACKWARD_OVER_FORWARD),
        d2d_noise_w=float(parameters.noise_density * parameters.d2d_bandwidth_hz),
        d2d_hz=float(parameters.d2d_bandwidth_hz),
        uplink_noise_w=float(parameters.uplink_noise_w),
        uplink_hz=float(parameters.uplink_bandwidth_hz),
        waterfall=float(parameters.waterfall_threshold),
        retransmit=parameters.link_errors == "arq",
        power_min_w=float(parameters.power_min_w),
        power_max_w=float(parameters.power_max_w),
        share_floor=float(parameters.bandwidth_floor),
        tradeoff_v=float(tradeoff_v),
    )


def round_input(
    parameters: SystemParameters,
    state: SystemState,
    micro_batches: npt.ArrayLike | None = None,
    convergence_weight: float = 0.0,
) -> RoundInput:
    """Arrays of the search from a state with any leading axes.

    Under GPipe more micro-batches never hurt this system: a local step lasts
    ``max + (sum - max) / M`` of the mini-batch's element times in each direction, while energy, memory
    (all activations are kept until the flush) and losses do not depend on ``M``. Enumerating the choices
    with that as a bound leaves the largest, which is the default.

    Args:
        parameters: Scalars of the scenario.
        state: The system (..., ).
        micro_batches: ``M``, broadcastable to (..., N); by default the largest allowed number.
        convergence_weight: Price of a unit of failure exponent; only lossy links have any.
    """
    costs = parameters.costs
    clusters = state.uplink_gain.shape
    M = parameters.micro_batch_choices[-1] if micro_batches is None else micro_batches
    loss_price = convergence_weight if parameters.link_errors == "drop" else 0.0
    block_s = costs.batch_size * costs.block_forward_flops / state.speed
    price = state.backlog / state.budget
    seconds = (1.0 + BACKWARD_OVER_FORWARD) * costs.local_steps * block_s
    return RoundInput(
        block_s=np.ascontiguousarray(block_s, dtype=np.float64),
        block_price=np.ascontiguousarray(price[..., 1:] * state.compute_power * seconds, dtype=np.float64),
        price=np.ascontiguousarray(price, dtype=np.float64),
        gain=np.ascontiguousarray(state.d2d_gain, dtype=np.float64),
        uplink_gain=np.ascontiguousarray(state.uplink_gain, dtype=np.float64),
        downlink_rate=np.ascontiguousarray(
            radio.downlink_rate(
                np.ones_like(state.uplink_gain),
                parameters.bs_power_w,
                state.uplink_gain,
                parameters.downlink_noise_w,
                parameters.downlink_bandwidth_hz,
            )
        ),
        cross_gain=np.ascontiguousarray(state.cross_gain, dtype=np.float64),
        cap=np.ascontiguousarray(np.where(state.present, state.memory_cap, 0), dtype=np.int64),
        micro_batches=np.broadcast_to(np.asarray(M, dtype=np.float64), clusters).copy(),
        loss_price=np.full(clusters, loss_price, dtype=np.float64),
    )


class DSSRA(StateScheduler):
    """Drift-plus-penalty scheduler; deterministic, and the same for a row in any batch.

    Args:
        scenario: The scenario to schedule.
        tradeoff_v: Lyapunov ``V`` [1/s], > 0; the scenario's by default.
        sweeps: Most refining block-coordinate sweeps in each turn of the search, >= 1.
        exploring_sweeps: Most exploring sweeps in each turn, >= 0.
        turns: Most turns of exploring and refining per decision, >= 1.
        tolerance: Relative improvement of the objective below which a turn is the last one.
        convergence_weight: Weight ``c >= 0`` of an additional term ``c sum_n -ln(survival_n)`` that steers
            away from lossy links: the part of the convergence bound that the decisions change, to first
            order (``eps`` of ``system_model.md`` section 8 is ``1 - survival``). The default of 0 leaves
            it out. No effect unless ``link_errors`` is ``drop``.
        threads: Most threads that share a batch, >= 1; they change the time, never the decisions. By
            default as many as there are processors, one in worker processes (``parallel_rounds``).

    Raises:
        AllocationError: An argument is out of its range.
    """

    name = "DSSRA"

    def __init__(
        self,
        scenario: Scenario,
        *,
        tradeoff_v: float | None = None,
        sweeps: int = 8,
        exploring_sweeps: int = 8,
        turns: int = 4,
        tolerance: float = 1e-3,
        convergence_weight: float = 0.0,
        threads: int | None = None,
    ) -> None:
        super().__init__(scenario)
        self.tradeoff_v = self.parameters.tradeoff_v if tradeoff_v is None else float(tradeoff_v)
        self.budget = SearchBudget(turns, exploring_sweeps, sweeps, tolerance)
        self.convergence_weight = convergence_weight
        self.threads = default_threads() if threads is None else threads
        for value, valid, fault in (
            (exploring_sweeps, exploring_sweeps >= 0, "exploring_sweeps: expected at least 0"),
            (self.tradeoff_v, 0.0 < self.tradeoff_v < np.inf, "tradeoff_v: expected a finite number above 0"),
            (turns, turns >= 1, "turns: expected at least 1"),
            (self.threads, self.threads >= 1, "threads: expected at least 1"),
            (sweeps, sweeps >= 1, "sweeps: expected at least 1"),
            (tolerance, 0.0 <= tolerance < 1.0, "tolerance: expected a number in [0, 1)"),
            (
                convergence_weight,
                0.0 <= convergence_weight < np.inf,
                "convergence_weight: expected at least 0",
            ),
        ):
            if not valid:
                raise AllocationError(f"DSSRA({fault}, got {value!r})")
        self._constants = round_constants(self.parameters, self.tradeoff_v)

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round.

        Args:
            state: The system before the round (E, ...).

        Returns:
            The allocation (E, ...); its objective is at most the even split's.

        Raises:
            AllocationError: The devices present in some cluster cannot hold the encoder.
        """
        inputs = round_input(self.parameters, state, convergence_weight=self.convergence_weight)
        environments, N = state.present.shape[:2]
        require_room(inputs.cap, self.parameters.costs.blocks)
        blocks, power, bandwidth = solve_batch(inputs, self._constants, self.budget, self.threads)
        used = np.concatenate((np.ones((environments, N, 1), dtype=np.bool_), blocks > 0), axis=-1)
        power = np.where(used, power, self.parameters.power_min_w)
        found = Allocation(
            blocks=blocks,
            micro_batches=np.full((environments, N), self.parameters.micro_batch_choices[-1]),
            bandwidth=bandwidth,
            device_power=power[..., 1:],
            cu_power=power[..., 0],
        )
        return self._better(state, found, even_split(self.parameters, state))

    def objective(self, state: SystemState, allocation: Allocation) -> FloatArray:
        """``V T + sum z e`` (and the convergence term) through the simulator's physics.

        Args:
            state: The system (..., ).
            allocation: The decisions to price (...).

        Returns:
            The objective (...).
        """
        costs = round_costs(self.parameters, state, allocation)
        value: FloatArray = drift_plus_penalty(
            costs.delay, state.backlog, costs.energy_ratio, self.tradeoff_v
        )
        if self.convergence_weight > 0.0:
            value = value - self.convergence_weight * np.log(np.maximum(costs.survival, 1e-300)).sum(axis=-1)
        return value

    def _better(self, state: SystemState, first: Allocation, second: Allocation) -> Allocation:
        """Row by row the allocation with the smaller objective."""
        keep = self.objective(state, first) <= self.objective(state, second)
        if keep.all():
            return first

        def pick(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            return np.where(keep.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

        return Allocation(
            blocks=pick(first.blocks, second.blocks),
            micro_batches=pick(first.micro_batches, second.micro_batches),
            bandwidth=pick(first.bandwidth, second.bandwidth),
            device_power=pick(first.device_power, second.device_power),
            cu_power=pick(first.cu_power, second.cu_power),
        )
