"""Exact segments of one cluster for given powers, bandwidth and micro-batches (`algorithms.md` 1.5a, [R]).

Plans (:mod:`.segment_problem`) are built device by device. Partial plans that have placed the same blocks and
end with the same device compete: one that is no better than another in any of its numbers is dropped. Partial
plans are extended in the order of a lower bound on their completion (best first), so the first complete plan
reached is optimal.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf, inlined

from .segment_problem import (
    ONE,
    ZERO,
    PartialPlan,
    SegmentProblem,
    extended,
    nothing_placed,
    take_moments,
    total_of,
)

PARTS = 7  # numbers of a partial plan, the first columns of its label
LOWER, PLACED, NODE, PARENT, NEXT, ALIVE, HEAP = range(PARTS, PARTS + 7)
"""Further columns: the bound of its completion, the blocks placed, its last node, the label before it, the
next label of the same place (0 for none), and 0 once it is dominated. Column ``HEAP`` holds a binary heap of
the labels that wait: least bound first, and among equal bounds the newer, deeper one."""


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
    times, total_blocks, devices = problem.times, problem.total_blocks, problem.cap.shape[0]
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
                forward, backward = times.hop_forward[last, node], times.hop_backward[last, node]
                hop = (problem.hop_cost[last, node], forward, backward, 0.0, 0.0)
                if through[placed, node, 0] < np.inf:
                    _lower(bound, placed, last, hop, through, placed, node)
        if last == 0:
            break
        k = last - 1
        before -= cap[k]
        for placed in range(min(before, total_blocks - 1) + 1):
            for blocks in range(1, min(cap[k], total_blocks - placed) + 1):
                cost = problem.block_cost[k, blocks]
                if problem.lead.shape[0] > 0:
                    cost += problem.moments_cost[k, placed + blocks] - problem.moments_cost[k, placed]
                own = (
                    cost,
                    blocks * times.block_forward[k],
                    blocks * times.block_backward[k],
                    blocks * times.block_collect[k],
                    blocks * times.block_update[k],
                )
                if bound[placed + blocks, last, 0] < np.inf:
                    _lower(through, placed, last, own, bound, placed + blocks, last)
    return bound, through


@inlined
def _lower(
    table: FloatArray,
    placed: int,
    last: int,
    own: tuple[float, float, float, float, float],
    rest: FloatArray,
    after: int,
    node: int,
) -> None:
    """Lower bounds of a place to those of a step with parts of its ``own`` and the rest from its end."""
    for part in range(5):
        left = rest[after, node, part]
        both = own[part] + left if part == 0 else max(own[part], left)
        table[placed, last, part] = min(table[placed, last, part], both)


@compiled_leaf
def least_total(
    problem: SegmentProblem, plan: PartialPlan, rest: FloatArray, placed: int, node: int
) -> float:
    """Least objective of a partial plan whose completion has the bounds ``rest[placed, node]``.

    Args:
        rest: Bounds of completions (L+1, K+1, 5).
        placed: Blocks placed.
        node: The last node to hold some, or the next one.
    """
    whole = PartialPlan(
        plan.cost + rest[placed, node, 0],
        max(plan.forward, rest[placed, node, 1]),
        max(plan.backward, rest[placed, node, 2]),
        max(plan.collect, rest[placed, node, 3]),
        max(plan.update, rest[placed, node, 4]),
        plan.moved,
        plan.sending,
    )
    return total_of(problem, whole)


@compiled_inner
def dive(problem: SegmentProblem, cap: IntArray, bound: FloatArray) -> float:
    """Objective of a plan built greedily by the least bound at every step: a first upper bound."""
    total_blocks, nodes = problem.total_blocks, problem.cap.shape[0] + 1
    plan, placed, last, least = nothing_placed(problem), ZERO, ZERO, np.inf
    while placed < total_blocks:
        least, best, best_node, best_after = np.inf, plan, last, placed
        for node in range(last + 1, nodes):
            moments = (plan.moved, plan.sending, 0.0)
            for after in range(placed + 1, min(placed + cap[node - 1], total_blocks) + 1):
                moments = take_moments(problem, node - 1, after - 1, moments)
                if bound[after, node, 0] == np.inf:
                    continue
                longer = extended(problem, plan, moments, last, node, placed, after - placed)
                total = least_total(problem, longer, bound, after, node)
                if total < least:
                    least, best, best_node, best_after = total, longer, node, after
        plan, last, placed = best, best_node, best_after
    return float(least)


@compiled_inner
def best_segments(problem: SegmentProblem, upper_bound: float = np.inf) -> tuple[float, IntArray]:
    """Cheapest split of the blocks over the devices in index order, exact.

    Minimises :func:`plan_cost` over all ``d`` with ``sum d = L`` and ``0 <= d_k <= cap_k``.

    Args:
        upper_bound: Objective of some known plan. Dearer partial plans are dropped, which only saves time.

    Returns:
        The least objective and the blocks of each device (K,); infinity and zeros where the devices
        cannot hold the blocks (or where no plan reaches ``upper_bound``).
    """
    total_blocks, nodes = problem.total_blocks, problem.cap.shape[0] + 1
    upper = upper_bound * (1.0 + 1e-12)  # rounding must not lose the known plan itself
    cap = useful_blocks(problem, upper)
    bound, through = relaxed_completions(problem, cap)
    segments = np.zeros(nodes - 1, dtype=np.int64)
    if bound[0, 0, 0] == np.inf:
        return np.inf, segments
    upper = min(upper, dive(problem, cap, bound) * (1.0 + 1e-12))
    labels, count, waiting, plan = np.empty((256, PARTS + 7)), ONE, ONE, nothing_placed(problem)
    for part in range(PARTS):
        labels[1, part] = plan[part]
    labels[1, PLACED], labels[1, NODE], labels[1, ALIVE], labels[0, HEAP] = 0.0, 0.0, 1.0, 1.0
    # A label of each place, from which the others follow.
    head = np.zeros((total_blocks + 1, nodes), dtype=np.int64)
    while waiting > 0:
        label = _pop(labels, waiting)
        waiting -= 1
        if labels[label, ALIVE] == 0.0:
            continue
        v, placed, last = labels[label], int(labels[label, PLACED]), int(labels[label, NODE])
        if placed == total_blocks:
            least = float(v[LOWER])
            while label > 1:
                parent = int(labels[label, PARENT])
                segments[int(labels[label, NODE]) - 1] = int(labels[label, PLACED] - labels[parent, PLACED])
                label = parent
            return least, segments
        plan = PartialPlan(v[0], v[1], v[2], v[3], v[4], v[5], v[6])
        for node in range(last + 1, nodes):
            moments = (plan.moved, plan.sending, 0.0)
            hop = extended(problem, plan, moments, last, node, placed, ZERO)
            if least_total(problem, hop, through, placed, node) > upper:
                continue
            for after in range(placed + 1, min(placed + cap[node - 1], total_blocks) + 1):
                moments = take_moments(problem, node - 1, after - 1, moments)
                if bound[after, node, 0] == np.inf:
                    continue
                longer = extended(problem, plan, moments, last, node, placed, after - placed)
                # For a complete plan the bound is its exact objective.
                lower = least_total(problem, longer, bound, after, node)
                if lower > upper:
                    continue
                if after == total_blocks:
                    upper = lower
                count += 1
                if count == labels.shape[0]:
                    labels = _twice_as_large(labels)
                for part in range(PARTS):
                    labels[count, part] = longer[part]
                labels[count, LOWER], labels[count, PLACED], labels[count, NODE] = lower, after, node
                labels[count, PARENT], labels[count, NEXT] = label, head[after, node]
                labels[count, ALIVE] = 1.0
                if _is_dominated(labels, count):
                    count -= 1
                    continue
                head[after, node] = count
                _push(labels, waiting, count)
                waiting += 1
    return np.inf, segments


@compiled_inner
def _twice_as_large(labels: FloatArray) -> FloatArray:
    """The labels, with twice the room."""
    more = np.empty((2 * labels.shape[0], labels.shape[1]))
    for label in range(labels.shape[0]):
        for column in range(labels.shape[1]):
            more[label, column] = labels[label, column]
    return more


@compiled_leaf
def _is_dominated(labels: FloatArray, new: int) -> bool:
    """Whether some label of the place is at least as good in all parts; drops those that are worse in all."""
    other = int(labels[new, NEXT])
    while other > 0:
        if labels[other, ALIVE] > 0.0:
            better = worse = True
            for part in range(PARTS):
                better = better and labels[other, part] <= labels[new, part]
                worse = worse and labels[other, part] >= labels[new, part]
            if better:
                return True
            if worse:
                labels[other, ALIVE] = 0.0
        other = int(labels[other, NEXT])
    return False


@compiled_leaf
def _before(labels: FloatArray, first: int, second: int) -> bool:
    one, other = labels[first, LOWER], labels[second, LOWER]
    return one < other or (one == other and first > second)


@compiled_leaf
def _push(labels: FloatArray, size: int, label: int) -> None:
    """Put a label into the heap of ``size`` labels."""
    while size > 0:
        parent = int(labels[(size - 1) // 2, HEAP])
        if not _before(labels, label, parent):
            break
        labels[size, HEAP] = parent
        size = (size - 1) // 2
    labels[size, HEAP] = label


@compiled_leaf
def _pop(labels: FloatArray, size: int) -> int:
    """Take the first label out of the heap of ``size`` labels; the last one then finds a new place."""
    first, label, place, child = int(labels[0, HEAP]), int(labels[size - 1, HEAP]), 0, 1
    while child < size:
        if child + 1 < size and _before(labels, int(labels[child + 1, HEAP]), int(labels[child, HEAP])):
            child += 1
        if not _before(labels, int(labels[child, HEAP]), label):
            break
        labels[place, HEAP] = labels[child, HEAP]
        place, child = child, 2 * child + 1
    labels[place, HEAP] = label
    return first
