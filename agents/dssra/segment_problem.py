"""The segment problem of one cluster: costs of blocks and hops, and of a split of the blocks ([R]).

The objective is the true GPipe objective at given powers, bandwidth and micro-batches: costs that add up over
blocks and hops, plus a price on the slowest forward element, on the slowest backward element, on the longest
collection, on the longest update and on the phase in which moments of moved blocks travel. Times are for the
whole mini-batch, including the overheads of all ``M`` micro-batches. Every element adds ``1 / M`` of its time
to the delay; the slowest adds ``1 - 1 / M`` more.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.kernels.cluster_times import ClusterTimes, cluster_times
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.packet_errors import failure_exponent, loss_exponent
from collapipe_env.physics.parameters import Numbers

from .cluster_costs import allowance_of, node_drift
from .moving import FIRST, lead_of, moments_airtime
from .round_input import (
    ClusterTerms,
    RoundInput,
    micro_batches_of,
    server_blocks_of,
    setting_of,
)

ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
"""Zero and one as arguments of compiled functions. For plain numbers Numba would compile a callee again."""


class SegmentProblem(NamedTuple):
    """Times of one cluster and the prices of its plans; node 0 is the CU, node k + 1 device k.

    Attributes:
        total_blocks: ``L`` >= 1.
        cap: Blocks each device can hold (K,), 0 for absent ones.
        times: Times of its blocks, hops, uplink and server.
        block_cost: Additive cost of 0 to L blocks on each device (K, L+1), >= 0; 0 for no blocks.
        hop_cost: Additive cost of the hop from node i to node j, both directions (K+1, K+1), >= 0.
        bottleneck_price: Price of the slowest elements [1/s], >= 0.
        collect_price: Price of the longest collection [1/s], >= 0.
        update_price: Price of the longest update of a local step [1/s], >= 0.
        lead: Device that sends a block's moments (L,), -1 for none; no blocks at all (0,) where a change of
            plan costs nothing. A device leads consecutive blocks unless it held chunks; then the phase is
            only a lower bound.
        moments_out: Airtime of a block's moments at their sender if a device takes the block (K, L) [s].
        moments_in: Airtime at the device that receives them, from their sender or the CU (K, L) [s].
        moments_cost: Additive cost of the moments of the first 0 to L blocks if a device takes them (K, L+1).
        through_cu: Whether moments travel via the CU.
        moving_price: Price of the moments' phase [1/s], >= 0.
        least_forward: Slowest forward element that all plans share: the uplink or the server [s].
        least_backward: Slowest backward element that all plans share: the downlink or the server [s].
        constant: Cost of every plan under the option, which the objectives of plans leave out. Comparisons
            of options add it.
    """

    total_blocks: int
    cap: IntArray
    times: ClusterTimes
    block_cost: FloatArray
    hop_cost: FloatArray
    bottleneck_price: float
    collect_price: float
    update_price: float
    lead: IntArray
    moments_out: FloatArray
    moments_in: FloatArray
    moments_cost: FloatArray
    through_cu: bool
    moving_price: float
    least_forward: float
    least_backward: float
    constant: float


class PartialPlan(NamedTuple):
    """Numbers that describe a plan of some blocks on the first devices.

    Attributes:
        cost: Costs that add up.
        forward: Slowest forward element [s].
        backward: Slowest backward element [s].
        collect: Longest collection [s].
        update: Longest update of a local step [s].
        moved: Longest time of finished senders and receivers of moments [s]; via the CU, of its receiving.
        sending: Time of the last block's sender so far [s]; via the CU, of its sending.
    """

    cost: float
    forward: float
    backward: float
    collect: float
    update: float
    moved: float
    sending: float


Moments: TypeAlias = tuple[float, float, float]
"""``moved`` and ``sending`` of a partial plan, and the time of its next device as a receiver so far [s]."""


@compiled_leaf
def nothing_placed(problem: SegmentProblem) -> PartialPlan:
    """The plan without blocks."""
    return PartialPlan(0.0, problem.least_forward, problem.least_backward, 0.0, 0.0, 0.0, 0.0)


@compiled_leaf
def take_moments(problem: SegmentProblem, k: int, block: int, moments: Moments) -> Moments:
    """Sums of the moments' phase when a device takes the next block."""
    if problem.lead.shape[0] == 0:
        return moments
    moved, sending, receiving = moments
    out, into = problem.moments_out[k, block], problem.moments_in[k, block]
    if problem.through_cu:
        return moved + out, sending + into, 0.0
    if block > 0 and problem.lead[block] != problem.lead[block - 1]:
        moved, sending = max(moved, sending), 0.0
    return moved, sending + out, receiving + into


@compiled_leaf
def extended(
    problem: SegmentProblem,
    plan: PartialPlan,
    moments: Moments,
    last: int,
    node: int,
    placed: int,
    blocks: int,
) -> PartialPlan:
    """A partial plan with some blocks more on its next node.

    Args:
        moments: Sums of the moments' phase with these blocks.
        last: Last node to hold blocks; 0 for none.
        node: The next one; 0 for the hop back to the CU.
        placed: Blocks placed.
        blocks: Blocks on the next node; 0 for the hop to it alone.
    """
    times, k = problem.times, node - 1
    cost = plan.cost + problem.hop_cost[last, node] + problem.block_cost[k, blocks]
    if problem.lead.shape[0] > 0:
        cost += problem.moments_cost[k, placed + blocks] - problem.moments_cost[k, placed]
    return PartialPlan(
        cost,
        max(plan.forward, times.hop_forward[last, node], blocks * times.block_forward[k]),
        max(plan.backward, times.hop_backward[last, node], blocks * times.block_backward[k]),
        max(plan.collect, blocks * times.block_collect[k]),
        max(plan.update, blocks * times.block_update[k]),
        max(moments[0], moments[2]),
        moments[1],
    )


@compiled_leaf
def total_of(problem: SegmentProblem, plan: PartialPlan) -> float:
    """Objective of a plan that has returned to the CU."""
    total: float = plan.cost + problem.bottleneck_price * (plan.forward + plan.backward)
    total += problem.collect_price * plan.collect + problem.update_price * plan.update
    return total + problem.moving_price * max(plan.moved, plan.sending)


@compiled_leaf
def plan_cost(problem: SegmentProblem, segments: IntArray) -> float:
    """Objective of a plan.

    ``sum_k block_cost_k(d_k) + sum_hops hop_cost + bottleneck_price (max forward element + max backward
    element) + collect_price max_k d_k block_collect_k + update_price max_k d_k block_update_k``. Elements
    are the used devices' compute (``d_k`` times its time per block), the hops CU -> first -> ... -> last ->
    CU between used devices, and the two least elements. Delays enter ``block_cost`` and ``hop_cost`` with
    their price. Where blocks change hands, the price and cost of moments are added.

    Args:
        segments: Blocks ``d`` of each device (K,).

    Returns:
        The objective; infinity for no blocks at all.
    """
    plan, last, placed = nothing_placed(problem), ZERO, ZERO
    for k in range(segments.shape[0]):
        if segments[k] > 0:
            moments = (plan.moved, plan.sending, 0.0)
            for block in range(placed, placed + segments[k]):
                moments = take_moments(problem, k, block, moments)
            plan = extended(problem, plan, moments, last, k + 1, placed, segments[k])
            last, placed = k + 1, placed + segments[k]
    if last == 0:
        return np.inf
    moments = (plan.moved, plan.sending, 0.0)
    return total_of(problem, extended(problem, plan, moments, last, ZERO, placed, ZERO))


@compiled_inner
def segment_problem(
    n: int, power: FloatArray, terms: ClusterTerms, inputs: RoundInput, parameters: Numbers
) -> SegmentProblem:
    """Price a cluster's plans at given powers, share and interference.

    Args:
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan; the price of interference is not used.

    Returns:
        A problem whose objective is ``w_n T_n + C_n`` without the terms that no plan changes.
    """
    delay_weight, noise_w, option = terms.delay_weight, terms.noise_w, terms.option
    M, setting = micro_batches_of(option, inputs), setting_of(option, inputs)
    cap = inputs.cap[setting, n]
    radio, steps, price = parameters.radio_power, parameters.local_steps, inputs.price[n]
    kept = server_blocks_of(option, inputs)
    times = cluster_times(
        parameters, inputs.system, n, cap, power, noise_w, terms.share, M, setting, float(kept)
    )
    devices = cap.shape[0]
    nodes = devices + 1
    fill, duty = delay_weight * steps / M, parameters.sharing.duty
    latency = 2.0 * delay_weight * steps * parameters.overheads.latency_s
    hop_cost, sender = np.zeros((nodes, nodes)), np.empty(nodes)
    for i in range(nodes):
        sender[i] = price[i] * radio_power(power[i], radio.d2d_circuit_w, radio.efficiency)
    loss_price = inputs.common[0].loss_price
    for i in range(nodes):
        for j in range(nodes):
            forward, backward = times.hop_forward[i, j], times.hop_backward[i, j]
            if forward == 0.0:
                continue
            hop_cost[i, j] = (
                fill * (forward + backward)
                + latency
                + steps * duty * (sender[i] + price[j] * radio.receive_w) * forward
                + steps * duty * (sender[j] + price[i] * radio.receive_w) * backward
            )
            if loss_price > 0.0:
                snr = inputs.system.d2d_gain[n, i, j] / noise_w
                for watts in (power[i], power[j]):
                    exponent = failure_exponent(parameters.link, snr * watts)
                    hop_cost[i, j] += loss_price * loss_exponent(exponent, parameters.link.transmissions)
    total = parameters.blocks - kept
    block_cost = np.zeros((devices, total + 1))
    exact = inputs.common[0].exact > 0.0
    for k in range(devices):
        busy = steps * (times.block_forward[k] + times.block_backward[k] + times.block_update[k])
        joules = inputs.system.compute_power[n, k] * busy
        each = (
            fill * (times.block_forward[k] + times.block_backward[k])
            + (sender[k + 1] + price[0] * radio.receive_w) * times.block_collect[k]
        )
        relay = parameters.relay_bits * times.link_bit[0, k + 1]
        each += (delay_weight + sender[0] + price[k + 1] * radio.receive_w) * relay
        z, budget = inputs.backlog[n, k + 1], inputs.system.budget[n, k + 1]
        allowance = allowance_of(n, k + 1, inputs.common[0].round_s, inputs, parameters)
        for blocks in range(1, cap[k] + 1):
            if blocks > total:
                break
            # Computing takes most of a device's energy, so its drift is exact; transmissions are priced.
            drift = blocks * price[k + 1] * joules
            if exact:
                drift = node_drift(z, blocks * joules / budget, allowance)
                drift += blocks * inputs.extra_price[n, k + 1] * joules
            block_cost[k, blocks] = inputs.use_price[n, k] + blocks * each + drift
    moments_out, moments_in, moments_cost = _moments(n, power, inputs, parameters)
    sending = price[0] * radio_power(power[0], radio.edge_circuit_w, radio.efficiency)
    constant = fill * (times.uplink + times.server_forward + times.server_backward + times.downlink)
    constant += kept * inputs.common[0].server_price
    constant += steps * sending * times.uplink + (delay_weight + sending) * times.upload
    return SegmentProblem(
        total,
        cap,
        times,
        block_cost,
        hop_cost,
        delay_weight * steps - fill,
        delay_weight,
        delay_weight * steps,
        inputs.lead[n],
        moments_out,
        moments_in,
        moments_cost,
        parameters.through_cu,
        delay_weight,
        max(times.uplink, times.server_forward),
        max(times.downlink, times.server_backward),
        constant,
    )


@compiled_inner
def _moments(
    n: int, power: FloatArray, inputs: RoundInput, parameters: Numbers
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Airtimes of blocks' moments at sender and receiver, and their cumulative costs, by device."""
    blocks, devices, radio = inputs.held.shape[1], inputs.held.shape[2], parameters.radio_power
    out, into = np.zeros((devices, blocks)), np.zeros((devices, blocks))
    cost, price = np.zeros((devices, blocks + 1)), inputs.price[n]
    through_cu = parameters.through_cu
    for k in range(devices):
        for block in range(blocks):
            cost[k, block + 1] = cost[k, block]
            lead = lead_of(n, block, k, inputs)
            if lead < 0:
                continue
            sender, receiver = lead + 1, 0 if through_cu else k + 1
            out[k, block] = into[k, block] = moments_airtime(n, sender, receiver, power, inputs, parameters)
            drawn = price[sender] * radio_power(power[sender], radio.d2d_circuit_w, radio.efficiency)
            spent = (drawn + price[receiver] * radio.receive_w) * out[k, block]
            if through_cu:
                into[k, block] = moments_airtime(n, FIRST, k + 1, power, inputs, parameters)
                drawn = price[0] * radio_power(power[0], radio.d2d_circuit_w, radio.efficiency)
                spent += (drawn + price[k + 1] * radio.receive_w) * into[k, block]
            cost[k, block + 1] += spent
    return out, into, cost
