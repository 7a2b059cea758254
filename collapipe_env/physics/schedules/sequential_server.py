"""SplitFed V2's server: one server-side model that serves the clusters one after the other ([R], [X])."""

from __future__ import annotations

from collapipe_env.arrays import Array, namespace


def sequential_server_times(before: Array, service: Array, after: Array, local_steps: int) -> Array:
    """Time in which each cluster does its local steps when all wait in one queue for the server.

    Each local step takes a cluster ``before`` to the server, where it is served first come, first served,
    and ``after`` back; then the next one begins (`algorithms.md` section 6).

    Args:
        before: Forward part of a local step on the devices and links (..., N) [s].
        service: Server's forward and backward pass, alone on the server (..., N) [s].
        after: Backward part of a local step (..., N) [s].
        local_steps: ``H`` >= 1.

    Returns:
        Time of all local steps (..., N) [s].
    """
    xp = namespace(before)
    N = before.shape[-1]
    clusters = xp.arange(N)
    ready = before
    left = xp.full(before.shape, local_steps, dtype=xp.int64)
    finished = xp.zeros_like(before)
    free = xp.zeros_like(before[..., :1])
    for _ in range(N * local_steps):
        waiting = xp.where(left > 0, ready, xp.inf)
        chosen = clusters == xp.argmin(waiting, axis=-1, keepdims=True)
        arrival = xp.min(waiting, axis=-1, keepdims=True)
        taken = xp.sum(xp.where(chosen, service, 0.0), axis=-1, keepdims=True)
        free = xp.maximum(arrival, free) + taken
        finished = xp.where(chosen, free + after, finished)
        ready = xp.where(chosen, free + after + before, ready)
        left = left - xp.astype(chosen, left.dtype)
    return finished
