"""The energy queues' round, row by row."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, BoolArray, FloatArray, at_least, namespace
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.queues import allowance, moved_backlog, per_node, update_backlog


def queue_round(
    backlog: Array,
    energy_ratio: Array,
    delay_s: Array,
    period_s: float | None,
    plays: Array,
    present: Array,
) -> tuple[Array, Array, Array]:
    """Move the queues on and sum up; those of absent devices and of clusters that sit out stay as they are.

    Args:
        backlog: ``z(t)`` (E, N, K+1).
        energy_ratio: Energy over budget ``e(t)`` (E, N, K+1).
        delay_s: Round delay ``T`` (E,) [s], which sets the allowance ``a(t)`` of budgets per second.
        period_s: Period of a budget [s]; ``None`` where budgets are per round.
        plays: Clusters that take part (E, N), bool.
        present: Present devices (E, N, K), bool; absence earns no credit.

    Returns:
        ``z(t+1)`` (E, N, K+1); the sum over all nodes of the energy above the allowance, in budgets (E,); the
        sum of ``z(t+1)`` (E,).
    """
    if type(backlog) is np.ndarray:
        ratio, plays = np.ascontiguousarray(energy_ratio), np.ascontiguousarray(plays)
        delay, period = np.ascontiguousarray(delay_s), 0.0 if period_s is None else period_s
        return queue_rows(backlog, ratio, delay, period, plays, np.ascontiguousarray(present))
    each, xp = per_node(allowance(delay_s, period_s)), namespace(backlog)
    following = moved_backlog(backlog, energy_ratio, each, plays)
    devices = xp.where(present, following[..., 1:], backlog[..., 1:])
    following = xp.concat((following[..., :1], devices), axis=-1)
    above = at_least(energy_ratio - each, 0.0)
    return following, above.sum(axis=(-2, -1)), following.sum(axis=(-2, -1))


@compiled
def queue_rows(
    backlog: FloatArray,
    energy_ratio: FloatArray,
    delay_s: FloatArray,
    period_s: float,
    plays: BoolArray,
    present: BoolArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """:func:`queue_round` of NumPy arrays, with a period of 0 where budgets are per round."""
    E, N, nodes = backlog.shape
    following, excess, held = np.empty_like(backlog), np.empty(E), np.empty(E)
    for e in range(E):
        above = together = 0.0
        allowed = delay_s[e] / period_s if period_s > 0.0 else 1.0
        for n in range(N):
            for i in range(nodes):
                ratio = energy_ratio[e, n, i]
                z = backlog[e, n, i]
                if plays[e, n] and (i == 0 or present[e, n, i - 1]):
                    z = update_backlog(z, ratio, allowed)
                following[e, n, i] = z
                together += z
                above += max(ratio - allowed, 0.0)
        excess[e] = above
        held[e] = together
    return following, excess, held
