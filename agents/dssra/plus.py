"""DSSRA+: DSSRA with a few tuned scalars for what it does not foresee ([X]).

DSSRA looks one round ahead. Where a round leaves something behind, a move that pays off over several rounds
is not made, a device is made hot that would have stayed cool, and a channel that was seen wrongly is trusted.
One number for each of these goes a long way, and is what schedulers that learn have to beat
(`docs/dssra_plus.md`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import FloatArray
from collapipe_env.dynamics.presence import PRESENCE, PresenceSpec
from collapipe_env.physics.parameters import SystemParameters
from collapipe_env.physics.recovery import RecoveryTerms, bits_of_block
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decisions import opens
from collapipe_env.scenario.dssra_plus_section import DSSRA_PLUS_RANGES
from collapipe_env.simulator.build import usual_round
from collapipe_env.simulator.state import SystemState

from .argument_checks import require_number
from .gain_memory import GainFilter, ShrunkGains
from .hazard_memory import HazardMemory
from .policy import DSSRA
from .replica_rule import best_replicas

RISK = "risk"
"""Name of the probability to fail beside what ``presence`` shows."""


class DSSRAPlus(DSSRA):
    """DSSRA that prices moves, heat and channels by tuned scalars; neutral ones make it DSSRA.

    Each round it minimises DSSRA's objective with five changes:

    - the moments of moved blocks count ``migration_weight`` times, in time and in energy. Below 1 a move's
      price is spread over the rounds for which the new plan lives, above 1 plans change more rarely. What is
      played is charged in full;
    - a device's energy costs ``V heat_price g(headroom)`` per joule more, ``g`` being :func:`heat_ramp` of
      its thermal headroom before the round;
    - a device that holds any blocks costs ``V failure_price p`` more, with its probability ``p`` to fail
      within ``T_ref``, estimated from how long it has stayed (:class:`~.hazard_memory.HazardMemory`);
    - where replicas are a decision, each cluster keeps those that cost it least on average
      (:mod:`~.replica_rule`), by the same estimates; no scalar sets this;
    - gains are drawn towards each link's mean (:class:`~.gain_memory.ShrunkGains`), or filtered otherwise.

    Scalars that are left out are those of the scenario's section ``dssra_plus``. One without an effect in the
    scenario, such as a price of heat where nothing heats, changes nothing.

    Args:
        scenario: The scenario to schedule.
        migration_weight: Weight of moving blocks, >= 0; neutral is 1.
        heat_price: Seconds of a round's delay that a joule in a device at its set point is worth [s/J], >= 0;
            neutral is 0.
        heat_start: Thermal headroom at which that price begins, in [0, 1).
        channel_weight: Weight of the gains that are seen, in [0, 1]; neutral is 1.
        failure_price: Seconds of a round's delay that the failure of a device with blocks is worth [s], >= 0;
            neutral is 0.
        gain_filter: Estimates gains in place of ``channel_weight``, which has no effect then.
        options: Those of :class:`DSSRA`.

    Raises:
        AllocationError: An argument is out of its range.
    """

    name = "DSSRA+"

    def __init__(
        self,
        scenario: Scenario,
        *,
        migration_weight: float | None = None,
        heat_price: float | None = None,
        heat_start: float | None = None,
        channel_weight: float | None = None,
        failure_price: float | None = None,
        gain_filter: GainFilter | None = None,
        **options: Any,
    ) -> None:
        super().__init__(scenario, **options)
        own = scenario.dssra_plus

        def chosen(name: str, given: float | None) -> float:
            low, high = DSSRA_PLUS_RANGES[name]
            value = getattr(own, name) if given is None else given
            return require_number("DSSRAPlus", name, value, f"a number from {low:g} to {high:g}", low, high)

        self.migration_weight: float = chosen("migration_weight", migration_weight)
        self.heat_price: float = chosen("heat_price", heat_price)
        self.heat_start: float = chosen("heat_start", heat_start)
        self.channel_weight: float = chosen("channel_weight", channel_weight)
        self.failure_price: float = chosen("failure_price", failure_price)
        self._gains = ShrunkGains(self.channel_weight) if gain_filter is None else gain_filter
        self._hazards: HazardMemory | None = None
        self._replicates = opens(scenario, "replication")
        presence: PresenceSpec | None = dict(scenario.dynamics.processes).get(PRESENCE)
        if presence is not None and (self.failure_price > 0.0 or self._replicates):
            self._hazards = HazardMemory(presence)
            # Of the ends of stays these come without a word.
            self._failing, self._round_s = 1.0 - presence.graceful, usual_round(scenario)
            self._recovery = RecoveryTerms(presence.recovery, presence.heartbeat_s, presence.misses)
        rules = self.parameters.migration
        if rules is not None and self.migration_weight != 1.0:
            bits = self.migration_weight * rules.block_bits
            # Nothing at all for weight 0: no time over a dead link is infinite.
            weighed = rules._replace(block_bits=bits) if bits > 0.0 else None
            self.parameters: SystemParameters = replace(self.parameters, migration=weighed)
            self._numbers = self.parameters.numbers._replace(tradeoff_v=self.tradeoff_v)

    def reset(self, seed: int | None = None) -> None:  # noqa: ARG002 - part of the interface
        """Forget the gains and stays of earlier rounds; nothing is random."""
        self._gains.reset()
        if self._hazards is not None:
            self._hazards.reset()

    def allocate(self, state: SystemState, start: Allocation | None = None) -> Allocation:
        """Decide one round, see :meth:`DSSRA.allocate`; the gains of each row are remembered.

        Args:
            state: The system before the round (E, ...); row ``i`` is the same environment in every call.
            start: Feasible plan of what is open to begin the search with (E, ...).

        Raises:
            AllocationError: The devices present in some cluster cannot hold the encoder, and all have to take
                part.
        """
        if self._hazards is not None:
            state = self._with_failures(state, self._hazards)
        seen = self._gains.update(state)
        plan = super().allocate(seen, start)
        return self._with_replicas(seen, plan) if self._replicates else plan

    def _with_failures(self, state: SystemState, hazards: HazardMemory) -> SystemState:
        """The state with each device's probability to fail in the round, beside what ``presence`` shows."""
        shown = state.processes[PRESENCE]
        risk = -np.expm1(-self._failing * self._round_s * hazards.update(state))
        # Those that have announced their end see the round through.
        risk = np.where(np.asarray(shown["announced"], dtype=np.bool_), 0.0, risk)
        return replace(state, processes={**state.processes, PRESENCE: {**shown, RISK: risk}})

    def _with_replicas(self, state: SystemState, plan: Allocation) -> Allocation:
        """The plan with the replicas that are worth it."""
        kinds = best_replicas(
            self.parameters,
            state,
            plan,
            state.processes[PRESENCE][RISK],
            terms=self._recovery,
            bits=bits_of_block(self.parameters.costs),
            tradeoff_v=self.tradeoff_v,
            extra_price=self.extra_price(state),
        )
        return replace(plan, replication=kinds)

    def use_price(self, state: SystemState) -> FloatArray | None:
        """Price of giving devices blocks that may fail (..., N, K); ``None`` where failures have none.

        Args:
            state: The system before the round (...).
        """
        risk = state.processes.get(PRESENCE, {}).get(RISK)
        return (
            None
            if risk is None or self.failure_price == 0.0
            else self.tradeoff_v * self.failure_price * np.asarray(risk)
        )

    def extra_price(self, state: SystemState) -> FloatArray | None:
        """Price of the energy of devices that are warm (..., N, K+1) [1/J]; ``None`` where heat has none.

        Args:
            state: The system before the round (...).
        """
        heat = state.processes.get("heat")
        if heat is None or self.heat_price == 0.0:
            return None
        headroom = np.asarray(heat["headroom"], dtype=np.float64)
        price = self.tradeoff_v * self.heat_price * heat_ramp(headroom, self.heat_start)
        return np.concatenate((np.zeros_like(price[..., :1]), price), axis=-1)


def heat_ramp(headroom: FloatArray, start: float) -> FloatArray:
    """Part of the price of heat that a device pays, ``max(headroom - start, 0) / (1 - start)``.

    Args:
        headroom: Thermal headroom (...), 0 at 25 C and 1 at the governor's set point, where the ramp is 1.
        start: Headroom at which it begins, in [0, 1).
    """
    ramp: FloatArray = np.maximum(headroom - start, 0.0) / (1.0 - start)
    return ramp
