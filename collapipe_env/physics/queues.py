"""Virtual energy queues and the Lyapunov function (`system_model.md` sections 5 and 9).

Everything is normalised by each node's budget: ``z = Z / Ebar``, ``e = E / Ebar``.
"""

from __future__ import annotations

from collapipe_env.arrays import Array, at_least, total


def update_backlog(backlog: Array, energy_ratio: Array) -> Array:
    """Virtual queue after a round, ``z(t+1) = max(z(t) + e(t) - 1, 0)``.

    Args:
        backlog: ``z`` (..., N, K+1), >= 0.
        energy_ratio: ``e`` (..., N, K+1), energy over budget.
    """
    return at_least(backlog + energy_ratio - 1.0, 0.0)


def lyapunov(backlog: Array) -> Array:
    """Lyapunov function ``L = 1/2 sum z^2`` over the clusters and nodes (last two axes)."""
    return 0.5 * total(backlog * backlog)


def drift_plus_penalty(delay_s: Array, backlog: Array, energy_ratio: Array, tradeoff_v: float) -> Array:
    """Bound of the drift plus penalty of a round, ``V T + sum z e`` (`system_model.md` section 9, [S]).

    Args:
        delay_s: Round delay ``T`` (...) [s].
        backlog: ``z`` (..., N, K+1).
        energy_ratio: ``e`` (..., N, K+1).
        tradeoff_v: ``V`` [1/s].
    """
    return tradeoff_v * delay_s + total(backlog * energy_ratio)


def exact_drift_plus_penalty(delay_s: Array, backlog: Array, energy_ratio: Array, tradeoff_v: float) -> Array:
    """Drift plus penalty of a round, ``V T + L(t+1) - L(t)`` ([X]; the paper minimises its bound).

    Args:
        delay_s: Round delay ``T`` (...) [s].
        backlog: ``z`` before the round (..., N, K+1).
        energy_ratio: ``e`` (..., N, K+1).
        tradeoff_v: ``V`` [1/s].
    """
    drift = lyapunov(update_backlog(backlog, energy_ratio)) - lyapunov(backlog)
    return tradeoff_v * delay_s + drift


def idle_drift(backlog: Array) -> Array:
    """Least drift ``L(t+1) - L(t)`` of a round, that of one without energy (...) [X].

    Args:
        backlog: ``z`` before the round (..., N, K+1).
    """
    return lyapunov(update_backlog(backlog, 0.0 * backlog)) - lyapunov(backlog)
