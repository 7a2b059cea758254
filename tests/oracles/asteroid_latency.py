"""Asteroid's latency written out, and its best plans by enumeration of all groups and segments."""

import itertools

import numpy as np

from oracles.splits import positive_splits


def latency(steps, endings, micro_batches, delays):
    """The tie-free form, written out."""
    return max(
        sum(delays[: s + 1]) + sum(steps[:s]) + micro_batches * steps[s] + endings[s]
        for s in range(len(steps))
    )


def busy(dealt, sample_s, launch_s):
    """Time of each device for its samples; nothing is launched for none."""
    return np.array(dealt) * sample_s + np.where(np.array(dealt) > 0, launch_s, 0.0)


def hop_of(here, there, links):
    """Slowest pair of two groups of nodes, and the messages of the busiest sender each way."""
    return (
        max(links.hop_s[a, b] for a in here for b in there)
        + max(sum(links.forward_s[a, b] for b in there) for a in here)
        + max(sum(links.backward_s[a, b] for a in here) for b in there)
    )


def best_latencies(blocks, samples, M, devices, links, tail_s, deal):
    """Least latency for every number of stages, over all runs of devices and all segments.

    Args:
        deal: Deals the samples of a micro-batch to a group; all 0 where they do not fit.
    """
    K, limit = len(devices.sample_s), devices.limit
    best = np.full(K, np.inf)
    for p in range(1, min(K, blocks) + 1):
        for runs, segments in itertools.product(positive_splits(K, p), positive_splits(blocks, p)):
            groups, steps, endings, first, before = [], [], [], 0, [0]
            for behind, (size, d) in zip(reversed(range(p)), zip(runs, segments, strict=True), strict=True):
                run = np.arange(first, first + size)
                first += size
                own = devices.sample_s[run], devices.launch_s[run]
                part = deal(samples, *own, limit[behind, d, run])
                if part.sum() == 0:
                    break
                group = run[part > 0]
                groups.append(group)
                steps += [hop_of(before, group + 1, links), d * max(busy(part, *own))]
                pairs = [links.ring_s[a, b] for a, b in itertools.permutations(group, 2)]
                ring = 2 * (1 - 1 / len(group)) * d * max(pairs, default=0.0)
                endings += [0.0, ring + d * max(devices.update_s[group])]
                before = [a + 1 for a in group]
            if len(groups) < p:
                continue
            steps += [hop_of(before, [0], links)]
            delays = [links.delay_s, 0.0] * p + [links.delay_s]
            ends = sum(steps) + sum(delays) + tail_s
            best[p - 1] = min(best[p - 1], max(latency(steps, [*endings, 0.0], M, delays), ends))
    return best
