"""Bounds of the search over segments: the best completion of partial plans, and a first plan ([R])."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf

from .segment_plan import SegmentProblem, take_moments


@compiled_inner
def useful_blocks(problem: SegmentProblem, upper: float) -> IntArray:
    """Most blocks of each device (K,) in any plan that costs at most ``upper``, judged by their own cost.

    Args:
        problem: The cluster.
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
        problem: The cluster.
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
    problem: SegmentProblem,
    cost: float,
    forward: float,
    backward: float,
    collect: float,
    update: float,
    moving: float,
    rest: FloatArray,
    placed: int,
    node: int,
) -> float:
    """Least objective of a partial plan whose completion has the bounds ``rest[placed, node]``."""
    slowest = max(forward, rest[placed, node, 1]) + max(backward, rest[placed, node, 2])
    total: float = (
        cost
        + rest[placed, node, 0]
        + problem.bottleneck_price * slowest
        + problem.collect_price * max(collect, rest[placed, node, 3])
        + problem.update_price * max(update, rest[placed, node, 4])
        + problem.moving_price * moving
    )
    return total


@compiled_leaf
def dive(problem: SegmentProblem, cap: IntArray, bound: FloatArray) -> float:
    """Objective of a plan built greedily by the least bound at every step: a first upper bound."""
    times, total_blocks, nodes = problem.times, problem.total_blocks, problem.cap.shape[0] + 1
    cost, forward, backward, collect, update = 0.0, problem.least_forward, problem.least_backward, 0.0, 0.0
    placed, last, moves = 0, 0, problem.lead.shape[0] > 0
    moved = sending = next_moved = next_sending = 0.0
    while placed < total_blocks:
        least, next_node, next_blocks = np.inf, 0, 0
        for node in range(last + 1, nodes):
            k = node - 1
            longest, sent, received, moments = moved, sending, 0.0, 0.0
            for blocks in range(1, min(cap[k], total_blocks - placed) + 1):
                if moves:
                    longest, sent, received = take_moments(
                        problem, k, placed + blocks - 1, longest, sent, received
                    )
                    moments = problem.moments_cost[k, placed + blocks] - problem.moments_cost[k, placed]
                if bound[placed + blocks, node, 0] == np.inf:
                    continue
                total = least_total(
                    problem,
                    cost + problem.hop_cost[last, node] + problem.block_cost[k, blocks] + moments,
                    max(forward, max(times.hop_forward[last, node], blocks * times.block_forward[k])),
                    max(backward, max(times.hop_backward[last, node], blocks * times.block_backward[k])),
                    max(collect, blocks * times.block_collect[k]),
                    max(update, blocks * times.block_update[k]),
                    max(max(longest, received), sent),
                    bound,
                    placed + blocks,
                    node,
                )
                if total < least:
                    least, next_node, next_blocks = total, node, blocks
                    next_moved, next_sending = max(longest, received), sent
        k = next_node - 1
        cost += problem.hop_cost[last, next_node] + problem.block_cost[k, next_blocks]
        if moves:
            cost += problem.moments_cost[k, placed + next_blocks] - problem.moments_cost[k, placed]
            moved, sending = next_moved, next_sending
        forward = max(forward, max(times.hop_forward[last, next_node], next_blocks * times.block_forward[k]))
        backward = max(
            backward, max(times.hop_backward[last, next_node], next_blocks * times.block_backward[k])
        )
        collect = max(collect, next_blocks * times.block_collect[k])
        update = max(update, next_blocks * times.block_update[k])
        placed, last = placed + next_blocks, next_node
    return float(least)
