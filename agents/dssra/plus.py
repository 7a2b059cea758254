"""DSSRA+: DSSRA with a few tuned scalars for effects beyond one round ([X]).

DSSRA looks one round ahead. Where rounds have lasting effects, it misses moves that pay off over several
rounds, heats devices that would have stayed cool, and trusts channels that were measured wrongly. One number
for each of these effects helps a lot and makes DSSRA+ the baseline that learned schedulers have to beat
(`docs/dssra.md`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from collapipe_env.agents.link_filter import LinkFilter
from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Parameters
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.dssra_plus_section import DSSRA_PLUS_RANGES
from collapipe_env.simulator.state import SystemState

from .argument_checks import require_number
from .gain_memory import GainFilter, ShrunkGains
from .hazard_memory import RISK, failure_risk
from .policy import DSSRA


class DSSRAPlus(DSSRA):
    """DSSRA that prices moves, heat and channels with tuned scalars; with neutral values it is DSSRA.

    Each round it minimises DSSRA's objective with five changes:

    - the moments of moved blocks are weighted by ``migration_weight``, in time and in energy. Below 1 this
      spreads a move's price over the rounds for which the new plan lives; above 1 plans change more rarely.
      The played round is still charged in full;
    - a device's energy costs ``V heat_price g(headroom)`` more per joule, where ``g`` is :func:`heat_ramp` of
      its thermal headroom before the round;
    - a device that holds any blocks costs ``V failure_price p`` more, where ``p`` is its probability of
      failure within ``T_ref``, estimated from the length of its stay
      (:class:`~.hazard_memory.HazardMemory`);
    - gains are shrunk towards each link's mean (:class:`~.gain_memory.ShrunkGains`) or filtered otherwise;
    - device-to-device gains are then taken ``gain_caution`` standard deviations of their prediction
      (:class:`~collapipe_env.agents.link_filter.LinkFilter`) lower, since a hop that turns out worse than
      expected costs more time than a better one saves.

    Scalars that are not given are taken from the scenario's section ``dssra_plus``. A scalar without an
    effect in the scenario, such as a price of heat where nothing heats, changes nothing.

    Args:
        migration_weight: Weight of moving blocks, >= 0; neutral is 1.
        heat_price: Price of a joule in a device at its set point, in seconds of a round's delay [s/J], >= 0;
            neutral is 0.
        heat_start: Thermal headroom at which that price begins, in [0, 1).
        channel_weight: Weight of the observed gains, in [0, 1]; neutral is 1.
        failure_price: Price of the failure of a device with blocks, in seconds of a round's delay [s], >= 0;
            neutral is 0.
        gain_caution: Standard deviations by which device-to-device gains are taken lower, from 0 to 10;
            neutral is 0.
        gain_filter: Estimator of gains that replaces ``channel_weight``, which then has no effect.
        options: Options of :class:`DSSRA`.

    Raises:
        AllocationError: If an argument is out of range.
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
        gain_caution: float | None = None,
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
        self.gain_caution: float = chosen("gain_caution", gain_caution)
        self._gains = ShrunkGains(self.channel_weight) if gain_filter is None else gain_filter
        self._links = LinkFilter(scenario) if self.gain_caution > 0.0 else None
        self._risk = failure_risk(scenario) if self.failure_price > 0.0 else None
        rules = self.parameters.migration
        if rules is not None and self.migration_weight != 1.0:
            bits = self.migration_weight * rules.block_bits
            # Weight 0 leaves moves out altogether: 0 bits over a dead link would not take 0 s.
            weighed = rules._replace(block_bits=bits) if bits > 0.0 else None
            self.parameters: Parameters = replace(self.parameters, migration=weighed)

    def reset(self, seed: int | None = None) -> None:  # noqa: ARG002 - part of the interface
        """Forget the gains and stays of earlier rounds; nothing is random."""
        self._gains.reset()
        if self._links is not None:
            self._links.reset()
        if self._risk is not None:
            self._risk.reset()

    def allocate(self, state: SystemState, start: Allocation | None = None) -> Allocation:
        """Decide one round, see :meth:`DSSRA.allocate`; the gains of each row are remembered.

        Args:
            state: The system before the round (E, ...); row ``i`` is the same environment in every call.
            start: Feasible plan from which the search starts (E, ...).

        Raises:
            AllocationError: If the devices present in some cluster cannot hold the encoder, and all clusters
                have to take part.
        """
        if self._risk is not None:
            state = self._risk.added(state)
        seen = self._gains.update(state)
        if self._links is not None:
            self._links.update(state)
            below_db = self.gain_caution * self._links.hop_deviation_db()
            lower = 10.0 ** (-np.asarray(below_db)[..., None, None, None] / 10.0)
            seen = replace(seen, d2d_gain=seen.d2d_gain * lower)
        return super().allocate(seen, start)

    def use_price(self, state: SystemState) -> FloatArray | None:
        """Price of giving blocks to devices that may fail (..., N, K); ``None`` where failures have no price.

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
        """Price of the energy of warm devices (..., N, K+1) [1/J]; ``None`` where heat has no price.

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
    """Fraction of the price of heat that a device pays, ``max(headroom - start, 0) / (1 - start)``.

    Args:
        headroom: Thermal headroom (...), 0 at 25 C and 1 at the governor's set point, where the ramp is 1.
        start: Headroom at which it begins, in [0, 1).
    """
    ramp: FloatArray = np.maximum(headroom - start, 0.0) / (1.0 - start)
    return ramp
