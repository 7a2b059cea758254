"""Chains for the tests of the compiled simulation, and two solutions in plain Python to compare with.

Orders are lists of operations for each stage: a kind (F forward, B backward, W weight gradient), a
micro-batch and a chunk.
"""

import heapq
from collections import defaultdict, deque
from itertools import accumulate, count

import numpy as np

from collapipe_env.physics.schedules.simulation import ChainTimes

NO_EVENTS = np.zeros((0, 6))


def plain_chain(forward, backward, links=(), gradients=None, weight=None):
    """Stages joined by single links, as in the literature: the server is simply the last stage."""
    P = len(forward)
    there, back = np.zeros(P + 2), np.zeros(P + 2)
    there[1:P] = links if len(links) else 0.0
    back[1:P] = there[1:P] if gradients is None else gradients
    return ChainTimes(
        np.array(forward, dtype=float),
        np.array(backward, dtype=float),
        np.zeros(P) if weight is None else np.array(weight, dtype=float),
        there,
        back,
        np.zeros(P + 2),
        np.ones((P, 1)),
    )


def random_chain(rng, stages, chunks=1, latency=0.0):
    """A chain with every element, the CU's relay included; some elements take no time."""
    P = stages + 1
    # Exactly 1 for a single chunk: one rounding more would decide near-ties of greedy orders otherwise.
    share = rng.dirichlet(np.full(chunks, 5.0), P) if chunks > 1 else np.ones((P, 1))
    share[-1] = 1.0
    some = [rng.exponential(1.0, n) * (rng.random(n) < 0.9) for n in (P, P, P, stages + 3, stages + 3)]
    return ChainTimes(*some, latency * rng.exponential(1.0, stages + 3), share)


def usable_caps(caps, micro_batches):
    """Caps that a strict order can use: what is in flight at a stage is so at every stage before it."""
    return list(accumulate((min(cap, micro_batches) for cap in caps), min))


def one_f_one_b(cap, micro_batches):
    """Order of one stage: as many forwards as its cap, then B and F in turn, then the remaining backwards."""
    order = [("F", m, 0) for m in range(cap)]
    for m in range(micro_batches):
        order.append(("B", m, 0))
        if cap + m < micro_batches:
            order.append(("F", cap + m, 0))
    return order


def interleaved(stages, micro_batches, chunks):
    """Orders of interleaved 1F1B, Megatron's: micro-batches in groups of P, chunk by chunk."""

    def operation(kind, k):
        group, i = divmod(k, stages * chunks)
        chunk, within = divmod(i, stages)
        return kind, group * stages + within, chunk if kind == "F" else chunks - 1 - chunk

    total, orders = micro_batches * chunks, []
    for stage in range(stages):
        warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)
        order = [operation("F", k) for k in range(warm_up)]
        for k in range(total):
            order += [operation("F", warm_up + k)] if warm_up + k < total else []
            order.append(operation("B", k))
        orders.append(order)
    return orders


def last_end(orders, forward, backward, there, back, *, half):
    """Makespan of plain stages by an event heap: each runs its F and B in the given order, early as it can.

    A link serves transfers first come, first served: with full duplex one queue per direction, with half
    duplex one queue for both.

    Args:
        orders: (P,) lists of operations, P >= 2.
        forward: Times of the stages (P,); likewise backward.
        there: Times of the links between them (P-1,); back of the same links.
    """
    P = len(orders)
    seconds, links = {"F": forward, "B": backward}, {"F": there, "B": back}
    arrived, queues, serving = {("F", 0, m) for _, m, _ in orders[0]}, defaultdict(deque), set()
    done, busy, heap, number, end = [0] * P, [False] * P, [], count(), 0.0

    def try_stage(stage, now):
        if busy[stage] or done[stage] == len(orders[stage]):
            return
        kind, m, _ = orders[stage][done[stage]]
        if (kind, stage, m) in arrived:
            busy[stage], done[stage] = True, done[stage] + 1
            heapq.heappush(heap, (now + seconds[kind][stage], next(number), kind, stage, m, None))

    def try_link(link, now):
        if link not in serving and queues[link]:
            kind, stage, m = queues[link].popleft()
            serving.add(link)
            heapq.heappush(heap, (now + links[kind][link[0]], next(number), kind, stage, m, link))

    try_stage(0, 0.0)
    while heap:
        end, _, kind, stage, m, link = heapq.heappop(heap)
        if link is not None:
            arrived.add((kind, stage, m))
            serving.discard(link)
            try_link(link, end)
        else:
            busy[stage] = False
            target = stage + (1 if kind == "F" else -1)
            if target == P:
                arrived.add(("B", stage, m))
            elif target >= 0:
                link = (min(stage, target), None if half else kind)
                queues[link].append((kind, target, m))
                try_link(link, end)
        try_stage(stage, end)
    assert done == [len(order) for order in orders], "the orders wait for each other"
    return end


def longest_path(times, orders, micro_batches, chunks):
    """Makespan with full duplex by relaxing all start times until nothing moves; ``orders`` are lists.

    Every operation and transfer waits for its input, for the one before it on its stage, and for the one
    before it on its link and direction. Links carry their traffic in the order of their sender's operations.
    """
    S = len(orders) - 1
    last = S * chunks
    length, waits_for = {}, {}

    def node(key, seconds, *before):
        length[key] = seconds
        waits_for[key] = [b for b in before if b is not None]

    for stage, order in enumerate(orders):
        previous = None
        sent = {}
        for kind, m, c in order:
            place = last if stage == S else c * S + stage
            key = ("op", stage, kind, m, c)
            if kind == "F":
                node(key, times.forward[stage] * times.chunk_share[stage, c], previous, ("inF", place, m))
                if place < last:
                    between = S if place == last - 1 else S + 1 if stage == S - 1 else stage + 1
                    link = ("linkF", between, place, m)
                    node(link, times.link_forward[between], key, sent.get(("F", between)))
                    sent["F", between] = link
                    if between == S:  # the CU relays
                        up = ("up", m)
                        node(("at CU", m), times.latency[S], link)
                        before = ("up", sent["up"]) if "up" in sent else None
                        node(up, times.link_forward[S + 2], ("at CU", m), before)
                        sent["up"] = m
                        link = up
                    node(("inF", place + 1, m), times.latency[S + 2 if between == S else between], link)
                else:
                    node(("inB", place, m), 0.0, key)
            elif kind == "B":
                node(key, times.backward[stage] * times.chunk_share[stage, c], previous, ("inB", place, m))
                if place == last:
                    down = ("down", m)
                    node(down, times.link_backward[S + 2], key, sent.get("down"))
                    sent["down"] = down
                    node(("back at CU", m), times.latency[S + 2], down)
                    link, between = ("linkB", S, place, m), S
                    node(link, times.link_backward[S], ("back at CU", m), sent.get(("B", S)))
                    sent["B", S] = link
                else:
                    between = 0 if place == 0 else S + 1 if stage == 0 else stage
                    link = ("linkB", between, place, m)
                    node(link, times.link_backward[between], key, sent.get(("B", between)))
                    sent["B", between] = link
                node(("inB", place - 1, m), times.latency[between], link)
            else:
                node(key, times.weight[stage] * times.chunk_share[stage, c], previous)
            previous = key
    for m in range(micro_batches):
        node(("linkF", 0, -1, m), times.link_forward[0], ("linkF", 0, -1, m - 1) if m else None)
        node(("inF", 0, m), times.latency[0], ("linkF", 0, -1, m))

    end = dict.fromkeys(length, 0.0)
    for _ in range(len(end)):
        moved = False
        for key, before in waits_for.items():
            value = max((end[b] for b in before), default=0.0) + length[key]
            moved |= value > end[key]
            end[key] = value
        if not moved:
            return max(end.values())
    raise AssertionError("the orders wait for each other")
