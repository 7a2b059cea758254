"""All orders of operations of a chain's stages, and how long given sequences on machines take."""

import itertools

import numpy as np

from collapipe_env.physics.schedules.orders import BACKWARD, FORWARD, WEIGHT


def stage_orders(M, limit):
    """All orders of F, B and W of one stage that keep micro-batches in turn and within the limit."""

    def extend(order, f, b, w):
        if w == M:
            yield order
        if f < M and f - w < limit:
            yield from extend([*order, (FORWARD, f, 0)], f + 1, b, w)
        if b < f:
            yield from extend([*order, (BACKWARD, b, 0)], f, b + 1, w)
        if w < b:
            yield from extend([*order, (WEIGHT, w, 0)], f, b, w + 1)

    return list(extend([], 0, 0, 0))


def longest_path(sequences, after, seconds):
    """Makespan of given sequences on machines; infinite if they wait for each other."""
    before = {x: [] for x in seconds}
    for x, y in itertools.chain(after, *(itertools.pairwise(q) for q in sequences)):
        before[y].append(x)
    end = {}
    while len(end) < len(seconds):
        ready = [x for x in seconds if x not in end and all(y in end for y in before[x])]
        if not ready:
            return np.inf
        for x in ready:
            end[x] = seconds[x] + max((end[y] for y in before[x]), default=0.0)
    return max(end.values())
