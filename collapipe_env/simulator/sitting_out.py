"""Costs of a round in which clusters sit out or take local steps of their own number."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.participation import delay_of_round, whole_steps
from collapipe_env.simulator.state import SystemParameters

if TYPE_CHECKING:
    from collapipe_env.simulator.costs import RoundCosts


def without_absent(costs: RoundCosts, counted: Array) -> RoundCosts:
    """A round without the clusters that sit it out.

    Args:
        costs: The round as if all clusters took part, though absent clusters cause no interference.
        counted: ``T_n`` of clusters that sit out (..., N) [s].
    """
    plays = costs.plays
    assert plays is not None
    xp = namespace(counted)
    each = plays[..., None]

    def kept(values: Array, where: Array) -> Array:
        return xp.where(where, values, xp.zeros_like(values))

    cluster_delay = xp.where(plays, costs.cluster_delay, counted)
    somebody = xp.any(plays, axis=-1)
    broadcast = kept(costs.broadcast, somebody)
    by_cluster = ("local_step", "allreduce", "update", "collect", "upload", "relay", "barrier")
    return replace(
        costs,
        delay=delay_of_round(cluster_delay, broadcast, plays, costs.idle_round_s),
        cluster_delay=cluster_delay,
        broadcast=broadcast,
        survival=xp.where(plays, costs.survival, xp.ones_like(costs.survival)),
        elements=costs.elements.where(plays),
        **{name: kept(getattr(costs, name), plays) for name in by_cluster},
        **{name: kept(getattr(costs, name), each) for name in ("energy", "energy_ratio", "memory")},
    )


def taken_steps(parameters: SystemParameters, allocation: Allocation) -> Array | None:
    """Local steps of the clusters (..., N), int; ``None`` where the scenario settles them."""
    own = parameters.costs.local_steps
    steps = whole_steps(allocation, own)
    if steps is None and parameters.local_steps_choices is not None:
        steps = namespace(allocation.micro_batches).full_like(allocation.micro_batches, own)
    return steps
