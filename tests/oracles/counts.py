"""All ways to give blocks to devices, one by one: what the graph net's distribution is compared with."""

from functools import lru_cache

import numpy as np


@lru_cache
def _listed(cap, blocks):
    if not cap:
        return [()] if blocks == 0 else []
    own = range(min(cap[0], blocks) + 1)
    return [(count, *rest) for count in own for rest in _listed(cap[1:], blocks - count)]


def every_count(cap, blocks):
    """Counts of blocks (P, K) that sum to ``blocks``, each device's at most its ``cap`` (K,)."""
    return np.array(_listed(tuple(map(int, cap)), int(blocks)))


def scores(logits, counts):
    """Sums of the logits (K, L+1) of counts (P, K)."""
    return logits[np.arange(counts.shape[1]), counts].sum(axis=1)


def log_chances(logits, counts):
    """Logarithms of the probabilities of counts (P, K), which are all that are possible."""
    found = scores(logits, counts)
    return found - found.max() - np.log(np.exp(found - found.max()).sum())
