"""One round of the energy queues, with the sums that a record holds."""

from __future__ import annotations

import numpy as np

from collapipe_env.arrays import Array, at_least, namespace, total
from collapipe_env.kernels.queues import queue_rows
from collapipe_env.physics.queues import update_backlog


def queue_round(backlog: Array, energy_ratio: Array) -> tuple[Array, Array, Array]:
    """Move the queues on, in a compiled loop where the arrays are NumPy's.

    Args:
        backlog: ``z(t)`` (E, N, K+1).
        energy_ratio: Energy over budget ``e(t)`` (E, N, K+1).

    Returns:
        ``z(t+1)`` (E, N, K+1); the sum over all nodes of the energy above budget, in budgets (E,); the sum of
        ``z(t+1)`` (E,).
    """
    if namespace(backlog) is not np:
        following = update_backlog(backlog, energy_ratio)
        return following, total(at_least(energy_ratio - 1.0, 0.0)), total(following)
    following = np.empty_like(backlog)
    excess, held = np.empty(len(backlog)), np.empty(len(backlog))
    queue_rows(backlog, np.ascontiguousarray(energy_ratio), following, excess, held)
    return following, excess, held
