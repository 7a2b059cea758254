"""Share of each cluster in the delay of a round."""

from __future__ import annotations

from collapipe_env.ground.arrays import Array, namespace


def marginal_delay(cluster_delay: Array) -> Array:
    """Delay that each cluster alone causes, ``max(T_n, T_-n) - T_-n`` [X] (..., N) [s].

    ``T_-n`` is the largest delay of the other clusters, 0 where there are none. Only the slowest cluster
    causes any delay: its lead over the second slowest.

    Args:
        cluster_delay: ``T_n`` (..., N) [s], >= 0.
    """
    if cluster_delay.shape[-1] == 1:
        return cluster_delay
    xp = namespace(cluster_delay)
    ordered = xp.sort(cluster_delay, axis=-1)
    first, second = ordered[..., -1:], ordered[..., -2:-1]
    # Of two equally slow clusters, neither alone causes any delay: the difference is zero.
    return xp.where(cluster_delay == first, first - second, xp.zeros_like(cluster_delay))
