"""The energy queues' round, row by row."""

from __future__ import annotations

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.queues import update_backlog


@compiled
def queue_rows(
    backlog: FloatArray,
    energy_ratio: FloatArray,
    granted: FloatArray,
    plays: BoolArray,
    present: BoolArray,
    following: FloatArray,
    excess: FloatArray,
    held: FloatArray,
) -> None:
    """Move the queues on and sum up; those of absent devices and of clusters that sit out stay as they are.

    Args:
        backlog: ``z(t)`` (E, N, K+1).
        energy_ratio: ``e(t)`` (E, N, K+1).
        granted: Allowance of the round, ``a(t)`` (E,).
        plays: Clusters that take part (E, N).
        present: Present devices (E, N, K).
        following: ``z(t+1)`` (E, N, K+1), written.
        excess: Sum over the nodes of the energy above the allowance, in budgets (E,), written.
        held: Sum over the nodes of ``z(t+1)`` (E,), written.
    """
    E, N, nodes = backlog.shape
    for e in range(E):
        above = together = 0.0
        allowed = granted[e]
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
