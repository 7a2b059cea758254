"""Costs of a round with what processes add to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from collapipe_env.ground.arrays import at_least, namespace
from collapipe_env.physics.participation import delay_of_round
from collapipe_env.simulator.costs import RoundCosts
from collapipe_env.simulator.process import Interruption, Price
from collapipe_env.simulator.state import SystemState


def priced(costs: RoundCosts, state: SystemState, extra: Price | Interruption, **others: Any) -> RoundCosts:
    """Add delays of clusters and energies of nodes to a round.

    Args:
        state: The system before it, with the energy budgets.
        extra: Delays and energies to add; ``T = max_n T_n + T_bc`` and ``e = E / budget`` follow.
        others: Other fields of the round to replace.
    """
    plays = costs.plays
    more_delay, more_energy = extra.cluster_delay, extra.energy
    if plays is not None:
        # Clusters that sit out do nothing that could cost more.
        xp = namespace(plays)
        more_delay = xp.where(plays, more_delay, xp.zeros_like(more_delay))
        more_energy = xp.where(plays[..., None], more_energy, xp.zeros_like(more_energy))
    cluster_delay = costs.cluster_delay + more_delay
    # A failure takes back the energy of work that was not done: the rest may be 0 apart from rounding.
    energy = at_least(costs.energy + more_energy, 0.0)
    return replace(
        costs,
        delay=delay_of_round(cluster_delay, costs.broadcast, plays, costs.idle_round_s),
        cluster_delay=cluster_delay,
        energy=energy,
        energy_ratio=energy / state.budget,
        **others,
    )
