"""Input of DSSRA's search: environments as arrays, with prices in place of backlogs and budgets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.arrays import Array, FloatArray, IntArray
from collapipe_env.compiled import compiled_inner
from collapipe_env.physics import radio
from collapipe_env.physics.delay import broadcast_time, stage_time
from collapipe_env.physics.energy import compute_time
from collapipe_env.physics.overheads import NO_OVERHEADS, launch_time, update_time
from collapipe_env.physics.parameters import SystemParameters
from collapipe_env.simulator.state import SystemState, other_memory_caps


class RoundInput(NamedTuple):
    """One environment before a round, with prices in place of backlogs and budgets.

    Attributes:
        speed: ``v`` (N, K) [FLOP/s].
        clock: ``f`` (N, K) [Hz].
        block_energy: Energy of one block in the round, without launches (N, K) [J].
        launch_energy: Energy of launching one block for one micro-batch of each local step (N, K) [J].
        price: Price of each node's energy (N, K+1) [1/J]: ``z / Ebar``, the queue before the round. Under the
            exact drift the search moves it towards the queue after the round.
        backlog: ``z`` (N, K+1).
        budget: ``Ebar`` (N, K+1) [J].
        exact: 1 where the drift is exact, 0 where it is the bound's ``sum z e`` (1,).
        gain: Gains between nodes (N, K+1, K+1).
        uplink_gain: ``h`` (N,).
        downlink_rate: Downlink rate with the whole band (N,) [bit/s].
        cross_gain: ``X`` (N, N).
        cap: Blocks that each device can hold (N, K), 0 for absent ones.
        micro_batches: Options to begin with (N,): ``M``, or ``-M`` (see :mod:`.options`).
        choices: Options to choose from, ascending (C,): one where ``M`` is given, or where the largest is the
            best of all; those below 0 are of the other setting of recomputation.
        loss_price: Price of a unit of a cluster's failure exponent (N,), 0 unless ``drop``.
        held: 1 where a device that is there held a block in the round before (N, L, K); no blocks (N, 0, K)
            where a change of plan costs nothing.
        lead: Device that sends a block's moments (N, L), the first of those that held it; -1 for none.
        moving_noise: Noise plus interference of device-to-device links while moments move (N,) [W]; that of
            the plan evaluated last.
        ratio: ``rho``, cost of a device's backward pass over that of its forward pass, under the workload's
            setting of recomputation and under the other one (2,).
        other_cap: ``cap`` under the other setting (N, K); the same where that is closed, as are the energies.
        other_block_energy: ``block_energy`` under the other setting (N, K) [J].
        other_launch_energy: ``launch_energy`` under the other setting (N, K) [J].
        allowance: Budgets that the round grants every node, ``a`` (1,): 1, or with budgets per second those
            of the plan that was priced last.
        relief: Fall of the drift by a second that the round lasts longer (1,) [1/s], ``sum z / T_ref``: 0
            unless budgets are per second. Under the exact drift the search moves it as it does prices.
        broadcast_s: ``T_bc`` (1,) [s], which no plan changes; 0 unless budgets are per second.
        server_share: Share of the server that tenants who come and go leave (1,), 1 without any.
    """

    speed: FloatArray
    clock: FloatArray
    block_energy: FloatArray
    launch_energy: FloatArray
    price: FloatArray
    backlog: FloatArray
    budget: FloatArray
    exact: FloatArray
    gain: FloatArray
    uplink_gain: FloatArray
    downlink_rate: FloatArray
    cross_gain: FloatArray
    cap: IntArray
    micro_batches: FloatArray
    choices: FloatArray
    loss_price: FloatArray
    held: npt.NDArray[np.int8]
    lead: IntArray
    moving_noise: FloatArray
    ratio: FloatArray
    other_cap: IntArray
    other_block_energy: FloatArray
    other_launch_energy: FloatArray
    allowance: FloatArray
    relief: FloatArray
    broadcast_s: FloatArray
    server_share: FloatArray


class ClusterTerms(NamedTuple):
    """Terms on which a cluster plans alone: what the rest of the plan leaves it, and prices.

    Attributes:
        micro_batches: Its option, ``M_n`` or ``-M_n`` (see :mod:`.options`).
        noise_w: Noise plus interference of its device-to-device links [W].
        share: ``beta_n``.
        delay_weight: ``w_n``, worth of a second of its delay [1/s].
        interference_price: What a watt of its mean power costs the other clusters [1/W].
    """

    micro_batches: float
    noise_w: float
    share: float
    delay_weight: float
    interference_price: float


def round_input(
    parameters: SystemParameters,
    state: SystemState,
    micro_batches: npt.ArrayLike | None = None,
    convergence_weight: float = 0.0,
    *,
    exact_drift: bool = False,
    choose_recompute: bool = False,
) -> RoundInput:
    """Arrays of the search from a state with any leading axes.

    Without overheads more micro-batches never hurt under GPipe: a local step lasts ``max + (sum - max) / M``
    of the mini-batch's element times in each direction, while energy, memory (all activations are kept until
    the flush) and losses do not depend on ``M``. Then the largest number is the only choice.

    Args:
        parameters: Scalars of the scenario.
        state: The system (..., ).
        micro_batches: Options, broadcastable to (..., N): ``M``, or ``-M`` for the other setting of
            recomputation; by default the search chooses.
        convergence_weight: Price of a unit of failure exponent; only lossy links have any.
        exact_drift: Whether the drift is ``L(t+1) - L(t)`` rather than its bound.
        choose_recompute: Whether the search also chooses recomputation, where the scenario opens that.
    """
    costs = parameters.costs
    clusters = state.uplink_gain.shape
    choices = np.asarray(parameters.micro_batch_choices, dtype=np.float64)
    if micro_batches is not None or parameters.overheads == NO_OVERHEADS:
        choices = choices[-1:]
    M = choices[-1] if micro_batches is None else micro_batches
    if choose_recompute and parameters.other_costs is not None and micro_batches is None:
        choices = np.concatenate((-choices[::-1], choices))
    loss_price = convergence_weight if parameters.link_errors == "drop" else 0.0
    price = state.backlog / state.budget
    held = _held(parameters, state)
    relief, broadcast_s = _seconds(parameters, state)
    block_energy, launch_energy = _energies(parameters, state, costs.backward_over_forward)
    cap = _caps(state, state.memory_cap)
    ratio = np.full((*clusters[:-1], 2), costs.backward_over_forward)
    other_energies, other_cap = (block_energy, launch_energy), cap
    if parameters.other_costs is not None:
        ratio[..., 1] = parameters.other_costs.backward_over_forward
        other_energies = _energies(parameters, state, parameters.other_costs.backward_over_forward)
        other_cap = _caps(state, other_memory_caps(parameters, state))
    return RoundInput(
        speed=np.ascontiguousarray(state.speed, dtype=np.float64),
        clock=np.ascontiguousarray(state.clock, dtype=np.float64),
        block_energy=block_energy,
        launch_energy=launch_energy,
        price=np.array(price, dtype=np.float64),
        backlog=np.ascontiguousarray(state.backlog, dtype=np.float64),
        budget=np.ascontiguousarray(state.budget, dtype=np.float64),
        exact=np.full((*clusters[:-1], 1), float(exact_drift)),
        gain=np.ascontiguousarray(state.d2d_gain, dtype=np.float64),
        uplink_gain=np.ascontiguousarray(state.uplink_gain, dtype=np.float64),
        downlink_rate=np.ascontiguousarray(
            radio.full_band_rate(
                parameters.bs_power_w,
                state.uplink_gain,
                parameters.downlink_noise_w,
                parameters.downlink_bandwidth_hz,
            )
        ),
        cross_gain=np.ascontiguousarray(state.cross_gain, dtype=np.float64),
        cap=cap,
        micro_batches=np.broadcast_to(np.asarray(M, dtype=np.float64), clusters).copy(),
        choices=np.broadcast_to(choices, (*clusters[:-1], len(choices))).copy(),
        loss_price=np.full(clusters, loss_price, dtype=np.float64),
        held=held,
        lead=np.where(held.any(axis=-1), held.argmax(axis=-1), -1),
        moving_noise=np.full(clusters, parameters.noise_density * parameters.d2d_bandwidth_hz),
        ratio=ratio,
        other_cap=other_cap,
        other_block_energy=other_energies[0],
        other_launch_energy=other_energies[1],
        allowance=np.ones((*clusters[:-1], 1)),
        relief=relief,
        broadcast_s=broadcast_s,
        server_share=_server_share(state),
    )


def _server_share(state: SystemState) -> FloatArray:
    """Share of the server that other tenants leave (..., 1)."""
    if state.server_share is None:
        return np.ones((*state.uplink_gain.shape[:-1], 1))
    return np.array(state.server_share, dtype=np.float64)[..., None]


def _seconds(parameters: SystemParameters, state: SystemState) -> tuple[FloatArray, FloatArray]:
    """Relief of a longer round at the queues before it [1/s], and ``T_bc`` [s], both (..., 1)."""
    lead = state.uplink_gain.shape[:-1]
    if parameters.budget_period_s is None:
        return np.zeros((*lead, 1)), np.zeros((*lead, 1))
    listeners = radio.weakest_listener(state.uplink_gain, state.device_edge_ratio, state.present)
    rate = radio.broadcast_rate(
        parameters.bs_power_w, listeners, parameters.downlink_noise_w, parameters.downlink_bandwidth_hz
    )
    broadcast_s = broadcast_time(parameters.numbers.broadcast_bits, rate)
    relief = state.backlog.sum(axis=(-2, -1)) / parameters.budget_period_s
    return np.array(relief, dtype=np.float64)[..., None], np.array(broadcast_s, dtype=np.float64)[..., None]


def _energies(
    parameters: SystemParameters, state: SystemState, ratio: float
) -> tuple[FloatArray, FloatArray]:
    """Energies of one block in the round and of its launches (..., N, K) [J], for a ratio ``rho``."""
    costs, extra = parameters.costs, parameters.overheads
    block_s = stage_time(costs.batch_size, 1.0, costs.block_forward_flops, state.speed)
    seconds = compute_time(costs.local_steps, block_s, ratio)
    seconds = seconds + costs.local_steps * update_time(1.0, extra.update_cycles, state.clock)
    launch_s = compute_time(costs.local_steps, launch_time(1.0, extra.block_cycles, state.clock), ratio)
    return (
        np.ascontiguousarray(state.compute_power * seconds, dtype=np.float64),
        np.ascontiguousarray(state.compute_power * launch_s, dtype=np.float64),
    )


def _caps(state: SystemState, memory_cap: Array | None) -> IntArray:
    """Blocks that each device can hold (..., N, K), 0 for absent ones."""
    return np.ascontiguousarray(np.where(state.present, np.asarray(memory_cap), 0), dtype=np.int64)


def _held(parameters: SystemParameters, state: SystemState) -> npt.NDArray[np.int8]:
    """Holders of every block in the round before (..., N, L, K), without blocks where they do not matter."""
    previous, rules = state.processes.get("migration"), parameters.migration
    if previous is None or rules is None or not rules.moves:
        *lead, devices = state.present.shape
        return np.zeros((*lead, 0, devices), dtype=np.int8)
    held = previous["holders"][..., 1:] & state.present[..., None, :]
    return np.ascontiguousarray(held, dtype=np.int8)


@compiled_inner
def environment_row(inputs: RoundInput, e: int) -> RoundInput:
    """One environment of a batch.

    Args:
        inputs: All environments, with a leading axis E.
        e: Which one.
    """
    return RoundInput(
        inputs.speed[e],
        inputs.clock[e],
        inputs.block_energy[e],
        inputs.launch_energy[e],
        inputs.price[e],
        inputs.backlog[e],
        inputs.budget[e],
        inputs.exact[e],
        inputs.gain[e],
        inputs.uplink_gain[e],
        inputs.downlink_rate[e],
        inputs.cross_gain[e],
        inputs.cap[e],
        inputs.micro_batches[e],
        inputs.choices[e],
        inputs.loss_price[e],
        inputs.held[e],
        inputs.lead[e],
        inputs.moving_noise[e],
        inputs.ratio[e],
        inputs.other_cap[e],
        inputs.other_block_energy[e],
        inputs.other_launch_energy[e],
        inputs.allowance[e],
        inputs.relief[e],
        inputs.broadcast_s[e],
        inputs.server_share[e],
    )
