"""Costs of a round with what processes add to them."""

from __future__ import annotations

from dataclasses import replace

from collapipe_env.arrays import namespace
from collapipe_env.dynamics.process import Interruption, Price
from collapipe_env.physics.delay import round_delay
from collapipe_env.simulator.costs import RoundCosts
from collapipe_env.simulator.state import SystemState


def priced(costs: RoundCosts, state: SystemState, extra: Price | Interruption) -> RoundCosts:
    """Add delays of clusters and energies of nodes to a round.

    Args:
        costs: The round.
        state: The system before it, with the energy budgets.
        extra: What is added; ``T = max_n T_n + T_bc`` and ``e = E / budget`` follow.
    """
    cluster_delay, energy = costs.cluster_delay + extra.cluster_delay, costs.energy + extra.energy
    return replace(
        costs,
        delay=round_delay(namespace(cluster_delay).max(cluster_delay, axis=-1), costs.broadcast),
        cluster_delay=cluster_delay,
        energy=energy,
        energy_ratio=energy / state.budget,
    )
