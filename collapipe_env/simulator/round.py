"""Costs of one round as one record, and what processes add to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from collapipe_env.ground.arrays import Array, at_least, namespace
from collapipe_env.physics import queues
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.elements import PipelineElements
from collapipe_env.physics.links import PlanGraph, plan_graph
from collapipe_env.physics.participation import delay_of_round, players, real_steps
from collapipe_env.physics.schedules.split import paced_steps
from collapipe_env.simulator.failed_records import FailedRounds
from collapipe_env.simulator.state import Parameters, SystemState

_NOTHING: Mapping[str, Array] = {}
"""An empty dictionary, which copies and files can hold; never written to."""


PHYSICS_PHASES = ("relay", "step", "all-reduce", "update", "wait", "collect", "upload", "broadcast")
"""Names of the phases of every round."""


class Terms(NamedTuple):
    """Terms that a price adds to a round, by default none.

    Attributes:
        once: Phases before the first local step by name (..., N) [s].
        step: Phases at the end of every local step by name (..., N) [s].
        delay: Time of no phase (..., N) [s], which may be negative.
        energy: Energy of each node (..., N, K+1) [J].
        memory: Memory of each device (..., N, K) [byte].
        server_j: Energy of the server for each cluster (..., N) [J], which counts against its budget.
        notes: Arrays for learners, failures and records by name.
    """

    once: Mapping[str, Array] = _NOTHING
    step: Mapping[str, Array] = _NOTHING
    delay: Array | float = 0.0
    energy: Array | float = 0.0
    memory: Array | float = 0.0
    server_j: Array | float = 0.0
    notes: Mapping[str, Array] = _NOTHING


NO_TERMS = Terms()


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
        budget_period_s: Period of an energy budget [s]; ``None`` where budgets are per round.
        idle_round_s: Delay of a round without participants [s]; ``None`` where all clusters must take part.
        local_steps: ``H_n`` (..., N), int, where schedulers choose them; ``None`` if all clusters take the
            workload's.
        terms: Terms that prices have added, with energy and memory of devices counted above.
        server_budget_j: The server's energy budget of a round [J]; infinite where it has none.
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
    budget_period_s: float | None = None
    idle_round_s: float | None = None
    local_steps: Array | None = None
    terms: Terms = NO_TERMS
    server_budget_j: float = math.inf

    @cached_property
    def plays(self) -> Array:
        """Clusters that take part (..., N), bool."""
        return players(self.allocation)

    @property
    def allowance(self) -> Array:
        """Budgets that the round grants every node (...): 1, or ``T / T_ref`` with budgets per second."""
        return queues.allowance(self.delay, self.budget_period_s)

    @cached_property
    def server_ratio(self) -> Array:
        """The server's energy over its budget ``e_BS`` (...); 0 where it has no budget."""
        each = self.terms.server_j + namespace(self.delay).zeros_like(self.cluster_delay)
        return namespace(each).sum(each, axis=-1) / self.server_budget_j

    @property
    def phases(self) -> tuple[Mapping[str, Array], Mapping[str, Array], Mapping[str, Array]]:
        """Phases by name (..., N) [s]: before the local steps, at the end of each, and after the last."""
        steps = {"all-reduce": self.allreduce, "update": self.update, **self.terms.step}
        return (
            {**self.terms.once, "relay": self.relay},
            {**steps, "wait": self.barrier},
            {"collect": self.collect, "upload": self.upload},
        )

    @property
    def granted(self) -> Array:
        """Budgets that the round grants the nodes of each cluster (..., N), 0 for one that sits out."""
        xp, plays = namespace(self.cluster_delay), self.plays
        each = xp.zeros_like(self.cluster_delay) + self.allowance[..., None]
        return xp.where(plays, each, xp.zeros_like(each))

    @cached_property
    def graph(self) -> PlanGraph:
        """The plan's chain of groups."""
        return plan_graph(self.allocation)


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


def with_terms(
    costs: RoundCosts, parameters: Parameters, state: SystemState, found: Sequence[Terms]
) -> RoundCosts:
    """Add the terms of prices to a round: ``T = max_n T_n + T_bc`` and ``e = E / budget`` follow.

    Where the head is common, all clusters take local steps at one pace, the new phases included.

    Args:
        state: The system before it, with the energy budgets.
        found: Terms to add, in the order of their phases.
    """
    old, barrier = costs.terms, costs.barrier
    once, step, notes = dict(old.once), dict(old.step), dict(old.notes)
    longer: Array = 0.0
    ends, energy, memory, server_j = longer, longer, costs.memory, old.server_j
    for terms in found:
        once.update(terms.once)
        step.update(terms.step)
        notes.update(terms.notes)
        longer = longer + sum(terms.once.values()) + terms.delay
        ends = ends + sum(terms.step.values())
        energy, memory = energy + terms.energy, memory + terms.memory
        server_j = server_j + terms.server_j
    if len(step) > len(old.step):
        steps = real_steps(costs.allocation, parameters.costs.local_steps)
        if parameters.barrier:
            step_s = costs.local_step + sum(step.values())
            barrier = paced_steps(costs.allocation, step_s, steps) - step_s
        longer = longer + steps * (ends + barrier - costs.barrier)
    # Clusters that sit out do nothing that could cost more.
    xp, plays = namespace(costs.delay), costs.plays
    zeros, none = xp.zeros_like(costs.cluster_delay), xp.zeros_like(costs.energy)
    longer = xp.where(plays, zeros + longer, zeros)
    energy = xp.where(plays[..., None], none + energy, none)
    cluster_delay = costs.cluster_delay + longer
    # A failure takes back the energy of work that was not done: the rest may be 0 apart from rounding.
    energy = at_least(costs.energy + energy, 0.0)
    return replace(
        costs,
        delay=delay_of_round(cluster_delay, costs.broadcast, plays, costs.idle_round_s),
        cluster_delay=cluster_delay,
        barrier=barrier,
        energy=energy,
        energy_ratio=energy / state.budget,
        memory=memory,
        terms=Terms(once, step, server_j=server_j, notes=notes),
    )


def without_absent(costs: RoundCosts, counted: Array) -> RoundCosts:
    """A round without the clusters that sit it out.

    Args:
        costs: The round as if all clusters took part, though absent clusters cause no interference.
        counted: ``T_n`` of clusters that sit out (..., N) [s].
    """
    plays = costs.plays
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
