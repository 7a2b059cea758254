"""Input of DSSRA's search: environments as arrays, with prices in place of backlogs and budgets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, FloatArray, IntArray, loop_array, loop_record
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf, inlined
from collapipe_env.kernels.cluster_chain import System, row_of_system, system_of
from collapipe_env.physics.delay import message_time
from collapipe_env.physics.energy import idle_power
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.parameters import Numbers, Parameters
from collapipe_env.physics.rates import full_band_rate
from collapipe_env.physics.server import passes_flops
from collapipe_env.simulator.state import SystemState, other_memory_caps

from .option_table import MICRO_BATCHES, SERVER_BLOCKS, SETTING, option_table, options_with


class CommonTerms(NamedTuple):
    """Numbers of a round that all clusters share; a search changes some of them.

    Attributes:
        exact: 1 where the drift is exact, 0 where it is the bound's ``sum z e``.
        loss_price: Price of a unit of a cluster's loss exponent, 0 if links do not fail.
        round_s: ``T`` of the plan priced last [s], on which allowances depend
            (:func:`~.cluster_costs.allowance_of`); 0 where none does, at first the period of a budget.
        relief: Fall of the drift for each second that the round lasts longer [1/s]: ``sum z / T_ref`` with
            budgets per second, less the priced power of idle radios. Under the exact drift the search moves
            it like the prices.
        broadcast_s: ``T_bc`` [s] of plans that leave no block to the server; 0 where nothing depends on it.
        heard_s: ``T_bc`` of the plan evaluated last, for which CUs' receivers are on [s].
        most_server: Most blocks that a cluster may leave to the server, 0 where that is closed.
        block_broadcast_s: Broadcast time of a block that all clusters train [s]; 0 where that is closed.
        server_block_broadcast_s: Broadcast time of a block that the server trains for some of them [s].
        server_price: Price of an encoder block on the server, 0 without a budget. It moves like those of the
            nodes.
        server_backlog: The queue ``z_BS``.
        server_ratio: Energy of a block over the server's budget.
    """

    exact: float
    loss_price: float
    round_s: float
    relief: float
    broadcast_s: float
    heard_s: float
    most_server: int
    block_broadcast_s: float
    server_block_broadcast_s: float
    server_price: float
    server_backlog: float
    server_ratio: float


_COMMON = loop_record(CommonTerms(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)).dtype


class RoundInput(NamedTuple):
    """One environment before a round, with prices in place of backlogs and budgets.

    Attributes:
        system: Channels, speeds, budgets and the like, as the simulator's own loop reads them.
        common: One record of :class:`CommonTerms` (1,); of a batch one of each environment (E,).
        price: Price of each node's energy (N, K+1) [1/J]: ``z / Ebar``, the queue before the round. Under the
            exact drift the search moves it towards the queue after the round. ``extra_price`` comes on top.
        extra_price: Part of the price that does not come from the queue (N, K+1) [1/J]; it does not change.
        use_price: Price of giving a device any blocks at all (N, K).
        backlog: ``z`` (N, K+1).
        idle_w: Power of the radios that are on (N, K+1) [W].
        cap: Blocks that each device can hold under each setting of recomputation (S, N, K), the workload's
            own and, where it is open, the other one; 0 for absent devices.
        options: All options of a cluster (O, 3) (see :mod:`.option_table`).
        option: Options to begin with (N,).
        choices: Options to choose from (C,), without blocks on the server; only one where options are given
            or the largest ``M`` is always best. Those with the other setting of recomputation come first.
        held: 1 where a present device held a block in the previous round (N, L, K); no blocks (N, 0, K) where
            a change of plan costs nothing.
        lead: Device that sends a block's moments (N, L), the first of those that held it; -1 for none.
        moving_noise: Noise plus interference of device-to-device links while moments move (N,) [W], under the
            plan evaluated last.
    """

    system: System
    common: Any
    price: FloatArray
    extra_price: FloatArray
    use_price: FloatArray
    backlog: FloatArray
    idle_w: FloatArray
    cap: IntArray
    options: IntArray
    option: IntArray
    choices: IntArray
    held: IntArray
    lead: IntArray
    moving_noise: FloatArray


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
    caps = [_caps(state, state.memory_cap)]
    if parameters.other_costs is not None:
        caps.append(_caps(state, other_memory_caps(parameters, state)))
    options, sizes = option_table(parameters, most_server), np.asarray(parameters.micro_batch_choices)
    if option is not None or parameters.overheads == NO_OVERHEADS:
        sizes = sizes[-1:]
    choices = options_with(options, sizes)
    if choose_recompute and len(caps) > 1 and option is None:
        choices = np.concatenate((options_with(options, sizes[::-1], 1), choices))
    begin = choices[-1] if option is None else option
    backlog = np.ascontiguousarray(state.live_backlog, dtype=np.float64)
    price = np.array(backlog / state.budget, dtype=np.float64)
    extra = np.zeros_like(price) if extra_price is None else np.ascontiguousarray(extra_price)
    held = _held(parameters, state)
    common = _common(parameters, state, most_server)
    common["exact"], common["loss_price"] = exact_drift, convergence_weight if parameters.lossy else 0.0
    arrays = (
        price + extra,
        extra,
        np.zeros_like(price[..., 1:]) if use_price is None else use_price,
        backlog,
        idle_power(parameters.radio_power.idle_w, state.present, np.ones(clusters, dtype=np.bool_), price),
        np.stack(caps, axis=-3),
        np.broadcast_to(options, (*clusters[:-1], *options.shape)),
        np.broadcast_to(begin, clusters),
        np.broadcast_to(choices, (*clusters[:-1], len(choices))),
        held,
        np.where(held.any(axis=-1), held.argmax(axis=-1), -1),
        np.full(clusters, parameters.noise_density * parameters.d2d_bandwidth_hz),
    )
    # States may hold read-only arrays, and other libraries' arrays may be in single precision.
    kinds = (np.float64 if a.dtype.kind == "f" else a.dtype for a in arrays)
    return RoundInput(system_of(state), common, *map(loop_array, arrays, kinds))


def _common(parameters: Parameters, state: SystemState, most_server: int) -> npt.NDArray[Any]:
    """Records of :class:`CommonTerms` (...), of a plan's queues before the round."""
    found = np.zeros(state.uplink_gain.shape[:-1], dtype=_COMMON)
    costs, terms, period = parameters.costs, parameters.server, parameters.budget_period_s
    radio, found["most_server"] = parameters.radio_power, most_server
    queue = 0.0
    if state.server_backlog is not None:
        joules = terms.pue * terms.joules_per_flop * passes_flops(costs, costs.block_forward_flops)
        queue, found["server_ratio"] = state.server_backlog, joules / terms.budget_j
        found["server_backlog"], found["server_price"] = queue, queue * found["server_ratio"]
    if period is not None:
        found["round_s"] = period
        found["relief"] = (state.live_backlog.sum(axis=(-2, -1)) + queue) / period
    if radio.idle_w > 0.0:
        found["relief"] -= radio.idle_w * (state.live_backlog / state.budget).sum(axis=(-2, -1))
    if period is not None or most_server > 0 or radio.edge_receive_w > 0.0 or radio.idle_w > 0.0:
        rate = full_band_rate(
            parameters.link,
            parameters.bs_power_w,
            state.uplink_gain.min(axis=-1),
            parameters.downlink_noise_w,
            parameters.downlink_bandwidth_hz,
        )
        found["broadcast_s"] = found["heard_s"] = message_time(parameters.numbers.broadcast_bits, rate)
        if most_server > 0:
            bits = costs.block_broadcast_bits
            found["block_broadcast_s"] = message_time(bits(parameters.clusters), rate)
            found["server_block_broadcast_s"] = message_time(bits(0), rate)
    return found


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
        row_of_system(inputs.system, e),
        inputs.common[e : e + 1],
        inputs.price[e],
        inputs.extra_price[e],
        inputs.use_price[e],
        inputs.backlog[e],
        inputs.idle_w[e],
        inputs.cap[e],
        inputs.options[e],
        inputs.option[e],
        inputs.choices[e],
        inputs.held[e],
        inputs.lead[e],
        inputs.moving_noise[e],
    )


@inlined
def micro_batches_of(option: int, inputs: RoundInput) -> float:
    """``M`` of an option."""
    return float(inputs.options[option, MICRO_BATCHES])


@inlined
def setting_of(option: int, inputs: RoundInput) -> int:
    """Setting of recomputation of an option: 0 for the workload's own, 1 for the other one."""
    setting: int = inputs.options[option, SETTING]
    return setting


@inlined
def server_blocks_of(option: int, inputs: RoundInput) -> int:
    """Encoder blocks that the server runs under an option."""
    blocks: int = inputs.options[option, SERVER_BLOCKS]
    return blocks


@inlined
def with_server_blocks(option: int, blocks: int, inputs: RoundInput) -> int:
    """The option with another number of blocks on the server, otherwise unchanged."""
    found: int = option - server_blocks_of(option, inputs) + blocks
    return found


@inlined
def other_setting(option: int, inputs: RoundInput) -> int:
    """The option with the other setting of recomputation, otherwise unchanged."""
    rows = inputs.options.shape[0]
    found: int = (option + rows // 2) % rows
    return found


@inlined
def update_bits_of(option: int, inputs: RoundInput, parameters: Numbers) -> float:
    """A cluster's update under an option [bit]: blocks that the server trains need no transfer."""
    kept = server_blocks_of(option, inputs)
    bits: float = parameters.update_bits - kept * parameters.block_payload_bits
    return bits


@compiled_leaf
def fits_option(n: int, segments: IntArray, option: int, inputs: RoundInput) -> bool:
    """Whether a cluster's devices can hold their blocks under an option."""
    fits, setting = True, setting_of(option, inputs)
    for k in range(segments.shape[0]):
        fits = fits and segments[k] <= inputs.cap[setting, n, k]
    return fits


@inlined
def is_open(inputs: RoundInput) -> bool:
    """Whether the search may change recomputation; the first choice then has the other setting."""
    return bool(setting_of(inputs.choices[0], inputs) == 1)


@inlined
def with_next_size(option: int, step: int, inputs: RoundInput) -> int:
    """The option with the next number of micro-batches; itself where there is none, or it may not change.

    Args:
        option: The option.
        step: 1 for the next larger number, -1 for the next smaller one.
    """
    rows = inputs.options.shape[0]
    found: int = option + step * (server_blocks_of(rows - 1, inputs) + 1)
    there = 0 <= found < rows and inputs.choices.shape[0] > (2 if is_open(inputs) else 1)
    return found if there and setting_of(found, inputs) == setting_of(option, inputs) else option
