"""All splits of a number of blocks, by enumeration."""

import itertools


def splits(total, caps):
    """All splits of ``total`` blocks over places within their caps."""
    return [d for d in itertools.product(*(range(c + 1) for c in caps)) if sum(d) == total]


def positive_splits(total, parts):
    """All ordered sums of so many positive parts."""
    for cuts in itertools.combinations(range(1, total), parts - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *cuts, total)))
