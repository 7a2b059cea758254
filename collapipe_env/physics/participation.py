"""The delay of a round that follows from participation and local steps ([X]).

A cluster that sits out takes no time and no energy, sends nothing and learns nothing; the others' round is as
if it were not there, except for the base station's broadcast, which it hears. A round in which nobody takes
part lasts ``T_ref``, and a cluster that cannot hold the encoder counts ``T_ref``.
"""

from __future__ import annotations

from collapipe_env.ground.arrays import Array, concatenate, namespace


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


def delay_of_round(cluster_delay: Array, broadcast: Array, plays: Array, idle_round_s: float) -> Array:
    """Delay of a round, ``T = max_n T_n + T_bc``, or ``T_ref`` if nobody takes part (...) [s].

    Args:
        cluster_delay: ``T_n`` (..., N) [s]; for clusters that sit out, what counts for them.
        broadcast: ``T_bc`` (...) [s].
        plays: Clusters that take part (..., N), bool.
        idle_round_s: ``T_ref`` [s]; 0 where nobody may sit out.
    """
    xp = namespace(cluster_delay)
    delay = xp.max(cluster_delay, axis=-1) + broadcast
    if idle_round_s == 0.0:
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
