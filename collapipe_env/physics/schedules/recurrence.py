"""The universal recurrence without an event queue: only the makespan of a chain, in a fraction of the time.

Where every link serves each direction separately, micro-batches never overtake each other under GPipe, 1F1B
and ZB-H1, and the order of all operations is known: the recurrence (``algorithms.md`` 5.1) can be evaluated
wave by wave. It adds up the same terms in the same order as :func:`~.simulation.simulate_chain`, which knows
every start and end, half duplex and chunks ([X]).
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.allocation import GPIPE, ZERO_BUBBLE
from collapipe_env.physics.schedules.orders import NO, effective_caps, warm_ups_and_lags
from collapipe_env.physics.schedules.simulation import ChainTimes

CERTAIN = 1.0 + 1e-12
"""Factor by which a bound has to exceed a makespan, because it adds up in another order."""


@compiled
def ordered_makespan(
    times: ChainTimes,
    warm_ups: IntArray,
    lags: IntArray,
    limits: IntArray,
    fill_gaps: bool,
    M: int,
    best: float,
    arrived: FloatArray,
    marks: FloatArray,
    counts: IntArray,
) -> float:
    """Makespan of a chain with full-duplex links whose stages alternate backwards and forwards.

    Args:
        warm_ups: Forwards before the first backward of stages and server (S+1,), not increasing.
        lags: Weight gradients kept waiting (S+1,); -1 where they are part of the backward pass. Not read
            with ``fill_gaps``.
        limits: Stored micro-batches at which a weight gradient runs before the next forward (S+1,); read only
            with ``fill_gaps``.
        fill_gaps: Run weight gradients where a stage would wait.
        best: Makespan above which none is wanted: then the answer may be infinite.
        arrived: Workspace (2, S+1, M).
        marks: Workspace (4, S+3).
        counts: Workspace (2, S+1).
    """
    S = len(warm_ups) - 1
    arrived_f, arrived_b = arrived[0], arrived[1]
    link_f, link_b, free, tail = marks[0], marks[1], marks[2], marks[3]  # links: when each is free again
    forwards, weights = counts[0], counts[1]
    for p in range(S + 3):
        link_f[p] = link_b[p] = 0.0
    end = least = 0.0
    for p in range(S + 1):
        free[p], forwards[p], weights[p] = 0.0, 0, 0
        # What follows a stage's last backward at least.
        least += times.link_backward[p] + times.latency[p]
        tail[p] = least
        least += times.backward[p]
    for m in range(M):
        link_f[0] += times.link_forward[0]
        arrived_f[0, m] = link_f[0] + times.latency[0]
    for m in range(M):
        # Everything before the backward of micro-batch m, first stage first ...
        for p in range(S + 1):
            for j in range(forwards[p], min(m + warm_ups[p], M)):
                now = free[p]
                if fill_gaps:
                    while weights[p] < m and (now < arrived_f[p, j] or j - weights[p] >= limits[p]):
                        now += times.weight[p]
                        weights[p] += 1
                now = max(now, arrived_f[p, j]) + times.forward[p]
                free[p] = now
                forwards[p] += 1
                if p == S:
                    arrived_b[S, j] = now
                    continue
                link_f[p + 1] = max(link_f[p + 1], now) + times.link_forward[p + 1]
                arrived_f[p + 1, j] = link_f[p + 1] + times.latency[p + 1]
                if p == S - 1:  # by way of the CU, which relays to the server
                    link_f[S + 2] = max(link_f[S + 2], arrived_f[S, j]) + times.link_forward[S + 2]
                    arrived_f[S, j] = link_f[S + 2] + times.latency[S + 2]
        # ... and that backward, last stage first.
        for p in range(S, -1, -1):
            now = free[p]
            if fill_gaps:
                while weights[p] < m and now < arrived_b[p, m]:
                    now += times.weight[p]
                    weights[p] += 1
            now = max(now, arrived_b[p, m]) + times.backward[p]
            sent = now
            if not fill_gaps and 0 <= lags[p] <= m:
                now += times.weight[p]
                weights[p] += 1
            free[p] = now
            left = (M - weights[p]) * times.weight[p] if fill_gaps or lags[p] >= 0 else 0.0
            now += (M - forwards[p]) * times.forward[p] + (M - 1 - m) * times.backward[p]
            if now + (max(left, tail[p]) if m < M - 1 else left) > best * CERTAIN:
                return np.inf
            if p == S:
                link_b[S + 2] = max(link_b[S + 2], sent) + times.link_backward[S + 2]
                sent = link_b[S + 2] + times.latency[S + 2]
            link_b[p] = max(link_b[p], sent) + times.link_backward[p]
            if p > 0:
                arrived_b[p - 1, m] = link_b[p] + times.latency[p]
    for p in range(S + 1):
        if fill_gaps or lags[p] >= 0:
            for _ in range(weights[p], M):
                free[p] += times.weight[p]
        end = max(end, float(free[p]))
    return max(end, float(link_b[0] + times.latency[0]))


@compiled
def ordered_step(times: ChainTimes, schedule: int, caps: IntArray, with_weights: bool, M: int) -> float:
    """Length of a local step on full-duplex links; under ``zb-h1`` with the best of the orders tried.

    Args:
        schedule: Place in ``SCHEDULES``; all but ``interleaved``.
        caps: Caps of the stages (S,).
        with_weights: Whether weight gradients that are split off take time.
    """
    S = len(caps)
    arrived, marks = np.empty((2, S + 1, M)), np.empty((4, S + 3))
    counts, lags, limits = np.empty((2, S + 1), dtype=np.int64), np.full(S + 1, -1), np.full(S + 1, M)
    warm_ups = np.ones(S + 1, dtype=np.int64)
    step = np.inf
    if schedule != ZERO_BUBBLE:
        if schedule == GPIPE:
            warm_ups[:] = M
        else:
            warm_ups[:S] = effective_caps(caps, M)
        return ordered_makespan(times, warm_ups, lags, limits, NO, M, step, arrived, marks, counts)
    limits[:S] = np.minimum(caps, M)
    # The longer one first: it is mostly the best, and the others are then soon given up.
    for longer in (True, False):
        before = warm_ups.copy()
        warm_ups[:S], waiting = warm_ups_and_lags(caps, M, longer)
        if not longer and (before == warm_ups).all():
            break
        if with_weights:
            lags[:S], lags[S] = waiting, S
        for fill_gaps in (True, False):
            if fill_gaps and not with_weights:
                continue
            length = ordered_makespan(
                times, warm_ups, lags, limits, fill_gaps, M, step, arrived, marks, counts
            )
            step = min(step, length)
    return step
