"""Schedules of a pipeline in plain Python: orders of operations, and three ways to time them.

Orders are lists of operations for each stage: a kind (F forward, B backward, W weight gradient), a
micro-batch and a chunk.
"""

import heapq
from collections import defaultdict, deque
from graphlib import TopologicalSorter
from itertools import accumulate, count
from typing import NamedTuple


class Chain(NamedTuple):
    """Times of a micro-batch on ``S`` stages, the server as stage ``S``, and on the links between them.

    Link 0 leads from the CU to the first stage, link ``s`` to stage ``s``, link ``S`` back to the CU; then
    come the way from the last stage to the first, between chunks, and the CU's link to the server.
    """

    forward: list
    backward: list
    weight: list
    link_forward: list
    link_backward: list
    latency: list
    chunk_share: list


def gpipe(forward, backward, micro_batches):
    """Makespan of all forwards, a flush, all backwards on full-duplex links: the closed form of the paper."""
    again = micro_batches - 1
    return sum(forward) + again * max(forward) + sum(backward) + again * max(backward)


def served_in_turn(before, service, after, local_steps):
    """Ends of clusters that travel, queue up for one server, are served one at a time, and travel back."""
    clusters = len(before)
    events = [(before[n], n, "arrives") for n in range(clusters)]
    heapq.heapify(events)
    left, queue, busy, finished = [local_steps] * clusters, deque(), False, [0.0] * clusters
    while events:
        now, n, what = heapq.heappop(events)
        if what == "arrives":
            queue.append(n)
        else:
            busy = False
            left[n] -= 1
            if left[n]:
                heapq.heappush(events, (now + after[n] + before[n], n, "arrives"))
            else:
                finished[n] = now + after[n]
        # Everybody who arrives at this very moment queues up before the server chooses.
        if not busy and queue and not (events and events[0][0] == now and events[0][2] == "arrives"):
            first = queue.popleft()
            heapq.heappush(events, (now + service[first], first, "is served"))
            busy = True
    return finished


def stored_micro_batches(kind, caps, held, chunks, micro_batches, local_steps):
    """Micro-batches that each stage of a chain stores: the rule of `algorithms.md` section 5.2, in a list."""
    stored = []
    for s, blocks in enumerate(held):
        if blocks == 0:
            stored.append(0.0)
            continue
        least = min(cap for cap, b in zip(caps[: s + 1], held[: s + 1], strict=True) if b > 0)
        largest = max(len(range(c, blocks, chunks)) for c in range(chunks))
        stored.append(
            {
                "gpipe": micro_batches,
                "1f1b": min(least, micro_batches),
                "async": min(least, local_steps * micro_batches),
                "zb-h1": min(caps[s], micro_batches),
                "interleaved": min(least, micro_batches * chunks) * largest / blocks,
            }[kind]
        )
    return stored


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
    """Makespan of a :class:`Chain` with full duplex, as the longest path through its operations.

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
                node(key, times.forward[stage] * times.chunk_share[stage][c], previous, ("inF", place, m))
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
                node(key, times.backward[stage] * times.chunk_share[stage][c], previous, ("inB", place, m))
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
                node(key, times.weight[stage] * times.chunk_share[stage][c], previous)
            previous = key
    for m in range(micro_batches):
        node(("linkF", 0, -1, m), times.link_forward[0], ("linkF", 0, -1, m - 1) if m else None)
        node(("inF", 0, m), times.latency[0], ("linkF", 0, -1, m))

    end = {}
    for key in TopologicalSorter(waits_for).static_order():
        end[key] = max((end[before] for before in waits_for[key]), default=0.0) + length[key]
    return max(end.values())
