"""Participation and local steps as decisions, and the delay of the round that follows from them ([X]).

A cluster that sits out takes no time and no energy, sends nothing and learns nothing; the others' round is as
if it were not there, except for the base station's broadcast, which it hears. A round in which nobody takes
part lasts ``T_ref``, and a cluster that cannot hold the encoder counts ``T_ref``.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, BoolArray, concatenate, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.delay import round_delay


def players(allocation: Allocation) -> Array | None:
    """Clusters that take part (..., N), bool; ``None`` where a plan leaves this open, and all do."""
    return None if allocation.participates is None else allocation.participates != 0


def takes_part(allocation: Allocation) -> BoolArray:
    """Whether clusters take part under a plan (..., N), as a NumPy array."""
    plays = players(allocation)
    return np.ones(np.shape(allocation.micro_batches), dtype=np.bool_) if plays is None else np.asarray(plays)


def whole_steps(allocation: Allocation, own: int) -> Array | None:
    """Local steps ``H_n`` of the clusters (..., N), int; ``None`` where a plan leaves all to the workload.

    Args:
        own: ``H`` of the workload.
    """
    if allocation.local_steps is None:
        return None
    return namespace(allocation.local_steps).where(allocation.local_steps < 0, own, allocation.local_steps)


def steps_or(allocation: Allocation, own: int) -> Array | int:
    """Local steps ``H_n`` of the clusters (..., N), int, or ``H`` where a plan leaves all to the workload.

    Args:
        own: ``H`` of the workload.
    """
    steps = whole_steps(allocation, own)
    return own if steps is None else steps


def real_steps(allocation: Allocation, own: int, dtype: object) -> Array | int:
    """Local steps ``H_n`` of the clusters as real numbers (..., N), or ``H`` where a plan names none.

    Args:
        own: ``H`` of the workload.
        dtype: Type of the numbers.
    """
    steps = steps_or(allocation, own)
    return steps if isinstance(steps, int) else namespace(steps).astype(steps, dtype)


def waiting_steps(steps: Array, local_step: Array) -> Array:
    """Mean time of a local step that waits for the slowest cluster still at work (..., N) [s].

    With a common head nobody begins the next local step before all clusters that take part in this one are
    done. So cluster n's local steps take ``sum_{h <= H_n} max_{m: H_m >= h} T_step,m`` together. A round in
    which all take one local step has nothing to wait for.

    Args:
        steps: ``H_n`` (..., N), real numbers >= 0; 0 for clusters that sit out.
        local_step: ``T_step`` (..., N) [s].
    """
    xp = namespace(local_step)
    level = xp.sort(steps, axis=-1)
    below = concatenate((xp.zeros_like(level[..., :1]), level[..., :-1]))
    still = steps[..., None, :] >= level[..., :, None]
    longest = xp.max(local_step[..., None, :] * xp.astype(still, local_step.dtype), axis=-1)
    spent = (level - below) * longest
    counted = level[..., None, :] <= steps[..., :, None]
    together = xp.sum(spent[..., None, :] * xp.astype(counted, spent.dtype), axis=-1)
    taken = xp.where(steps > 0.0, steps, xp.ones_like(steps))
    waits = xp.max(steps, axis=-1, keepdims=True) > 1.0
    return xp.where(waits & (steps > 0.0), together / taken, local_step)


def counted_delay(allocation: Allocation, able: Array | None, idle_round_s: float | None) -> Array | None:
    """``T_n`` of clusters that sit out (..., N) [s]: 0, or ``T_ref`` for one that cannot hold the encoder.

    Args:
        able: Clusters that can hold the encoder (..., N), bool; ``None`` if all can.
        idle_round_s: ``T_ref`` [s]; ``None`` where all clusters have to take part.

    Returns:
        ``None`` where all clusters take part.
    """
    plays = players(allocation)
    if plays is None:
        return None
    xp = namespace(allocation.bandwidth)
    nothing = xp.zeros_like(allocation.bandwidth)
    if able is None or idle_round_s is None:
        return nothing
    return xp.where(able, nothing, nothing + idle_round_s)


def delay_of_round(
    cluster_delay: Array, broadcast: Array, plays: Array | None, idle_round_s: float | None
) -> Array:
    """Delay of a round, ``T = max_n T_n + T_bc``, or ``T_ref`` if nobody takes part (...) [s].

    Args:
        cluster_delay: ``T_n`` (..., N) [s]; for clusters that sit out, that of :func:`counted_delay`.
        broadcast: ``T_bc`` (...) [s].
        plays: Clusters that take part (..., N), bool; ``None`` for all.
        idle_round_s: ``T_ref`` [s]; read only where somebody sits out.
    """
    xp = namespace(cluster_delay)
    delay = round_delay(xp.max(cluster_delay, axis=-1), broadcast)
    if plays is None or idle_round_s is None:
        return delay
    return xp.where(xp.any(plays, axis=-1), delay, xp.zeros_like(delay) + idle_round_s)


def somebody(plays: Array, scores: Array, able: Array) -> Array:
    """Clusters that take part; if there are none, the able cluster with the highest score.

    This repairs plans in which nobody takes part, and plans that name clusters unable to.

    Args:
        plays: Clusters that are to take part (..., N), bool.
        scores: Score of each cluster (..., N), real numbers; the first of equal ones counts.
        able: Clusters that can hold the encoder (..., N), bool.

    Returns:
        Clusters that take part (..., N), bool; none where none is able.
    """
    xp = namespace(scores)
    wanted = plays & able
    lowest = xp.where(able, scores, xp.zeros_like(scores) - xp.inf)
    best = able & (lowest == xp.max(lowest, axis=-1, keepdims=True))
    best = best & (xp.cumulative_sum(xp.astype(best, xp.int64), axis=-1) == 1)
    return wanted | (best & ~xp.any(wanted, axis=-1, keepdims=True))
