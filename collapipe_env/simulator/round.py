"""Costs of one round as one record, and what processes add to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from collapipe_env.ground.arrays import Array, at_least, namespace
from collapipe_env.physics import queues
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.elements import PipelineElements
from collapipe_env.physics.links import PlanGraph, plan_graph
from collapipe_env.physics.participation import delay_of_round, players
from collapipe_env.simulator.failed_records import FailedRounds
from collapipe_env.simulator.state import SystemState


@dataclass(frozen=True, eq=False)
class RoundCosts:
    """Costs of a round; leading batch axes ``...``.

    Attributes:
        delay: Round delay ``T = max_n T_n + T_bc`` (...) [s].
        cluster_delay: ``T_n`` (..., N) [s].
        local_step: ``T_step`` (..., N) [s], all-reduce and update included.
        allreduce: Longest all-reduce of a local step (..., N) [s].
        update: Longest update of the optimiser in a local step (..., N) [s].
        collect: ``T_col`` (..., N) [s].
        upload: ``T_up`` (..., N) [s].
        relay: ``T_relay`` (..., N) [s], 0 unless CUs forward new weights.
        barrier: Wait for the slowest cluster in each local step (..., N) [s], 0 unless the head is common.
        broadcast: ``T_bc`` (...) [s].
        energy: Energy of each node (..., N, K+1) [J].
        energy_ratio: Energy over budget ``e`` (..., N, K+1); zero for absent devices.
        memory: Memory that each device needs (..., N, K) [byte].
        survival: Probability that a micro-batch survives a local step (..., N).
        interference: ``I_n`` (..., N) [W].
        elements: Times of one micro-batch on each pipeline element.
        allocation: The plan.
        migration: ``T_mig`` (..., N) [s], the time to move the moments of moved blocks before the first local
            step; ``None`` where a change of plan costs nothing.
        moments: Fate of every block's moments (..., N, L), int: ``STAY``, ``TRAVEL`` or ``LOST`` of
            :mod:`collapipe_env.physics.moves`; ``None`` where a change of plan costs nothing.
        budget_period_s: Period of an energy budget [s]; ``None`` where budgets are per round.
        server_energy: Energy of the encoder blocks that the server trains for each cluster (..., N) [J],
            which counts against the server's budget; ``None`` where it has no budget.
        server_budget_j: The server's energy budget of a round [J]; ``None`` where it has none.
        idle_round_s: Delay of a round without participants [s]; ``None`` where all clusters must take part.
        local_steps: ``H_n`` (..., N), int, where schedulers choose them; ``None`` if all clusters take the
            workload's.
        replication: ``T_rep`` (..., N) [s], the time to send replicas after every local step; ``None`` where
            there are no replicas.
        replica_hosts: Hosts of the devices' replicas (..., N, K, K+1), bool, CU first; ``None`` where there
            are no replicas.
    """

    delay: Array
    cluster_delay: Array
    local_step: Array
    allreduce: Array
    update: Array
    collect: Array
    upload: Array
    relay: Array
    barrier: Array
    broadcast: Array
    energy: Array
    energy_ratio: Array
    memory: Array
    survival: Array
    interference: Array
    elements: PipelineElements
    allocation: Allocation
    migration: Array | None = None
    moments: Array | None = None
    budget_period_s: float | None = None
    server_energy: Array | None = None
    server_budget_j: float | None = None
    idle_round_s: float | None = None
    local_steps: Array | None = None
    replication: Array | None = None
    replica_hosts: Array | None = None

    @property
    def plays(self) -> Array | None:
        """Clusters that take part (..., N), bool; ``None`` where all do."""
        return players(self.allocation)

    @property
    def allowance(self) -> Array:
        """Budgets that the round grants every node (...): 1, or ``T / T_ref`` with budgets per second."""
        return queues.allowance(self.delay, self.budget_period_s)

    @property
    def server_ratio(self) -> Array:
        """The server's energy over its budget ``e_BS`` (...); ``None`` where it has no budget."""
        if self.server_energy is None or self.server_budget_j is None:
            return None
        return namespace(self.server_energy).sum(self.server_energy, axis=-1) / self.server_budget_j

    @property
    def granted(self) -> Array:
        """Budgets that the round grants the nodes of each cluster (..., N), 0 for one that sits out."""
        xp, plays = namespace(self.cluster_delay), self.plays
        each = xp.zeros_like(self.cluster_delay) + self.allowance[..., None]
        return each if plays is None else xp.where(plays, each, xp.zeros_like(each))

    @cached_property
    def graph(self) -> PlanGraph:
        """The plan's chain of groups."""
        return plan_graph(self.allocation)


class Price(NamedTuple):
    """Price of a plan beyond the physics of a round.

    Attributes:
        cluster_delay: Added to ``T_n`` (R, N) [s].
        energy: Added to the energy of each node (R, N, K+1) [J].
    """

    cluster_delay: Array
    energy: Array


class Interruption(NamedTuple):
    """Events inside a round, after the decision.

    Attributes:
        cluster_delay: Added to ``T_n`` (R, N) [s].
        energy: Added to the energy of each node (R, N, K+1) [J].
        trained: False where a cluster's round is lost: none of its gradients arrives (R, N), bool.
        failed: Effects of failed devices on the rounds; ``None`` where none failed.
    """

    cluster_delay: Array
    energy: Array
    trained: Array
    failed: FailedRounds | None = None


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
