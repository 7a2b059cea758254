"""Exact segments of one cluster for given powers, bandwidth and micro-batches (`algorithms.md` 1.5a, [R]).

Plans (``segment_plan``) are built device by device. A partial plan (blocks placed, last device) is described
by its cost so far, its four maxima and two sums of the moments' phase. A partial plan that is no better in
any of the seven than another one in the same place is dropped. Partial plans are extended in the order of a
lower bound on their completion (``segment_bounds``; best first), so the first complete plan reached is
optimal.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf

from .segment_bounds import (
    PARTS,
    dive,
    least_total,
    nothing_placed,
    put_blocks,
    relaxed_completions,
    useful_blocks,
)
from .segment_plan import ONE, ZERO, SegmentProblem, take_moments


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
    total_blocks, devices = problem.total_blocks, problem.cap.shape[0]
    nodes = devices + 1
    upper = upper_bound * (1.0 + 1e-12)  # rounding must not lose the known plan itself
    cap = useful_blocks(problem, upper)
    bound, through = relaxed_completions(problem, cap)
    segments = np.empty(devices, dtype=np.int64)
    for k in range(devices):
        segments[k] = 0
    if bound[0, 0, 0] == np.inf:
        return np.inf, segments
    upper = min(upper, dive(problem, cap, bound) * (1.0 + 1e-12))

    # Labels: their numbers; [placed, last, blocks, parent, next label of the same place, 0 once dominated].
    size, moves = 256, problem.lead.shape[0] > 0
    value = np.empty((size, PARTS))
    link = np.empty((size, 6), dtype=np.int64)
    head = np.empty((total_blocks + 1, nodes), dtype=np.int64)
    for placed in range(total_blocks + 1):
        for last in range(nodes):
            head[placed, last] = -1
    nothing_placed(problem, value)
    link[0, 0], link[0, 1], link[0, 2], link[0, 3], link[0, 4], link[0, 5] = 0, 0, 0, -1, -1, 1
    count = ONE
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
            put_blocks(problem, value, label, count, last, node, placed, ZERO)
            if least_total(problem, value, count, through, placed, node) > upper:
                continue
            moved, sending, receiving = value[label, 5], value[label, 6], 0.0
            for blocks in range(1, min(cap[node - 1], total_blocks - placed) + 1):
                after = placed + blocks
                if moves:
                    moved, sending, receiving = take_moments(
                        problem, node - 1, after - 1, moved, sending, receiving
                    )
                if bound[after, node, 0] == np.inf:
                    continue
                put_blocks(problem, value, label, count, last, node, placed, blocks)
                value[count, 5], value[count, 6] = max(moved, receiving), sending
                # For a complete plan the bound is its exact objective.
                lower = least_total(problem, value, count, bound, after, node)
                if lower > upper:
                    continue
                if after == total_blocks:
                    upper = lower
                if _is_dominated(value, link, head[after, node], count):
                    continue
                link[count, 0], link[count, 1], link[count, 2] = after, node, blocks
                link[count, 3], link[count, 4], link[count, 5] = label, head[after, node], 1
                head[after, node] = count
                key[count] = lower
                _sift_up(heap, waiting, count, key)
                waiting += 1
                count += 1
                if count == size:
                    value, link, key, heap = _twice_as_large(value, link, key, heap)
                    size *= 2
    return np.inf, segments


@compiled_inner
def _twice_as_large(
    value: FloatArray, link: IntArray, key: FloatArray, heap: IntArray
) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """The labels and the heap, with twice the room."""
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
def _is_dominated(value: FloatArray, link: IntArray, first: int, new: int) -> bool:
    """Whether some label of the place is at least as good in all parts; drops those that are worse in all."""
    other = first
    while other >= 0:
        if link[other, 5] == 1:
            better = worse = True
            for part in range(PARTS):
                better = better and value[other, part] <= value[new, part]
                worse = worse and value[other, part] >= value[new, part]
            if better:
                return True
            if worse:
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
    """Put a label in place of the first one of a heap, which then holds ``size`` labels."""
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
