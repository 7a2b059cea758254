"""Arrivals of micro-batches in each local step: their number, and the choice of those that arrive."""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray, WordArray
from collapipe_env.ground.compiled import compiled, inlined
from collapipe_env.ground.numbers import number


@compiled
def arrivals(
    seeds: WordArray, rounds: WordArray, survival: FloatArray, micro_batches: IntArray, steps: int
) -> tuple[IntArray, WordArray]:
    """Count the arrivals: the inverse of the binomial distribution function at a uniform number.

    Args:
        seeds: The rows' seeds (E,).
        rounds: Rounds of the streams that were used before (E,).
        survival: Probability that a micro-batch survives (E, N).
        micro_batches: ``M`` (E, N).
        steps: Local steps ``H``.

    Returns:
        Micro-batches that arrive (E, N, H), and seeds for :func:`survivors` (E, N, H).
    """
    E, N = survival.shape
    arrived, pick = np.empty((E, N, steps), dtype=np.int64), np.empty((E, N, steps), dtype=np.uint64)
    for e in range(E):
        word = seeds[e] + rounds[e] * np.uint64(2 * N * steps)
        for n in range(N):
            p = survival[e, n]
            M = micro_batches[e, n]
            for h in range(steps):
                u = number(word)
                pick[e, n, h] = np.uint64(number(word + np.uint64(1)) * 4503599627370496.0) << np.uint64(11)
                word += np.uint64(2)
                # Counting the rarer outcome keeps the loop short and its first term away from zero.
                if p >= 0.5:
                    arrived[e, n, h] = M - _binomial(u, M, 1.0 - p)
                else:
                    arrived[e, n, h] = _binomial(1.0 - u, M, p)
    return arrived, pick


@inlined
def _binomial(u: float, trials: int, probability: float) -> int:
    """Return the smallest count whose distribution function reaches ``u``; the probability is at most 0.5."""
    odds = probability / (1.0 - probability)
    log_term = trials * math.log1p(-probability)
    count = 0
    if log_term > -700.0:
        term = math.exp(log_term)
        reached = term
        while reached < u and count < trials:
            term *= odds * (trials - count) / (count + 1)
            reached += term
            count += 1
        return count
    # The first terms underflow: there are a thousand micro-batches or more.
    reached = 0.0
    while True:
        reached += math.exp(log_term)
        if reached >= u or count == trials:
            return count
        log_term += math.log(odds * (trials - count) / (count + 1))
        count += 1


@compiled
def survivors(arrived: IntArray, micro_batches: IntArray, pick: WordArray, survived: BoolArray) -> None:
    """Choose the micro-batches that survive; every set of the given size is equally likely.

    Args:
        arrived: Number of micro-batches that survive (E, N, H).
        micro_batches: ``M`` (E, N).
        pick: Seeds of the choices (E, N, H).
        survived: (E, N, H, M_max), written; False beyond the first ``M``.
    """
    E, N, H, most = survived.shape
    for e in range(E):
        for n in range(N):
            M = micro_batches[e, n]
            for h in range(H):
                wanted = arrived[e, n, h]
                for i in range(most):
                    # Selection sampling: taken with probability (still wanted) / (still to come).
                    taken = False
                    if i < M and wanted > 0:
                        taken = number(pick[e, n, h] + np.uint64(i)) * (M - i) < wanted
                    survived[e, n, h, i] = taken
                    if taken:
                        wanted -= 1
