"""Chains for the tests of the compiled simulation, and a plain longest-path solution to compare with."""

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
