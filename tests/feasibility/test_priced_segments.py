"""The cheapest segments of a chain against trying all of them."""

import itertools

import numpy as np

from collapipe_env.feasibility.priced_segments import cheapest_segments


def chain(blocks):
    """Nodes of a plan's chain, from the CU back to the CU."""
    return [0, *(k + 1 for k, held in enumerate(blocks) if held), 0]


def price(blocks, hop, block):
    return sum(hop[i, j] for i, j in itertools.pairwise(chain(blocks))) + np.dot(block, blocks)


def test_no_split_is_cheaper():
    rng = np.random.default_rng(0)
    for _ in range(40):
        K, L, B = int(rng.integers(1, 5)), int(rng.integers(1, 7)), 3
        hop, block = rng.random((B, K + 1, K + 1)), rng.random((B, K)) * rng.choice([0.1, 1.0])
        cap = rng.integers(0, L + 1, (B, K))
        cap[:, int(rng.integers(K))] = L
        found = cheapest_segments(hop, block, cap, L)
        assert (found.sum(axis=1) == L).all()
        assert (found <= cap).all()
        for row in range(B):
            splits = [s for s in itertools.product(*(range(c + 1) for c in cap[row])) if sum(s) == L]
            best = min(price(split, hop[row], block[row]) for split in splits)
            assert price(found[row], hop[row], block[row]) <= best * (1.0 + 1e-12)
