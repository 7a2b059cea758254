"""Other tenants of the edge server: a slow Markov chain over the share that they use."""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.dynamics.level_chain import LevelChain
from collapipe_env.ground.arrays import Array, Constant
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.fields import OnlyIf, field, real, spec
from collapipe_env.scenario.server_section import TENANTS, term_values
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.system import System

MOST_SHARE = 0.95
"""Largest share that others may use."""


@spec
class TenantsSpec:
    """Fields of ``dynamics.processes.tenants``."""

    levels: tuple[float, ...] = field(
        (0.2, 0.6, 0.9), f"shares of the server that other tenants may use, ascending, 0 to {MOST_SHARE}"
    )
    stay_probability: float = real(
        0.95,
        "probability that the share stays for the next round",
        "[0, 1]",
        OnlyIf("with two or more levels", lambda spec: len(spec.levels) > 1),
    )

    def __post_init__(self) -> None:
        levels = list(self.levels)
        if not levels or sorted(set(levels)) != levels or not 0.0 <= levels[0] <= levels[-1] <= MOST_SHARE:
            raise ValueError(f"levels are {levels}: give one or more from 0 to {MOST_SHARE}, ascending")


class Tenants(Process):
    """Share ``rho`` of the server that others use ([X]), the same for all clusters of an environment.

    Its level is a :class:`LevelChain` with ``stay_probability``. Episodes begin in the stationary law: .2, .6
    and .9 have the mean .575. Decisions do not affect it.

    It is on where the scenario names it, and under ``server.terms: contended`` unless ``server.tenants`` is
    given.
    """

    name = TENANTS
    endogenous = False
    Spec = TenantsSpec

    def __init__(self, scenario: Scenario, spec: TenantsSpec) -> None:
        super().__init__(scenario, spec)
        self._levels = Constant(np.asarray(spec.levels, dtype=np.float64))
        self._chain = LevelChain(len(spec.levels), spec.stay_probability)
        self.numbers = 1
        about = "share of the server that other tenants use"
        self.carries = {
            "level": CarriedArray("", "levels", 0, self._chain.last, "whole"),
            "share": CarriedArray("", low=0.0, high=1.0, seen="always", shown=(0.0, 1.0), about=about),
        }

    @classmethod
    def of(cls, scenario: Scenario) -> Process | None:
        """On where the scenario names it, or its terms of the server imply it."""
        spec = dict(scenario.dynamics.processes).get(TENANTS)
        if spec is None and term_values(scenario.server).chain:
            spec = TenantsSpec()
        return None if spec is None else cls(scenario, spec)

    def begin(self, system: System, u: Array) -> Carried:
        """Start in the stationary law."""
        return self._at(self._chain.begun(u[:, 0]), system.speed)

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Any) -> Carried:  # noqa: ARG002
        """One step of the chain, whatever time has passed."""
        return self._at(self._chain.moved(carried["level"], u[:, 0]), carried["share"])

    def _at(self, level: Array, like: Array) -> Carried:
        """Levels with their shares, of the type of another array."""
        return {"level": level, "share": self._levels.like(like)[level]}

    def apply(self, system: System, carried: Carried) -> System:
        """Leave the clusters the share that the tenants do not use."""
        return system._replace(server_share=1.0 - carried["share"])

    def check(self, carried: Carried) -> None:
        """Refuse shares of other levels."""
        shares = np.asarray(self.spec.levels)[carried["level"]]
        if (np.abs(carried["share"] - shares) > 1e-6).any():
            raise StateError(f"simulator/processes/{TENANTS}/share is not that of its level: {REMEDY}")
