"""A distribution of segments: block counts of a cluster's devices, given that they sum to ``L``.

Each device has logits of its count; the counts are independent except for their sum. A dynamic programme over
devices and remaining blocks gives exact samples and the most likely counts.
"""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner

IMPOSSIBLE = -1e30


@compiled_inner
def likeliest(logits: FloatArray, cap: IntArray, blocks: int, counts: IntArray) -> None:
    """Most likely counts of one cluster.

    Args:
        logits: Logits of each device's count (K, L+1).
        cap: Most blocks of each device (K,), with a sum of at least ``blocks``.
        blocks: ``L``.
        counts: Receives the counts (K,).
    """
    devices = len(cap)
    best = np.empty((devices + 1, blocks + 1))
    choice = np.zeros((devices, blocks + 1), dtype=np.int64)
    for left in range(blocks + 1):
        best[devices, left] = 0.0 if left == 0 else IMPOSSIBLE
    for k in range(devices - 1, -1, -1):
        for left in range(blocks + 1):
            top, taken = IMPOSSIBLE, 0
            for count in range(min(cap[k], left) + 1):
                value = logits[k, count] + best[k + 1, left - count]
                if value > top:
                    top, taken = value, count
            best[k, left], choice[k, left] = top, taken
    left = blocks
    for k in range(devices):
        counts[k] = choice[k, left]
        left -= counts[k]


@compiled_inner
def _remaining(logits: FloatArray, cap: IntArray, blocks: int, weight: FloatArray, rest: FloatArray) -> None:
    """Write weights (K, L+1), and their products summed over completions, scaled (K+1, L+1)."""
    devices = len(cap)
    # A product of the least weights must not underflow where caps force every device to take them.
    least = -min(40.0, 640.0 / devices)
    for k in range(devices):
        top = IMPOSSIBLE
        for count in range(min(cap[k], blocks) + 1):
            top = max(top, logits[k, count])
        for count in range(blocks + 1):
            weight[k, count] = math.exp(max(logits[k, count] - top, least)) if count <= cap[k] else 0.0
    for left in range(blocks + 1):
        rest[devices, left] = 1.0 if left == 0 else 0.0
    for k in range(devices - 1, -1, -1):
        largest = 0.0
        for left in range(blocks + 1):
            total = 0.0
            for count in range(min(cap[k], left) + 1):
                total += weight[k, count] * rest[k + 1, left - count]
            rest[k, left] = total
            largest = max(largest, total)
        for left in range(blocks + 1):
            rest[k, left] /= largest


@compiled
def sample_counts(
    logits: FloatArray,
    cap: IntArray,
    blocks: int,
    draws: FloatArray,
    most_likely: IntArray,
    samples: IntArray,
    log_chance: FloatArray,
) -> None:
    """Most likely counts and exact samples of many clusters.

    Args:
        logits: Logits (C, K, L+1).
        cap: Most blocks of each device (C, K).
        blocks: ``L``.
        draws: Uniform numbers (C, S, K) in [0, 1).
        most_likely: Receives the most likely counts (C, K).
        samples: Receives the samples (C, S, K).
        log_chance: Receives the logarithms of their probabilities (C, S).
    """
    clusters, number, devices = draws.shape
    weight, rest = np.empty((devices, blocks + 1)), np.empty((devices + 1, blocks + 1))
    for c in range(clusters):
        likeliest(logits[c], cap[c], blocks, most_likely[c])
        if number == 0:
            continue
        _remaining(logits[c], cap[c], blocks, weight, rest)
        for s in range(number):
            left = blocks
            log_chance[c, s] = 0.0
            for k in range(devices):
                total = 0.0
                for count in range(min(cap[c, k], left) + 1):
                    total += weight[k, count] * rest[k + 1, left - count]
                threshold, taken = draws[c, s, k] * total, 0
                for count in range(min(cap[c, k], left) + 1):
                    part = weight[k, count] * rest[k + 1, left - count]
                    if part > 0.0:
                        taken = count
                    threshold -= part
                    if threshold < 0.0:
                        break
                samples[c, s, k] = taken
                log_chance[c, s] += math.log(weight[k, taken] * rest[k + 1, left - taken] / total)
                left -= taken
