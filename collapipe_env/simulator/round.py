"""Costs of one round as one record, and what processes add to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, at_least, namespace
from collapipe_env.ground.records import Declared, Record, declarations, made
from collapipe_env.physics import queues
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.elements import PipelineElements
from collapipe_env.physics.energy import idle_energy, idle_power
from collapipe_env.physics.links import PlanGraph, plan_graph
from collapipe_env.physics.overheads import Overheads
from collapipe_env.physics.participation import delay_of_round
from collapipe_env.physics.schedules.split import paced_steps
from collapipe_env.simulator.failed_records import FailedRounds
from collapipe_env.simulator.state import Parameters, SystemState

_NOTHING: Mapping[str, Array] = {}
"""An empty dictionary, which copies and files can hold; never written to."""


PHYSICS_PHASES = ("relay", "step", "all-reduce", "update", "wait", "collect", "upload", "broadcast")
"""Names of the phases of every round."""


class Terms(NamedTuple):
    """Terms that a price adds to a round, by default none."""

    once: Mapping[str, Annotated[Array, Declared("N", "s")]] = _NOTHING
    """Phases before the first local step by name."""
    step: Mapping[str, Annotated[Array, Declared("N", "s")]] = _NOTHING
    """Phases at the end of every local step by name."""
    delay: Annotated[Array | float, Declared("N", "s")] = 0.0
    """Time of no phase, which may be negative."""
    energy: Annotated[Array | float, Declared("N K+1", "J")] = 0.0
    """Energy of each node."""
    memory: Annotated[Array | float, Declared("N K", "byte", low=0.0)] = 0.0
    """Memory of each device."""
    server_j: Annotated[Array | float, Declared("N", "J", low=0.0)] = 0.0
    """Energy of the server for each cluster, which counts against its budget."""
    notes: Mapping[str, Array] = _NOTHING
    """Arrays for learners, failures and records by name."""


NO_TERMS = Terms()


class RowsOfLoop(NamedTuple):
    """Rows of a compiled loop's block of numbers, each cut out when it is first read: most never are."""

    block: FloatArray
    places: Mapping[str, tuple[slice, tuple[int, ...]]]
    """Place and shape of each row by name (:func:`~collapipe_env.kernels.round_rows.places_of`)."""
    overheads: Overheads
    weights: Mapping[str, FloatArray]
    """Rows of elements that only plans with schedules have, by name."""

    def read(self, name: str) -> Any:
        """A field of a round by its name.

        Raises:
            KeyError: If it is in no row.
        """
        if name == "elements":
            rows: dict[str, Any] = {row: self.read(row) for row in _ELEMENTS if row in self.places}
            rows |= self.weights
            extra = self.overheads
            return PipelineElements(**rows, hop_latency=extra.latency_s, edge_latency=extra.edge_latency_s)
        place, shape = self.places[name]
        return self.block[place].reshape(shape)


_ELEMENTS = tuple(PipelineElements.__dataclass_fields__)


@dataclass(frozen=True, eq=False)
class RoundCosts(Record):
    """Costs of a round; leading batch axes ``...``. Neutral numbers are those of clusters that sit out."""

    delay: Annotated[Array, Declared("", "s")]
    """Round delay ``T = max_n T_n + T_bc``."""
    cluster_delay: Annotated[Array, Declared("N", "s")]
    """``T_n``."""
    local_step: Annotated[Array, Declared("N", "s", neutral=0.0)]
    """``T_step``, all-reduce and update included."""
    allreduce: Annotated[Array, Declared("N", "s", neutral=0.0)]
    """Longest all-reduce of a local step."""
    update: Annotated[Array, Declared("N", "s", neutral=0.0)]
    """Longest update of the optimiser in a local step."""
    collect: Annotated[Array, Declared("N", "s", neutral=0.0)]
    """``T_col``."""
    upload: Annotated[Array, Declared("N", "s", neutral=0.0)]
    """``T_up``."""
    relay: Annotated[Array, Declared("N", "s", neutral=0.0)]
    """``T_relay``, 0 unless CUs forward new weights."""
    barrier: Annotated[Array, Declared("N", "s", neutral=0.0)]
    """Wait for the slowest cluster in each local step, 0 unless the head is common."""
    broadcast: Annotated[Array, Declared("", "s")]
    """``T_bc``."""
    busy_energy: Annotated[Array, Declared("N K+1", "J", neutral=0.0)]
    """Energy of each node without that of its idle radio."""
    energy: Annotated[Array, Declared("N K+1", "J", neutral=0.0)]
    """Energy of each node."""
    energy_ratio: Annotated[Array, Declared("N K+1", neutral=0.0)]
    """Energy over budget ``e``; zero for absent devices."""
    memory: Annotated[Array, Declared("N K", "byte", neutral=0.0)]
    """Memory that each device needs."""
    survival: Annotated[Array, Declared("N", neutral=1.0)]
    """Probability that a micro-batch survives a local step."""
    interference: Annotated[Array, Declared("N", "W")]
    """``I_n``."""
    plays: Annotated[Array, Declared("N", kind="truth")]
    """Clusters that take part."""
    elements: PipelineElements
    """Times of one micro-batch on each pipeline element."""
    allocation: Allocation
    """The plan."""
    budget_period_s: float | None = None
    """Period of an energy budget [s]; ``None`` where budgets are per round."""
    idle_round_s: float = 0.0
    """Delay of a round without participants [s]; 0 where all clusters must take part."""
    local_steps: Annotated[Array | None, Declared("N", kind="whole")] = None
    """``H_n``, where schedulers choose them; ``None`` if all clusters take the workload's."""
    terms: Terms = NO_TERMS
    """Terms that prices have added, with energy and memory of devices counted above."""
    server_budget_j: float = math.inf
    """The server's energy budget of a round [J]; infinite where it has none."""

    if not TYPE_CHECKING:  # checkers are to know the fields alone

        def __getattr__(self, name: str) -> Any:
            """A field that a compiled loop has written and nobody has read yet."""
            block = self.__dict__.get("_loop")
            if block is None or name not in RoundCosts.__dataclass_fields__:
                raise AttributeError(f"RoundCosts has no {name!r}")
            self.__dict__[name] = found = block.read(name)
            return found

    def changed(self, **values: Any) -> RoundCosts:
        """The same round with other values of some fields; a copy field by field would read them all."""
        kept = {name: value for name, value in self.__dict__.items() if name in _KEPT}
        return made(RoundCosts, **(kept | values))

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


_KEPT = frozenset(("_loop", *RoundCosts.__dataclass_fields__))
_SAT_OUT = tuple((name, is_) for name, is_ in declarations(RoundCosts).items() if is_.neutral is not None)
"""Arrays with neutral numbers; read here, because fused functions cannot read annotations."""


class Events(NamedTuple):
    """Events of a process inside a round, after the decision; by default none."""

    cluster_delay: Annotated[Array | float, Declared("N", "s")] = 0.0
    """Added to ``T_n``."""
    energy: Annotated[Array | float, Declared("N K+1", "J")] = 0.0
    """Added to the energy of each node."""
    trained: Annotated[Array | bool, Declared("N", kind="truth")] = True
    """False where a cluster's round is lost: none of its gradients arrives."""
    fails_s: Annotated[Array | float, Declared("N K", "s", low=0.0, high=math.inf)] = math.inf
    """Time after which each device fails, in the process's own clock; infinite for never. Where a round
    advances that clock by ``T_ref`` whatever its delay, it is scaled to the delay of the device's cluster."""

    def on(self, costs: RoundCosts) -> Interruption:
        """The events without the failures, in arrays of a round."""
        zeros = namespace(costs.delay).zeros_like
        delay = zeros(costs.cluster_delay)
        return Interruption(
            delay + self.cluster_delay, zeros(costs.energy) + self.energy, (delay == 0.0) & self.trained
        )


NO_EVENTS = Events()


class Interruption(NamedTuple):
    """Events inside a round, of all processes and failed devices together."""

    cluster_delay: Annotated[Array, Declared("N", "s")]
    """Added to ``T_n``."""
    energy: Annotated[Array, Declared("N K+1", "J")]
    """Added to the energy of each node."""
    trained: Annotated[Array, Declared("N", kind="truth")]
    """False where a cluster's round is lost: none of its gradients arrives."""
    failed: FailedRounds | None = None
    """Effects of failed devices on the rounds; ``None`` where none failed."""

    def after(self, others: Interruption | None) -> Interruption:
        """These events together with others, in which no device fails."""
        if others is None:
            return self
        return Interruption(
            others.cluster_delay + self.cluster_delay,
            others.energy + self.energy,
            others.trained & self.trained,
            self.failed,
        )


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
        steps = costs.allocation.real_steps(parameters.costs.local_steps)
        if parameters.barrier:
            step_s = costs.local_step + sum(step.values())
            barrier = paced_steps(costs.allocation, step_s, steps) - step_s
        longer = longer + steps * (ends + barrier - costs.barrier)
    # Clusters that sit out do nothing that could cost more.
    xp, plays = namespace(costs.delay), costs.plays
    if type(plays) is not np.ndarray or not plays.all():
        zeros, none = xp.zeros_like(costs.cluster_delay), xp.zeros_like(costs.energy)
        longer = xp.where(plays, zeros + longer, zeros)
        energy = xp.where(plays[..., None], none + energy, none)
    cluster_delay = costs.cluster_delay + longer
    priced = costs.changed(
        delay=delay_of_round(cluster_delay, costs.broadcast, plays, costs.idle_round_s),
        cluster_delay=cluster_delay,
        barrier=barrier,
        # A failure takes back the energy of work that was not done: the rest may be 0 apart from rounding.
        busy_energy=at_least(costs.busy_energy + energy, 0.0),
        memory=memory,
        terms=Terms(once, step, server_j=server_j, notes=notes),
    )
    return with_idle_radios(priced, parameters, state)


def with_idle_radios(costs: RoundCosts, parameters: Parameters, state: SystemState) -> RoundCosts:
    """Keep the radios on for a whole round, whose delay and busy energy are known.

    Args:
        state: The system before it, with the energy budgets.
    """
    idle_w = idle_power(parameters.radio_power.idle_w, state.present, costs.plays, costs.busy_energy)
    energy = costs.busy_energy + idle_energy(idle_w, costs.delay)
    return costs.changed(energy=energy, energy_ratio=energy / state.budget)


def without_absent(costs: RoundCosts, counted: Array) -> RoundCosts:
    """A round without the clusters that sit it out.

    Args:
        costs: The round as if all clusters took part, though absent clusters cause no interference.
        counted: ``T_n`` of clusters that sit out (..., N) [s].
    """
    xp, plays = namespace(counted), costs.plays
    cluster_delay = xp.where(plays, costs.cluster_delay, counted)
    broadcast = xp.where(xp.any(plays, axis=-1), costs.broadcast, xp.zeros_like(costs.broadcast))
    kept = {}
    for name, is_ in _SAT_OUT:
        values, counts = getattr(costs, name), plays if is_.axes == "N" else plays[..., None]
        kept[name] = xp.where(counts, values, xp.full_like(values, is_.neutral))
    return costs.changed(
        delay=delay_of_round(cluster_delay, broadcast, plays, costs.idle_round_s),
        cluster_delay=cluster_delay,
        broadcast=broadcast,
        elements=costs.elements.where(plays),
        **kept,
    )
