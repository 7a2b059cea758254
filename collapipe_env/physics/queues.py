"""Virtual energy queues and the Lyapunov function (`system_model.md` sections 5 and 9).

Everything is normalised by each node's budget: ``z = Z / Ebar``, ``e = E / Ebar``. A round grants every node
an allowance ``a`` in budgets: 1 where budgets are per round [S], ``T / T_ref`` where they are per second [X].
"""

from __future__ import annotations

from collapipe_env.ground.arrays import Array, at_least, namespace


def allowance(delay_s: Array, period_s: float | None) -> Array:
    """Budgets that a round grants every node, ``a`` (...) [X].

    Args:
        delay_s: Round delay ``T`` (...) [s].
        period_s: Period of a budget [s], > 0; ``None`` where a budget is per round.
    """
    # 1 even of an infinite delay.
    granted: Array = delay_s**0 if period_s is None else delay_s / period_s
    return granted


def per_node(granted: Array) -> Array:
    """Allowances (...) in a shape compatible with nodes' queues (..., 1, 1)."""
    return granted[..., None, None]


def budgets_used(energy_ratio: Array, granted: Array) -> Array:
    """Energy of some rounds over the budgets that they granted each node (..., N, K+1) [X].

    Rounds that grant a node nothing, because its cluster sat out or it was away, thus count neither for nor
    against it. A node that was granted nothing at all has used nothing.

    Args:
        energy_ratio: Sum over the rounds of ``e`` (..., N, K+1), energy over budget.
        granted: Sum over the rounds of the budgets granted, broadcastable to it, >= 0.
    """
    xp = namespace(granted)
    used: Array = energy_ratio / xp.where(granted > 0.0, granted, xp.ones_like(granted))
    return used


def update_backlog(backlog: Array, energy_ratio: Array, granted: Array = 1.0) -> Array:
    """Virtual queue after a round, ``z(t+1) = max(z(t) + e(t) - a(t), 0)``.

    Args:
        backlog: ``z`` (..., N, K+1), >= 0.
        energy_ratio: ``e`` (..., N, K+1), energy over budget.
        granted: ``a``, broadcastable to the others; see :func:`per_node`.
    """
    return at_least(backlog + energy_ratio - granted, 0.0)


def moved_backlog(backlog: Array, energy_ratio: Array, granted: Array, plays: Array) -> Array:
    """Virtual queues after a round, frozen for clusters that sit it out ([X]; no credit for waiting).

    Args:
        backlog: ``z`` (..., N, K+1), >= 0.
        energy_ratio: ``e`` (..., N, K+1), energy over budget.
        granted: ``a``, broadcastable to the others; see :func:`per_node`.
        plays: Clusters that take part (..., N), bool.
    """
    following = update_backlog(backlog, energy_ratio, granted)
    return namespace(following).where(plays[..., None], following, backlog)


def participation_queue(absence: Array, plays: Array, least: float) -> Array:
    """Participation queue after a round, ``y(t+1) = max(y(t) + rho_min - in(t), 0)`` (..., N) [X].

    It is already normalised: it counts rounds. While it stays bounded, a cluster takes part in at least
    ``rho_min`` of the rounds (DDSRA's participation constraint).

    Args:
        absence: ``y`` (..., N), >= 0.
        plays: ``in``: whether each cluster takes part (..., N), bool.
        least: ``rho_min``, in [0, 1].
    """
    taken = namespace(absence).astype(plays, absence.dtype)
    return at_least(absence + (least - taken), 0.0)


def lyapunov(backlog: Array, absence: Array | None = None) -> Array:
    """Lyapunov function ``L = 1/2 sum z^2`` over clusters and nodes, plus ``1/2 sum y^2`` if any may sit out.

    Args:
        backlog: ``z`` (..., N, K+1).
        absence: ``y`` (..., N); ``None`` where all clusters must take part.
    """
    of_energy: Array = 0.5 * (backlog * backlog).sum(axis=(-2, -1))
    if absence is None:
        return of_energy
    return of_energy + 0.5 * namespace(absence).sum(absence * absence, axis=-1)


def drift_plus_penalty(
    delay_s: Array,
    backlog: Array,
    energy_ratio: Array,
    tradeoff_v: float,
    granted: Array,
    plays: Array,
    *,
    exact: bool,
) -> Array:
    """Drift plus penalty of a round, ``V T + L(t+1) - L(t)`` ([X]), or its bound.

    The bound (`system_model.md` section 9) is ``V T + sum z e`` [S]. With budgets per second it is
    ``V T + sum z (e - (a - 1))`` [X], because the round's allowance then depends on the plan. A constant
    ``sum z`` is left out of both.

    Args:
        delay_s: Round delay ``T`` (...) [s].
        backlog: ``z`` before the round (..., N, K+1).
        energy_ratio: ``e`` (..., N, K+1).
        tradeoff_v: ``V`` [1/s].
        granted: ``a`` (...).
        plays: Clusters that take part (..., N), bool; the others' queues are frozen.
        exact: Whether to return the drift itself rather than its bound, which the paper minimises.
    """
    each = per_node(granted)
    if exact:
        drift = lyapunov(moved_backlog(backlog, energy_ratio, each, plays)) - lyapunov(backlog)
        return tradeoff_v * delay_s + drift
    xp, used = namespace(energy_ratio), energy_ratio - (each - 1.0)
    weights = backlog * xp.where(plays[..., None], used, xp.ones_like(used))
    return tradeoff_v * delay_s + weights.sum(axis=(-2, -1))


def queue_drift(backlog: Array, energy_ratio: Array, granted: Array = 1.0, *, exact: bool = True) -> Array:
    """Drift of single queues by a round, ``(z(t+1)^2 - z(t)^2) / 2``, or its bound ``z (e - (a - 1))``.

    The server's queue counts in this way in addition to the nodes'. A constant ``z`` is left out of the
    bound.

    Args:
        backlog: ``z`` before the round (...).
        energy_ratio: ``e`` (...).
        granted: ``a``, broadcastable to the others.
        exact: Whether to return the drift itself rather than its bound.
    """
    if not exact:
        return backlog * (energy_ratio - (granted - 1.0))
    after = update_backlog(backlog, energy_ratio, granted)
    return 0.5 * (after * after - backlog * backlog)


def participation_drift(absence: Array, plays: Array, least: float) -> Array:
    """Drift of the participation queues by a round, ``sum (y(t+1)^2 - y(t)^2) / 2`` (...) [X].

    Args:
        absence: ``y`` before the round (..., N).
        plays: Clusters that take part (..., N), bool.
        least: ``rho_min``, in [0, 1].
    """
    after = participation_queue(absence, plays, least)
    return 0.5 * namespace(absence).sum(after * after - absence * absence, axis=-1)


def idle_drift(backlog: Array) -> Array:
    """Least drift ``L(t+1) - L(t)`` of a round that grants 1: the drift of a round without energy (...) [X].

    Args:
        backlog: ``z`` before the round (..., N, K+1).
    """
    return lyapunov(update_backlog(backlog, 0.0 * backlog)) - lyapunov(backlog)
