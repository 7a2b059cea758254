"""Bounds of the search over segments: the best completion of partial plans, and a first plan ([R])."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf

from .segment_plan import ONE, ZERO, SegmentProblem, take_moments

PARTS = 7
"""Numbers that describe a partial plan: cost, slowest forward and backward element, longest collection and
update, and for its moments the time moved and the time being sent."""


@compiled_inner
def useful_blocks(problem: SegmentProblem, upper: float) -> IntArray:
    """Most blocks of each device (K,) in any plan that costs at most ``upper``, judged by their own cost.

    Args:
        upper: Objective of some known plan.
    """
    times, devices = problem.times, problem.cap.shape[0]
    most = np.empty(devices, dtype=np.int64)
    for k in range(devices):
        most[k] = min(problem.cap[k], problem.total_blocks)
        while most[k] > 0:
            blocks = most[k]
            forward = max(problem.least_forward, blocks * times.block_forward[k])
            backward = max(problem.least_backward, blocks * times.block_backward[k])
            alone = problem.block_cost[k, blocks] + problem.bottleneck_price * (forward + backward)
            alone += problem.collect_price * blocks * times.block_collect[k]
            if alone + problem.update_price * blocks * times.block_update[k] <= upper:
                break
            most[k] -= 1
    return most


@compiled_inner
def relaxed_completions(problem: SegmentProblem, cap: IntArray) -> tuple[FloatArray, FloatArray]:
    """Lower bounds on completing a partial plan: the five parts of the objective, each on its own.

    The hop to the next device and that device's own part are minimised one after the other, which is quicker
    than minimising them together.

    Args:
        cap: Most blocks of each device (K,), at most the problem's.

    Returns:
        ``bound[placed, last, part]`` after ``placed`` blocks, where ``last`` is the last node to hold some;
        ``through[placed, node, part]`` where ``node`` is the next to hold some, without the hop to it. Both
        are (L+1, K+1, 5), with parts cost, forward, backward, collect, update; infinity where the remaining
        devices cannot hold the remaining blocks.
    """
    times, total_blocks, moves = problem.times, problem.total_blocks, problem.lead.shape[0] > 0
    devices = problem.cap.shape[0]
    bound = np.full((total_blocks + 1, devices + 1, 5), np.inf)
    through = np.full((total_blocks + 1, devices + 1, 5), np.inf)
    before = 0  # blocks that the devices up to `last` can hold
    for k in range(devices):
        before += cap[k]
    for last in range(devices, -1, -1):
        if last > 0:
            bound[total_blocks, last, 0] = problem.hop_cost[last, 0]
            bound[total_blocks, last, 1] = times.hop_forward[last, 0]
            bound[total_blocks, last, 2] = times.hop_backward[last, 0]
            bound[total_blocks, last, 3] = bound[total_blocks, last, 4] = 0.0
        for placed in range(1 if last > 0 else 0, min(before, total_blocks - 1) + 1):
            for node in range(last + 1, devices + 1):
                if through[placed, node, 0] == np.inf:
                    continue
                cost = problem.hop_cost[last, node] + through[placed, node, 0]
                forward = max(times.hop_forward[last, node], through[placed, node, 1])
                backward = max(times.hop_backward[last, node], through[placed, node, 2])
                bound[placed, last, 0] = min(bound[placed, last, 0], cost)
                bound[placed, last, 1] = min(bound[placed, last, 1], forward)
                bound[placed, last, 2] = min(bound[placed, last, 2], backward)
                bound[placed, last, 3] = min(bound[placed, last, 3], through[placed, node, 3])
                bound[placed, last, 4] = min(bound[placed, last, 4], through[placed, node, 4])
        if last == 0:
            break
        k = last - 1
        before -= cap[k]
        for placed in range(min(before, total_blocks - 1) + 1):
            for blocks in range(1, min(cap[k], total_blocks - placed) + 1):
                after = placed + blocks
                if bound[after, last, 0] == np.inf:
                    continue
                cost = problem.block_cost[k, blocks] + bound[after, last, 0]
                if moves:
                    cost += problem.moments_cost[k, after] - problem.moments_cost[k, placed]
                forward = max(blocks * times.block_forward[k], bound[after, last, 1])
                backward = max(blocks * times.block_backward[k], bound[after, last, 2])
                collect = max(blocks * times.block_collect[k], bound[after, last, 3])
                update = max(blocks * times.block_update[k], bound[after, last, 4])
                through[placed, last, 0] = min(through[placed, last, 0], cost)
                through[placed, last, 1] = min(through[placed, last, 1], forward)
                through[placed, last, 2] = min(through[placed, last, 2], backward)
                through[placed, last, 3] = min(through[placed, last, 3], collect)
                through[placed, last, 4] = min(through[placed, last, 4], update)
    return bound, through


@compiled_leaf
def least_total(
    problem: SegmentProblem, value: FloatArray, label: int, rest: FloatArray, placed: int, node: int
) -> float:
    """Least objective of a partial plan whose completion has the bounds ``rest[placed, node]``.

    Args:
        value: Numbers that describe partial plans (labels, PARTS).
        label: The partial plan.
        rest: Bounds of completions (L+1, K+1, 5).
        placed: Blocks placed.
        node: The last node to hold some, or the next one.
    """
    forward, backward = value[label, 1], value[label, 2]
    slowest = max(forward, rest[placed, node, 1]) + max(backward, rest[placed, node, 2])
    total: float = (
        value[label, 0]
        + rest[placed, node, 0]
        + problem.bottleneck_price * slowest
        + problem.collect_price * max(value[label, 3], rest[placed, node, 3])
        + problem.update_price * max(value[label, 4], rest[placed, node, 4])
        + problem.moving_price * max(value[label, 5], value[label, 6])
    )
    return total


@compiled_leaf
def put_blocks(
    problem: SegmentProblem,
    value: FloatArray,
    label: int,
    new: int,
    last: int,
    node: int,
    placed: int,
    blocks: int,
) -> None:
    """Describe a partial plan with so many blocks more on its next node; the moments' sums stay.

    Args:
        value: Numbers that describe partial plans (labels, PARTS); receives the new one.
        label: The partial plan.
        new: Place of the new one.
        last: Last node to hold blocks.
        node: The next one.
        placed: Blocks placed.
        blocks: Blocks on the next node; 0 for the hop to it alone.
    """
    times, k = problem.times, node - 1
    cost = value[label, 0] + problem.hop_cost[last, node] + problem.block_cost[k, blocks]
    if problem.lead.shape[0] > 0:
        cost += problem.moments_cost[k, placed + blocks] - problem.moments_cost[k, placed]
    forward = max(times.hop_forward[last, node], blocks * times.block_forward[k])
    backward = max(times.hop_backward[last, node], blocks * times.block_backward[k])
    value[new, 0] = cost
    value[new, 1], value[new, 2] = max(value[label, 1], forward), max(value[label, 2], backward)
    value[new, 3] = max(value[label, 3], blocks * times.block_collect[k])
    value[new, 4] = max(value[label, 4], blocks * times.block_update[k])
    value[new, 5], value[new, 6] = value[label, 5], value[label, 6]


@compiled_leaf
def nothing_placed(problem: SegmentProblem, value: FloatArray) -> None:
    """Write the partial plan without blocks into the first place of ``value``."""
    for part in (0, 3, 4, 5, 6):
        value[0, part] = 0.0
    value[0, 1], value[0, 2] = problem.least_forward, problem.least_backward


@compiled_inner
def dive(problem: SegmentProblem, cap: IntArray, bound: FloatArray) -> float:
    """Objective of a plan built greedily by the least bound at every step: a first upper bound."""
    total_blocks, nodes, moves = problem.total_blocks, problem.cap.shape[0] + 1, problem.lead.shape[0] > 0
    value, placed, last, least = np.empty((3, PARTS)), ZERO, ZERO, np.inf  # the plan, a longer one, the best
    nothing_placed(problem, value)
    while placed < total_blocks:
        least, next_node, next_blocks = np.inf, 0, 0
        for node in range(last + 1, nodes):
            moved, sending, receiving = value[0, 5], value[0, 6], 0.0
            for blocks in range(1, min(cap[node - 1], total_blocks - placed) + 1):
                after = placed + blocks
                if moves:
                    moved, sending, receiving = take_moments(
                        problem, node - 1, after - 1, moved, sending, receiving
                    )
                if bound[after, node, 0] == np.inf:
                    continue
                put_blocks(problem, value, ZERO, ONE, last, node, placed, blocks)
                value[1, 5], value[1, 6] = max(moved, receiving), sending
                total = least_total(problem, value, ONE, bound, after, node)
                if total < least:
                    least, next_node, next_blocks = total, node, blocks
                    for part in range(PARTS):
                        value[2, part] = value[1, part]
        for part in range(PARTS):
            value[0, part] = value[2, part]
        placed, last = placed + next_blocks, next_node
    return float(least)
