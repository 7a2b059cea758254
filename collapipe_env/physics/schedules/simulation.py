"""The universal recurrence on a cluster's chain: times of all operations, compiled ([R], [X]).

Given each stage's list of operations, an operation starts when its predecessor on the stage has ended and its
input has arrived; links serve transfers first come, first served (`algorithms.md` section 5.1). The chain is

    CU -> stage 0 -> stage 1 -> ... -> stage S-1 -> CU -> base station (server),

and back. The CU only relays: it is not a stage. Device-to-device hops have a queue for each direction, or one
for both with half duplex; uplink and downlink have bands of their own. Resources are numbered

    0 .. S        compute of stages 0 .. S-1 and of the server (S);
    S + 1 + l     link l forward: 0 CU -> stage 0, l stage l-1 -> l, S stage S-1 -> CU,
                  S + 1 the last stage -> the first one (between chunks), S + 2 the uplink;
    2 S + 4 + l   the same links backward.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.schedules.orders import BACKWARD, FORWARD, WEIGHT


class ChainTimes(NamedTuple):
    """Seconds of one micro-batch on a chain of ``S`` device stages and the server.

    Attributes:
        forward: Stages and server (S+1,).
        backward: The same, without the weight gradient where that is split off (S+1,).
        weight: Weight gradients (S+1,), read only where they are split off.
        link_forward: Links 0 .. S+2 as numbered above (S+3,).
        link_backward: The same links for gradients (S+3,).
        latency: Latency of the links, both ways (S+3,): a message arrives that long after its transfer, and
            the link is free meanwhile.
        chunk_share: Share of a stage's work in each of its chunks (S+1, v); 1 for the server.
    """

    forward: FloatArray
    backward: FloatArray
    weight: FloatArray
    link_forward: FloatArray
    link_backward: FloatArray
    latency: FloatArray
    chunk_share: FloatArray


@compiled
def simulate_chain(
    times: ChainTimes,
    orders: IntArray,
    counts: IntArray,
    limits: IntArray,
    micro_batches: int,
    chunks: int,
    fill_gaps: bool,
    half_duplex: bool,
    events: FloatArray,
) -> float:
    """Run every stage's operations as early as possible.

    Args:
        orders: (S+1, n, 3) operations: kind, micro-batch, chunk.
        counts: (S+1,) operations of each stage.
        limits: (S+1,) stored micro-batches at which a weight gradient runs before the next forward; read only
            with ``fill_gaps``.
        micro_batches: ``M``.
        chunks: ``v``.
        fill_gaps: Run weight gradients, which are not in the orders, where a stage would wait.
        half_duplex: One queue for both directions of a device-to-device hop.
        events: Written up to its length, (n, 6): resource, kind, micro-batch, chunk, start and end; of length
            0 if events are not needed.

    Returns:
        Seconds until the last operation or transfer ends; infinite if the orders wait for each other.
    """
    S = len(counts) - 1
    links = S + 3
    resources = S + 1 + 2 * links
    positions = S * chunks  # the server's place in the chain
    arrived_f = np.full((positions + 1, micro_batches), np.inf)
    arrived_b = np.full((positions + 1, micro_batches), np.inf)
    ends = np.full(resources, np.inf)
    item = np.zeros((S + 1, 3), dtype=np.int64)  # kind, micro-batch, chain position
    # Messages of each link: micro-batch and chain position, in the order in which it serves them.
    queue = np.zeros((2 * links, micro_batches * chunks, 2), dtype=np.int64)
    queued_at = np.zeros((2 * links, micro_batches * chunks))
    head = np.zeros(2 * links, dtype=np.int64)
    tail = np.zeros(2 * links, dtype=np.int64)
    arriving = np.zeros((2 * links, micro_batches * chunks))
    arrived, left = np.zeros(2 * links, dtype=np.int64), np.zeros(2 * links, dtype=np.int64)
    done = np.zeros(S + 1, dtype=np.int64)
    stored = np.zeros(S + 1, dtype=np.int64)
    ready_w = np.zeros(S + 1, dtype=np.int64)
    done_w = np.zeros(S + 1, dtype=np.int64)
    recorded = 0
    makespan = 0.0

    for m in range(micro_batches):
        queue[0, m, 0] = m
    tail[0] = micro_batches
    now = 0.0
    while True:
        # Start whatever can start. Links first: their order is fixed by the queues.
        for link in range(2 * links):
            other = link + links if link < links else link - links
            place = link % links
            resource = S + 1 + link
            shared = half_duplex and place <= S + 1
            if ends[resource] < np.inf or head[link] == tail[link]:
                continue
            if shared:
                if ends[S + 1 + other] < np.inf:
                    continue
                if head[other] < tail[other] and (
                    queued_at[other, head[other]] < queued_at[link, head[link]]
                ):
                    continue
            m, position = queue[link, head[link], 0], queue[link, head[link], 1]
            head[link] += 1
            kind = FORWARD if link < links else BACKWARD
            ends[resource] = now + (times.link_forward[place] if link < links else times.link_backward[place])
            if recorded < len(events):
                events[recorded, 0], events[recorded, 1], events[recorded, 2] = resource, kind, m
                events[recorded, 3] = min(position // max(S, 1), chunks - 1)
                events[recorded, 4], events[recorded, 5] = now, ends[resource]
                recorded += 1
        for p in range(S + 1):
            if ends[p] < np.inf:
                continue
            kind, m, chunk = -1, 0, 0
            if done[p] < counts[p]:
                kind, m, chunk = orders[p, done[p], 0], orders[p, done[p], 1], orders[p, done[p], 2]
                position = positions if p == S else chunk * S + p
                if kind == FORWARD:
                    there = arrived_f[position, m] <= now
                    if fill_gaps and stored[p] >= limits[p]:
                        there = False
                elif kind == BACKWARD:
                    there = arrived_b[position, m] <= now
                else:
                    there = True  # its backward comes before it on the same list
                if there:
                    done[p] += 1
                else:
                    kind = -1
            if kind == -1:
                if not fill_gaps or done_w[p] == ready_w[p]:
                    continue
                kind, m, chunk = WEIGHT, done_w[p], 0
                done_w[p] += 1
            share = times.chunk_share[p, chunk]
            if kind == FORWARD:
                length = times.forward[p] * share
                stored[p] += 1
            elif kind == BACKWARD:
                length = times.backward[p] * share
            else:
                length = times.weight[p] * share
            ends[p] = now + length
            item[p, 0], item[p, 1] = kind, m
            item[p, 2] = positions if p == S else chunk * S + p
            if recorded < len(events):
                events[recorded, 0], events[recorded, 1], events[recorded, 2] = p, kind, m
                events[recorded, 3], events[recorded, 4], events[recorded, 5] = chunk, now, ends[p]
                recorded += 1

        now = np.inf
        for r in range(resources):
            now = min(now, ends[r])
        for link in range(2 * links):
            if arrived[link] < left[link]:
                now = min(now, arriving[link, arrived[link]])
        if now == np.inf:
            break
        makespan = max(makespan, now)
        for r in range(resources):
            if ends[r] > now:
                continue
            ends[r] = np.inf
            if r > S:
                link = r - S - 1
                arriving[link, left[link]] = now + times.latency[link % links]
                left[link] += 1
                continue
            kind, m, position = item[r, 0], item[r, 1], item[r, 2]
            if kind == WEIGHT:
                stored[r] -= 1
                continue
            if kind == BACKWARD:
                ready_w[r] += 1
                if position == positions:
                    link = links + S + 2  # downlink
                elif position == 0:
                    link = links
                elif position % S == 0:
                    link = links + S + 1
                else:
                    link = links + position % S
                target = position - 1
            elif position == positions:
                arrived_b[positions, m] = now  # the server turns round
                continue
            else:
                if position == positions - 1:
                    link = S
                elif position % S == S - 1:
                    link = S + 1
                else:
                    link = position % S + 1
                target = position + 1
            queue[link, tail[link], 0], queue[link, tail[link], 1] = m, target
            queued_at[link, tail[link]] = now
            tail[link] += 1
        for link in range(2 * links):
            while arrived[link] < left[link] and arriving[link, arrived[link]] <= now:
                m, position = queue[link, arrived[link], 0], queue[link, arrived[link], 1]
                arrived[link] += 1
                if link == S or link == links + S + 2:  # the CU relays to the server and from it
                    relay = S + 2 if link == S else links + S
                    queue[relay, tail[relay], 0], queue[relay, tail[relay], 1] = m, position
                    queued_at[relay, tail[relay]] = now
                    tail[relay] += 1
                elif link < links:
                    arrived_f[position, m] = now
                elif position >= 0:
                    arrived_b[position, m] = now
    for p in range(S + 1):
        if done[p] < counts[p]:
            return np.inf
    return makespan
