"""Order of a cluster's devices in the pipeline, at given segments and powers ([X]).

A device computes equally long in every place; only the hops change. If at most five devices hold blocks, all
orders are compared. Longer orders are improved by moving single devices and reversing parts while that helps.
The criterion is the same as for the segments: :func:`~.segment_plan.plan_cost`, GPipe's.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled, compiled_inner, compiled_leaf
from collapipe_env.physics.parameters import Parameters

from .cluster_answers import LEAST_WEIGHT
from .cluster_costs import delay_price
from .round_input import ClusterTerms, RoundInput, environment_row
from .round_plan import evaluate, reprice
from .segment_plan import SegmentProblem
from .segment_problem import segment_problem

ALL_ORDERS = 5
"""Most devices whose orders are all compared."""


@compiled_leaf
def order_cost(problem: SegmentProblem, order: IntArray, forward: float, backward: float) -> float:
    """Part of a plan's objective that its order decides: hops, and the slowest elements.

    Args:
        problem: The cluster.
        order: Devices with blocks in pipeline order (S,).
        forward: Slowest forward element except the hops [s].
        backward: Slowest backward element except the hops [s].
    """
    times, cost, last = problem.times, 0.0, 0
    for place in range(order.shape[0] + 1):
        node = order[place] + 1 if place < order.shape[0] else 0
        cost += problem.hop_cost[last, node]
        forward = max(forward, times.hop_forward[last, node])
        backward = max(backward, times.hop_backward[last, node])
        last = node
    total: float = cost + problem.bottleneck_price * (forward + backward)
    return total


@compiled_inner
def best_order(problem: SegmentProblem, segments: IntArray, order: IntArray) -> None:
    """Put a cluster's devices in the order that suits their segments best, idle ones where they cost least.

    Args:
        problem: The cluster.
        segments: Blocks of each device (K,).
        order: Receives the devices in pipeline order (K,).
    """
    devices = segments.shape[0]
    times, forward, backward, S = problem.times, problem.least_forward, problem.least_backward, 0
    for k in range(devices):
        if segments[k] > 0:
            forward = max(forward, segments[k] * times.block_forward[k])
            backward = max(backward, segments[k] * times.block_backward[k])
            S += 1
    active, s = np.empty(S, dtype=np.int64), 0
    for k in range(devices):
        if segments[k] > 0:
            active[s] = k
            s += 1
    if S <= ALL_ORDERS:
        _try_all(problem, active, forward, backward)
    else:
        _improve(problem, active, forward, backward)
    for s in range(S):
        order[s] = active[s]
    length = S
    for k in range(devices):
        if segments[k] > 0:
            continue
        best, least = length, np.inf
        for place in range(length + 1):
            before = order[place - 1] + 1 if place > 0 else 0
            after = order[place] + 1 if place < length else 0
            detour = problem.hop_cost[before, k + 1] + problem.hop_cost[k + 1, after]
            detour -= problem.hop_cost[before, after]
            if detour < least:
                best, least = place, detour
        for place in range(length, best, -1):
            order[place] = order[place - 1]
        order[best] = k
        length += 1


@compiled_inner
def _try_all(problem: SegmentProblem, order: IntArray, forward: float, backward: float) -> None:
    """Compare all orders (Heap's algorithm) and leave the best; the present order wins ties."""
    S = order.shape[0]
    best, least = order.copy(), order_cost(problem, order, forward, backward)
    turns, i = np.empty(S, dtype=np.int64), 0
    for s in range(S):
        turns[s] = 0
    while i < S:
        if turns[i] < i:
            other = 0 if i % 2 == 0 else turns[i]
            order[other], order[i] = order[i], order[other]
            cost = order_cost(problem, order, forward, backward)
            if cost < least * (1.0 - 1e-12):
                least = cost
                for s in range(S):
                    best[s] = order[s]
            turns[i] += 1
            i = 0
        else:
            turns[i] = 0
            i += 1
    for s in range(S):
        order[s] = best[s]


@compiled_inner
def _improve(problem: SegmentProblem, order: IntArray, forward: float, backward: float) -> None:
    """Move single devices and reverse parts while that helps, the best step first."""
    S = order.shape[0]
    least, trial, best = order_cost(problem, order, forward, backward), order.copy(), order.copy()
    while True:
        found = least
        for first in range(S):
            for last in range(S):
                if first == last:
                    continue
                for turned in range(2 if first < last else 1):
                    for s in range(S):
                        trial[s] = order[s]
                    if turned == 1:
                        for s in range(first, last + 1):
                            trial[s] = order[first + last - s]
                    else:
                        step = 1 if first < last else -1
                        for s in range(first, last, step):
                            trial[s] = order[s + step]
                        trial[last] = order[first]
                    cost = order_cost(problem, trial, forward, backward)
                    if cost < found * (1.0 - 1e-12):
                        found = cost
                        for s in range(S):
                            best[s] = trial[s]
        if found >= least:
            return
        least = found
        for s in range(S):
            order[s] = best[s]


@compiled
def order_rows(
    inputs: RoundInput,
    parameters: Parameters,
    segments: IntArray,
    power: FloatArray,
    share: FloatArray,
    option: FloatArray,
    order: IntArray,
) -> None:
    """Choose the orders of plans.

    Args:
        inputs: The environments (E, ...).
        parameters: The scenario.
        segments: Blocks (E, N, K).
        power: Powers (E, N, K+1) [W].
        share: Shares (E, N).
        option: Options (E, N).
        order: Receives the devices in pipeline order (E, N, K).
    """
    for e in range(segments.shape[0]):
        row = environment_row(inputs, e)
        clusters = segments.shape[1]
        _, plan = evaluate(segments[e], power[e], option[e], share[e], row, parameters)
        if row.exact[0] > 0.0:
            reprice(plan, row, parameters)
        least = LEAST_WEIGHT * delay_price(row, parameters) / clusters
        for n in range(clusters):
            terms = ClusterTerms(option[e, n], plan.noise[n], plan.share[n], max(plan.weight[n], least), 0.0)
            problem = segment_problem(n, power[e, n], terms, row, parameters)
            best_order(problem, segments[e, n], order[e, n])
