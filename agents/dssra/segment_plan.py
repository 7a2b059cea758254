"""Cost of a split of a cluster's blocks over its devices, at given powers, bandwidth and micro-batches ([R]).

The objective is the true GPipe objective: costs that add up over blocks and hops, plus a price on the slowest
forward element, on the slowest backward element, on the longest collection, on the longest update and on the
phase in which moments of moved blocks travel.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_leaf
from collapipe_env.kernels.cluster_times import ClusterTimes

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
            of options that leave different blocks to the server add it.
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
