"""Exact segments of one cluster for given powers, bandwidth and micro-batches (`algorithms.md` 1.5a, [R]).

The objective is the true GPipe objective: costs that add up over blocks and hops, plus a price on the
slowest forward element, on the slowest backward element, on the longest collection, on the longest update and
on the phase in which moments of moved blocks travel. Plans are built device by device. A partial plan
(blocks placed, last device) is described by its cost so far, its four maxima and two sums of the moments'
phase; one that is no better in any of the seven than another in the same place is dropped.
Partial plans are taken up in the order of a lower bound on what they can become (best first), so the
first complete plan taken up is optimal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled_inner, compiled_leaf
from collapipe_env.physics.cluster_times import ClusterTimes

PARTS = 7
"""Numbers that describe a partial plan."""


class SegmentProblem(NamedTuple):
    """Times of one cluster and the prices of its plans; node 0 is the CU, node k + 1 device k.

    Attributes:
        total_blocks: ``L`` >= 1.
        cap: Blocks each device can hold (K,), 0 for absent ones.
        times: Times of its blocks, hops, uplink and server.
        block_cost: Additive cost of so many blocks on each device (K, L+1), >= 0, 0 for none.
        hop_cost: Additive cost of the hop from node i to node j, both directions (K+1, K+1), >= 0.
        bottleneck_price: Price of the slowest elements [1/s], >= 0.
        collect_price: Price of the longest collection [1/s], >= 0.
        update_price: Price of the longest update of a local step [1/s], >= 0.
        lead: Device that sends a block's moments (L,), -1 for none; no blocks at all (0,) where a change of
            plan costs nothing. A device leads blocks in a row unless it held chunks; then the phase is no
            more than a lower bound.
        moments_out: Airtime of a block's moments at their sender if a device takes the block (K, L) [s].
        moments_in: Airtime at the device, or at the CU that passes them on (K, L) [s].
        moments_cost: Additive cost of the moments of so many first blocks if a device takes them (K, L+1).
        through_cu: Whether moments travel over the CU.
        moving_price: Price of the moments' phase [1/s], >= 0.
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


@compiled_leaf
def least_forward(times: ClusterTimes) -> float:
    """Forward element that every plan has at least: the uplink or the server [s]."""
    return max(times.uplink, times.server_forward)


@compiled_leaf
def least_backward(times: ClusterTimes) -> float:
    """Backward element that every plan has at least: the downlink or the server [s]."""
    return max(times.downlink, times.server_backward)


@compiled_leaf
def plan_cost(problem: SegmentProblem, segments: IntArray) -> float:
    """Objective of a plan.

    ``sum_k block_cost_k(d_k) + sum_hops hop_cost + bottleneck_price (max forward element + max backward
    element) + collect_price max_k d_k block_collect_k + update_price max_k d_k block_update_k``. Elements
    are the used devices' compute (``d_k`` times its time per block), the hops CU -> first -> ... -> last ->
    CU between used devices, and the two
    least elements. Delays enter ``block_cost`` and ``hop_cost`` with their price. Where blocks change hands,
    the price and cost of moments come on top.

    Args:
        problem: The cluster.
        segments: Blocks ``d`` of each device (K,).

    Returns:
        The objective; infinity for no blocks at all.
    """
    times = problem.times
    cost, forward, backward, collect, update = 0.0, least_forward(times), least_backward(times), 0.0, 0.0
    last, placed, moved, sending = 0, 0, 0.0, 0.0
    for k in range(segments.shape[0]):
        blocks = segments[k]
        if blocks > 0:
            if problem.lead.shape[0] > 0:
                cost += problem.moments_cost[k, placed + blocks] - problem.moments_cost[k, placed]
                receiving = 0.0
                for block in range(placed, placed + blocks):
                    moved, sending, receiving = _take_moments(problem, k, block, moved, sending, receiving)
                moved = max(moved, receiving)
                placed += blocks
            cost += problem.hop_cost[last, k + 1] + problem.block_cost[k, blocks]
            forward = max(forward, max(times.hop_forward[last, k + 1], blocks * times.block_forward[k]))
            backward = max(backward, max(times.hop_backward[last, k + 1], blocks * times.block_backward[k]))
            collect = max(collect, blocks * times.block_collect[k])
            update = max(update, blocks * times.block_update[k])
            last = k + 1
    if last == 0:
        return np.inf
    forward = max(forward, times.hop_forward[last, 0])
    backward = max(backward, times.hop_backward[last, 0])
    total: float = cost + problem.hop_cost[last, 0] + problem.collect_price * collect
    total += problem.update_price * update + problem.moving_price * max(moved, sending)
    total += problem.bottleneck_price * (forward + backward)
    return total


@compiled_leaf
def _take_moments(
    problem: SegmentProblem, k: int, block: int, moved: float, sending: float, receiving: float
) -> tuple[float, float, float]:
    """Sums of the moments' phase when a device takes the next block.

    Directly, ``moved`` is the longest time of a sender or receiver that is done, ``sending`` that of the
    block's sender so far and ``receiving`` that of the device so far. Over the CU, ``moved`` and ``sending``
    are what it receives and sends.
    """
    out, into = problem.moments_out[k, block], problem.moments_in[k, block]
    if problem.through_cu:
        return moved + out, sending + into, 0.0
    if block > 0 and problem.lead[block] != problem.lead[block - 1]:
        moved, sending = max(moved, sending), 0.0
    return moved, sending + out, receiving + into


@compiled_inner
def useful_blocks(problem: SegmentProblem, upper: float) -> IntArray:
    """Most blocks of each device (K,) in any plan that costs at most ``upper``, by what they cost alone.

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
            forward = max(least_forward(times), blocks * times.block_forward[k])
            backward = max(least_backward(times), blocks * times.block_backward[k])
            alone = problem.block_cost[k, blocks] + problem.bottleneck_price * (forward + backward)
            alone += problem.collect_price * blocks * times.block_collect[k]
            if alone + problem.update_price * blocks * times.block_update[k] <= upper:
                break
            most[k] -= 1
    return most


@compiled_inner
def relaxed_completions(problem: SegmentProblem, cap: IntArray) -> tuple[FloatArray, FloatArray]:
    """Lower bounds on completing a partial plan: the five parts of the objective, each on its own.

    The hop to the next device and what that device does are taken one after the other, which is quicker than
    together.

    Args:
        problem: The cluster.
        cap: Most blocks of each device (K,), at most the problem's.

    Returns:
        ``bound[placed, last, part]`` after ``placed`` blocks of which ``last`` holds some, and
        ``through[placed, node, part]`` where ``node`` is the next to hold some, the hop to it apart: both
        (L+1, K+1, 5), with parts cost, forward, backward, collect, update; infinity where the devices left
        cannot hold the remaining blocks.
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
def _least_total(
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
def _dive(problem: SegmentProblem, cap: IntArray, bound: FloatArray) -> float:
    """Objective of a plan that is built by the least bound at every step: a first upper bound."""
    times, total_blocks, nodes = problem.times, problem.total_blocks, problem.cap.shape[0] + 1
    cost, forward, backward, collect, update = 0.0, least_forward(times), least_backward(times), 0.0, 0.0
    placed, last, moves = 0, 0, problem.lead.shape[0] > 0
    moved = sending = next_moved = next_sending = 0.0
    while placed < total_blocks:
        least, next_node, next_blocks = np.inf, 0, 0
        for node in range(last + 1, nodes):
            k = node - 1
            longest, sent, received, moments = moved, sending, 0.0, 0.0
            for blocks in range(1, min(cap[k], total_blocks - placed) + 1):
                if moves:
                    longest, sent, received = _take_moments(
                        problem, k, placed + blocks - 1, longest, sent, received
                    )
                    moments = problem.moments_cost[k, placed + blocks] - problem.moments_cost[k, placed]
                if bound[placed + blocks, node, 0] == np.inf:
                    continue
                total = _least_total(
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


@compiled_inner
def best_segments(problem: SegmentProblem, upper_bound: float = np.inf) -> tuple[float, IntArray]:
    """Cheapest split of the blocks over the devices in index order, exact.

    Minimises :func:`plan_cost` over all ``d`` with ``sum d = L`` and ``0 <= d_k <= cap_k``.

    Args:
        problem: The cluster.
        upper_bound: Objective of some known plan: dearer partial plans are not kept. Saves time only.

    Returns:
        The least objective and the blocks of each device (K,); infinity and zeros where the devices
        cannot hold the blocks (or where no plan reaches ``upper_bound``).
    """
    times, total_blocks, devices = problem.times, problem.total_blocks, problem.cap.shape[0]
    nodes = devices + 1
    upper = upper_bound * (1.0 + 1e-12)  # rounding must not lose the known plan itself
    cap = useful_blocks(problem, upper)
    bound, through = relaxed_completions(problem, cap)
    segments = np.empty(devices, dtype=np.int64)
    for k in range(devices):
        segments[k] = 0
    if bound[0, 0, 0] == np.inf:
        return np.inf, segments
    upper = min(upper, _dive(problem, cap, bound) * (1.0 + 1e-12))

    # Labels: [cost, slowest forward, slowest backward, longest collection, longest update, moments moved,
    # moments being sent]; [placed, last, blocks, parent, next label of the same place, 0 once dominated].
    size, moves = 256, problem.lead.shape[0] > 0
    value = np.empty((size, PARTS))
    link = np.empty((size, 6), dtype=np.int64)
    head = np.empty((total_blocks + 1, nodes), dtype=np.int64)
    for placed in range(total_blocks + 1):
        for last in range(nodes):
            head[placed, last] = -1
    for part in (0, 3, 4, 5, 6):
        value[0, part] = 0.0
    value[0, 1], value[0, 2] = least_forward(times), least_backward(times)
    link[0, 0], link[0, 1], link[0, 2], link[0, 3], link[0, 4], link[0, 5] = 0, 0, 0, -1, -1, 1
    count = int(np.int64(1))  # not a literal, for which Numba would compile the heap's functions twice
    # A binary heap of labels, least bound first, and each label's bound.
    heap = np.empty(size, dtype=np.int64)
    key = np.empty(size)
    heap[0], key[0] = 0, 0.0
    waiting = 1
    while waiting > 0:
        label = heap[0]
        waiting -= 1
        _sift_down(heap, waiting, heap[waiting], key)
        if link[label, 5] == 0:
            continue
        placed, last = link[label, 0], link[label, 1]
        if placed == total_blocks:
            best = float(key[label])
            while label > 0:
                segments[link[label, 1] - 1] = link[label, 2]
                label = link[label, 3]
            return best, segments
        for node in range(last + 1, nodes):
            k = node - 1
            cost_before = value[label, 0] + problem.hop_cost[last, node]
            forward_before = max(value[label, 1], times.hop_forward[last, node])
            backward_before = max(value[label, 2], times.hop_backward[last, node])
            collect, update = value[label, 3], value[label, 4]
            moved, sending, receiving = value[label, 5], value[label, 6], 0.0
            lower = _least_total(
                problem,
                cost_before,
                forward_before,
                backward_before,
                collect,
                update,
                max(moved, sending),
                through,
                placed,
                node,
            )
            if lower > upper:
                continue
            for blocks in range(1, min(cap[k], total_blocks - placed) + 1):
                after = placed + blocks
                if moves:
                    moved, sending, receiving = _take_moments(
                        problem, k, after - 1, moved, sending, receiving
                    )
                if bound[after, node, 0] == np.inf:
                    continue
                cost, longest = cost_before + problem.block_cost[k, blocks], max(moved, receiving)
                if moves:
                    cost += problem.moments_cost[k, after] - problem.moments_cost[k, placed]
                forward = max(forward_before, blocks * times.block_forward[k])
                backward = max(backward_before, blocks * times.block_backward[k])
                collect = max(value[label, 3], blocks * times.block_collect[k])
                update = max(value[label, 4], blocks * times.block_update[k])
                # For a complete plan the bound is its exact objective.
                lower = _least_total(
                    problem,
                    cost,
                    forward,
                    backward,
                    collect,
                    update,
                    max(longest, sending),
                    bound,
                    after,
                    node,
                )
                if lower > upper:
                    continue
                if after == total_blocks:
                    upper = lower
                if _is_dominated(
                    value,
                    link,
                    head[after, node],
                    cost,
                    forward,
                    backward,
                    collect,
                    update,
                    longest,
                    sending,
                ):
                    continue
                if count == size:
                    value, link, key, heap = _twice_as_large(value, link, key, heap)
                    size *= 2
                value[count, 0], value[count, 1] = cost, forward
                value[count, 2], value[count, 3], value[count, 4] = backward, collect, update
                value[count, 5], value[count, 6] = longest, sending
                link[count, 0], link[count, 1], link[count, 2] = after, node, blocks
                link[count, 3], link[count, 4], link[count, 5] = label, head[after, node], 1
                head[after, node] = count
                key[count] = lower
                _sift_up(heap, waiting, count, key)
                waiting += 1
                count += 1
    return np.inf, segments


@compiled_inner
def _twice_as_large(
    value: FloatArray, link: IntArray, key: FloatArray, heap: IntArray
) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """The labels and the heap, with room for as many again."""
    size = key.shape[0]
    more_value, more_link = np.empty((2 * size, PARTS)), np.empty((2 * size, 6), dtype=np.int64)
    more_key, more_heap = np.empty(2 * size), np.empty(2 * size, dtype=np.int64)
    for label in range(size):
        for part in range(PARTS):
            more_value[label, part] = value[label, part]
        for part in range(6):
            more_link[label, part] = link[label, part]
        more_key[label], more_heap[label] = key[label], heap[label]
    return more_value, more_link, more_key, more_heap


@compiled_leaf
def _is_dominated(
    value: FloatArray,
    link: IntArray,
    first: int,
    cost: float,
    forward: float,
    backward: float,
    collect: float,
    update: float,
    moved: float,
    sending: float,
) -> bool:
    """Whether some label of the place is at least as good in all parts; drops those that are worse in all."""
    other = first
    while other >= 0:
        if link[other, 5] == 1:
            if (
                value[other, 0] <= cost
                and value[other, 1] <= forward
                and value[other, 2] <= backward
                and value[other, 3] <= collect
                and value[other, 4] <= update
                and value[other, 5] <= moved
                and value[other, 6] <= sending
            ):
                return True
            if (
                value[other, 0] >= cost
                and value[other, 1] >= forward
                and value[other, 2] >= backward
                and value[other, 3] >= collect
                and value[other, 4] >= update
                and value[other, 5] >= moved
                and value[other, 6] >= sending
            ):
                link[other, 5] = 0
        other = link[other, 4]
    return False


@compiled_leaf
def _before(first: int, second: int, key: FloatArray) -> bool:
    """Heap order: the smaller bound; among equal bounds the newer label, because it is the deeper one."""
    return key[first] < key[second] or (key[first] == key[second] and first > second)


@compiled_leaf
def _sift_up(heap: IntArray, position: int, label: int, key: FloatArray) -> None:
    """Put a label into a heap of ``position`` labels."""
    while position > 0:
        parent = (position - 1) // 2
        if not _before(label, heap[parent], key):
            break
        heap[position] = heap[parent]
        position = parent
    heap[position] = label


@compiled_leaf
def _sift_down(heap: IntArray, size: int, label: int, key: FloatArray) -> None:
    """Put a label in place of the first one of a heap of ``size`` labels without it."""
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap[child + 1], heap[child], key):
            child += 1
        if not _before(heap[child], label, key):
            break
        heap[position] = heap[child]
        position = child
    heap[position] = label
