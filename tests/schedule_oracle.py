"""Pipeline schedules in plain Python, to compare with: orders of operations, and who runs what when.

A stage runs its operations one after the other in the given order; an operation starts when its predecessor
on the stage has ended and its input has arrived. A link serves transfers first come, first served: with full
duplex one queue per direction, with half duplex one queue for both. Operations are tuples of a kind (F
forward, B backward or input gradient, W weight gradient), a micro-batch and a chunk; stages count from 0.
"""

import heapq
from collections import defaultdict, deque
from itertools import accumulate, count
from typing import NamedTuple


class StageTimes(NamedTuple):
    """Times per micro-batch [s]: of P stages, and of the links between them.

    The link behind the last stage leads to the first; only interleaving uses it, and it may be left out.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    weight: tuple[float, ...] | None = None
    link_forward: tuple[float, ...] = ()
    link_backward: tuple[float, ...] = ()


class Event(NamedTuple):
    """One operation on a stage, or its output's transfer over the link behind a stage."""

    stage: int
    is_link: bool
    kind: str
    micro_batch: int
    chunk: int
    start_s: float
    end_s: float


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


def split_backward(cap, lag, micro_batches):
    """Order of one stage with B the input gradient only: after each B comes the W of so many before."""
    order = []
    for kind, m, _ in one_f_one_b(cap, micro_batches):
        order.append((kind, m, 0))
        if kind == "B" and m >= lag:
            order.append(("W", m - lag, 0))
    return order + [("W", m, 0) for m in range(max(micro_batches - lag, 0), micro_batches)]


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


def run_orders(orders, times, *, chunks=1, half=False):
    """Run each stage's operations in the given order as early as possible; events in order of their ends.

    Args:
        orders: (P,) lists of operations.
        times: Stages and links; a chunk takes its part of a stage's time, and the whole of a link's.
        chunks: Chunks of each stage.
        half: Whether both directions of a link share one queue.
    """
    P = len(orders)
    seconds = {"F": times.forward, "B": times.backward, "W": times.weight}
    links = {"F": (*times.link_forward, *[0.0] * P), "B": (*times.link_backward, *[0.0] * P)}
    arrived, queues, serving = {("F", 0, m) for _, m, _ in orders[0]}, defaultdict(deque), set()
    done, busy, events, heap, number = [0] * P, [False] * P, [], [], count()

    def try_stage(stage, now):
        if busy[stage] or done[stage] == len(orders[stage]):
            return
        kind, m, chunk = orders[stage][done[stage]]
        if (kind, chunk * P + stage, m) in arrived:
            busy[stage], done[stage] = True, done[stage] + 1
            end = now + seconds[kind][stage] / chunks
            events.append(Event(stage, False, kind, m, chunk, now, end))
            heapq.heappush(heap, (end, next(number), events[-1], None))

    def try_link(queue, now):
        if queue in serving or not queues[queue]:
            return
        event, link, target = queues[queue].popleft()
        serving.add(queue)
        end = now + links[event.kind][link]
        events.append(event._replace(stage=link, is_link=True, start_s=now, end_s=end))
        heapq.heappush(heap, (end, next(number), events[-1], (queue, target)))

    for stage in range(P):
        try_stage(stage, 0.0)
    while heap:
        now, _, event, transfer = heapq.heappop(heap)
        if transfer is not None:
            queue, target = transfer
            arrived.add((event.kind, target, event.micro_batch))
            serving.discard(queue)
            try_link(queue, now)
            try_stage(target % P, now)
            continue
        position = event.chunk * P + event.stage
        busy[event.stage] = False
        last = event.kind == "F" and position == P * chunks - 1
        if last or event.kind == "B":
            arrived.add(("B" if last else "W", position, event.micro_batch))
        if not last and event.kind != "W" and (event.kind, position) != ("B", 0):
            target, link = (
                (position + 1, event.stage) if event.kind == "F" else (position - 1, event.stage - 1)
            )
            if P == 1:
                arrived.add((event.kind, target, event.micro_batch))
            else:
                queue = link % P if half else (link % P, event.kind)
                queues[queue].append((event, link % P, target))
                try_link(queue, now)
        try_stage(event.stage, now)
    assert done == [len(order) for order in orders], "the orders wait for each other"
    return sorted(events, key=lambda event: event.end_s)
