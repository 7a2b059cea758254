"""Input of DSSRA's search: environments as arrays, with prices in place of backlogs and budgets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, FloatArray, IntArray, loop_array
from collapipe_env.ground.compiled import compiled_inner
from collapipe_env.physics import radio
from collapipe_env.physics.delay import message_time, stage_time
from collapipe_env.physics.energy import compute_time
from collapipe_env.physics.overheads import NO_OVERHEADS, cycles_time
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.server import passes_flops
from collapipe_env.simulator.state import SystemState, other_memory_caps

from .option_table import option_table, options_with


class RoundInput(NamedTuple):
    """One environment before a round, with prices in place of backlogs and budgets.

    Attributes:
        speed: ``v`` (N, K) [FLOP/s].
        clock: ``f`` (N, K) [Hz].
        block_energy: Energy of one block in the round, without launches, under each setting of recomputation
            (S, N, K) [J]: the workload's own and, where it is open, the other one.
        launch_energy: Energy of launching one block for one micro-batch of each local step (S, N, K) [J].
        price: Price of each node's energy (N, K+1) [1/J]: ``z / Ebar``, the queue before the round. Under the
            exact drift the search moves it towards the queue after the round. ``extra_price`` comes on top.
        extra_price: Part of the price that does not come from the queue (N, K+1) [1/J]; it does not change.
        use_price: Price of giving a device any blocks at all (N, K).
        backlog: ``z`` (N, K+1).
        budget: ``Ebar`` (N, K+1) [J].
        exact: 1 where the drift is exact, 0 where it is the bound's ``sum z e`` (1,).
        gain: Gains between nodes (N, K+1, K+1).
        uplink_gain: ``h`` (N,).
        downlink_rate: Downlink rate with the whole band (N,) [bit/s].
        cross_gain: ``X`` (N, N).
        cap: Blocks that each device can hold (S, N, K), 0 for absent ones.
        options: All options of a cluster (O, 3) (see :mod:`.option_table`).
        option: Options to begin with (N,).
        choices: Options to choose from (C,), without blocks on the server; only one where options are given
            or the largest ``M`` is always best. Those with the other setting of recomputation come first.
        loss_price: Price of a unit of a cluster's loss exponent (N,), 0 if links do not fail.
        held: 1 where a present device held a block in the previous round (N, L, K); no blocks (N, 0, K) where
            a change of plan costs nothing.
        lead: Device that sends a block's moments (N, L), the first of those that held it; -1 for none.
        moving_noise: Noise plus interference of device-to-device links while moments move (N,) [W], under the
            plan evaluated last.
        ratio: ``rho``, cost of a device's backward pass over that of its forward pass (S,).
        allowance: Budgets that the round grants every node, ``a`` (1,): 1, or with budgets per second the
            number for the plan priced last.
        relief: Fall of the drift for each second that the round lasts longer (1,) [1/s], ``sum z / T_ref``; 0
            unless budgets are per second. Under the exact drift the search moves it like the prices.
        broadcast_s: ``T_bc`` (1,) [s] of plans that leave no block to the server; 0 unless budgets are per
            second or the server may run blocks.
        most_server: Most blocks that a cluster may leave to the server (1,), 0 where that is closed.
        block_broadcast_s: Broadcast time of a block that all clusters train, and of one that the server
            trains for some of them (2,) [s]; 0 where that is closed.
        server_queue: Price of an encoder block on the server, the queue ``z_BS`` and a block's energy over
            the server's budget (3,); zeros without a budget. The price moves like those of the nodes.
        server_share: Share of the server that other tenants leave (1,); 1 without tenants.
    """

    speed: FloatArray
    clock: FloatArray
    block_energy: FloatArray
    launch_energy: FloatArray
    price: FloatArray
    extra_price: FloatArray
    use_price: FloatArray
    backlog: FloatArray
    budget: FloatArray
    exact: FloatArray
    gain: FloatArray
    uplink_gain: FloatArray
    downlink_rate: FloatArray
    cross_gain: FloatArray
    cap: IntArray
    options: IntArray
    option: IntArray
    choices: IntArray
    loss_price: FloatArray
    held: npt.NDArray[np.int8]
    lead: IntArray
    moving_noise: FloatArray
    ratio: FloatArray
    allowance: FloatArray
    relief: FloatArray
    broadcast_s: FloatArray
    most_server: IntArray
    block_broadcast_s: FloatArray
    server_queue: FloatArray
    server_share: FloatArray


class ClusterTerms(NamedTuple):
    """Terms on which a cluster plans on its own: what the rest of the plan leaves it, and prices.

    Attributes:
        option: Its option (see :mod:`.option_table`).
        noise_w: Noise plus interference of its device-to-device links [W].
        share: ``beta_n``.
        delay_weight: ``w_n``, worth of a second of its delay [1/s].
        interference_price: What a watt of its mean power costs the other clusters [1/W].
    """

    option: int
    noise_w: float
    share: float
    delay_weight: float
    interference_price: float


def round_input(
    parameters: Parameters,
    state: SystemState,
    option: IntArray | None = None,
    convergence_weight: float = 0.0,
    *,
    exact_drift: bool = False,
    choose_recompute: bool = False,
    most_server: int = 0,
    extra_price: FloatArray | None = None,
    use_price: FloatArray | None = None,
) -> RoundInput:
    """Build the arrays of the search from a state with any leading axes.

    Without overheads, more micro-batches never hurt under GPipe: a local step lasts ``max + (sum - max) / M``
    of the mini-batch's element times in each direction, while energy, memory (all activations are kept until
    the flush) and losses do not depend on ``M``. Then the largest number is the only choice.

    Args:
        state: The system (..., ).
        option: Options of the clusters, broadcastable to (..., N); by default the search chooses.
        convergence_weight: Price of a unit of loss exponent; no effect if links do not fail.
        exact_drift: Whether the drift is ``L(t+1) - L(t)`` rather than its bound.
        choose_recompute: Whether the search also chooses recomputation, where the scenario leaves it open.
        most_server: Most blocks that the search may leave to the server in each cluster.
        extra_price: Price of each node's energy on top of its queue's (..., N, K+1) [1/J]; 0 by default.
        use_price: Price of giving a device any blocks at all (..., N, K); 0 by default.
    """
    clusters = state.uplink_gain.shape
    settings = [parameters.costs]
    caps = [_caps(state, state.memory_cap)]
    if parameters.other_costs is not None:
        settings.append(parameters.other_costs)
        caps.append(_caps(state, other_memory_caps(parameters, state)))
    options, sizes = option_table(parameters, most_server), np.asarray(parameters.micro_batch_choices)
    if option is not None or parameters.overheads == NO_OVERHEADS:
        sizes = sizes[-1:]
    choices = options_with(options, sizes)
    if choose_recompute and len(settings) > 1 and option is None:
        choices = np.concatenate((options_with(options, sizes[::-1], 1), choices))
    begin = choices[-1] if option is None else option
    loss_price = convergence_weight if parameters.lossy else 0.0
    backlog = np.ascontiguousarray(state.live_backlog, dtype=np.float64)
    price = np.array(backlog / state.budget, dtype=np.float64)
    extra = np.zeros_like(price) if extra_price is None else np.ascontiguousarray(extra_price)
    held = _held(parameters, state)
    relief, broadcast_s, block_broadcast_s = _seconds(parameters, state, most_server)
    ratio = np.array([costs.backward_over_forward for costs in settings])
    block_energy, launch_energy = zip(*(_energies(parameters, state, rho) for rho in ratio), strict=True)
    found = RoundInput(
        speed=np.ascontiguousarray(state.speed, dtype=np.float64),
        clock=np.ascontiguousarray(state.clock, dtype=np.float64),
        block_energy=np.stack(block_energy, axis=-3),
        launch_energy=np.stack(launch_energy, axis=-3),
        price=price + extra,
        extra_price=extra,
        use_price=np.zeros_like(price[..., 1:]) if use_price is None else np.ascontiguousarray(use_price),
        backlog=backlog,
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
        cap=np.stack(caps, axis=-3),
        options=np.broadcast_to(options, (*clusters[:-1], *options.shape)),
        option=np.broadcast_to(begin, clusters),
        choices=np.broadcast_to(choices, (*clusters[:-1], len(choices))),
        loss_price=np.full(clusters, loss_price, dtype=np.float64),
        held=held,
        lead=np.where(held.any(axis=-1), held.argmax(axis=-1), -1),
        moving_noise=np.full(clusters, parameters.noise_density * parameters.d2d_bandwidth_hz),
        ratio=np.broadcast_to(ratio, (*clusters[:-1], len(ratio))),
        allowance=np.ones((*clusters[:-1], 1)),
        relief=relief,
        broadcast_s=broadcast_s,
        most_server=np.full((*clusters[:-1], 1), most_server, dtype=np.int64),
        block_broadcast_s=block_broadcast_s,
        server_queue=_server_queue(parameters, state),
        server_share=np.array(state.server_share, dtype=np.float64)[..., None],
    )
    # States may hold read-only arrays, and other libraries' arrays may be in single precision.
    kinds = (np.float64 if a.dtype.kind == "f" else a.dtype for a in found)
    return RoundInput(*(loop_array(a, kind) for a, kind in zip(found, kinds, strict=True)))


def _server_queue(parameters: Parameters, state: SystemState) -> FloatArray:
    """Price of a block on the server at the present queue, the queue and the block's ratio (..., 3)."""
    found = np.zeros((*state.uplink_gain.shape[:-1], 3))
    costs, terms = parameters.costs, parameters.server
    if state.server_backlog is not None:
        joules = terms.pue * terms.joules_per_flop * passes_flops(costs, costs.block_forward_flops)
        found[..., 1], found[..., 2] = state.server_backlog, joules / terms.budget_j
        found[..., 0] = found[..., 1] * found[..., 2]
    return found


def _seconds(
    parameters: Parameters, state: SystemState, most_server: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Relief of a longer round (..., 1) [1/s], ``T_bc`` (..., 1) and broadcast of blocks (..., 2) [s].

    The relief uses the queues before the round.
    """
    lead, period = state.uplink_gain.shape[:-1], parameters.budget_period_s
    relief, broadcast_s, of_blocks = np.zeros((*lead, 1)), np.zeros((*lead, 1)), np.zeros((*lead, 2))
    if period is not None:
        queues = state.live_backlog.sum(axis=(-2, -1))
        if state.server_backlog is not None:
            queues = queues + state.server_backlog
        relief[..., 0] = queues / period
    if period is not None or most_server > 0:
        rate = radio.full_band_rate(
            parameters.bs_power_w,
            state.uplink_gain.min(axis=-1),
            parameters.downlink_noise_w,
            parameters.downlink_bandwidth_hz,
        )
        broadcast_s[..., 0] = message_time(parameters.numbers.broadcast_bits, rate)
        if most_server > 0:
            costs = parameters.costs
            of_blocks[..., 0] = message_time(costs.block_broadcast_bits(parameters.clusters), rate)
            of_blocks[..., 1] = message_time(costs.block_broadcast_bits(0), rate)
    return relief, broadcast_s, of_blocks


def _energies(parameters: Parameters, state: SystemState, ratio: float) -> tuple[FloatArray, FloatArray]:
    """Energies of one block in the round and of its launches (..., N, K) [J], for a ratio ``rho``."""
    costs, extra = parameters.costs, parameters.overheads
    block_s = stage_time(costs.batch_size, 1.0, costs.block_forward_flops, state.speed)
    seconds = compute_time(costs.local_steps, block_s, ratio)
    seconds = seconds + costs.local_steps * cycles_time(1.0, extra.update_cycles, state.clock)
    launch_s = compute_time(costs.local_steps, cycles_time(1.0, extra.block_cycles, state.clock), ratio)
    return (
        np.ascontiguousarray(state.compute_power * seconds, dtype=np.float64),
        np.ascontiguousarray(state.compute_power * launch_s, dtype=np.float64),
    )


def _caps(state: SystemState, memory_cap: Array | None) -> IntArray:
    """Blocks that each device can hold (..., N, K), 0 for absent ones."""
    return np.ascontiguousarray(np.where(state.present, np.asarray(memory_cap), 0), dtype=np.int64)


def _held(parameters: Parameters, state: SystemState) -> npt.NDArray[np.int8]:
    """Holders of every block in the previous round (..., N, L, K); no blocks where they do not matter."""
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
        e: Index of the environment.
    """
    return RoundInput(
        inputs.speed[e],
        inputs.clock[e],
        inputs.block_energy[e],
        inputs.launch_energy[e],
        inputs.price[e],
        inputs.extra_price[e],
        inputs.use_price[e],
        inputs.backlog[e],
        inputs.budget[e],
        inputs.exact[e],
        inputs.gain[e],
        inputs.uplink_gain[e],
        inputs.downlink_rate[e],
        inputs.cross_gain[e],
        inputs.cap[e],
        inputs.options[e],
        inputs.option[e],
        inputs.choices[e],
        inputs.loss_price[e],
        inputs.held[e],
        inputs.lead[e],
        inputs.moving_noise[e],
        inputs.ratio[e],
        inputs.allowance[e],
        inputs.relief[e],
        inputs.broadcast_s[e],
        inputs.most_server[e],
        inputs.block_broadcast_s[e],
        inputs.server_queue[e],
        inputs.server_share[e],
    )
