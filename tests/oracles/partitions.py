"""The best partitions of blocks over devices in index order, by enumeration."""

import itertools

from oracles.splits import splits


def elements(plan, block_s, hop_s):
    """Times of the stages and hops of a plan, in the order of the chain."""
    chain = [0, *(k + 1 for k, d in enumerate(plan) if d > 0), 0]
    hops = [hop_s[i, j] for i, j in itertools.pairwise(chain)]
    return hops + [d * t for d, t in zip(plan, block_s, strict=True) if d > 0]


def fastest_bottleneck(total, caps, block_s, hop_s):
    """Least slowest element, and the least sum among the plans that reach it."""
    scored = [elements(plan, block_s, hop_s) for plan in splits(total, caps)]
    slowest = min(max(e) for e in scored)
    return slowest, min(sum(e) for e in scored if max(e) <= slowest * (1 + 1e-12))


def client_cost(plan, block_s, client_s):
    """TITANIC's cost of a plan: time of the blocks, and a price of every client that holds some."""
    return sum(z * t + c for z, t, c in zip(plan, block_s, client_s, strict=True) if z > 0)
