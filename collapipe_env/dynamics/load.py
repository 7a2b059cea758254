"""Background load of devices: a slow Markov chain over speed factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from collapipe_env.dynamics.level_chain import LevelChain
from collapipe_env.ground.arrays import Array, Constant, namespace
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.system import System


class Load(Process):
    """Share of its full speed that each device has ([X]): ``dynamics.load_levels`` in their order.

    The level of each device is a :class:`LevelChain` of its own with ``dynamics.load_stay_probability``. The
    process is off where the only level is 1.
    """

    name = "load"
    endogenous = False

    def __init__(self, scenario: Scenario, spec: Any = None) -> None:
        super().__init__(scenario, spec)
        dynamics = scenario.dynamics
        self._shape = (scenario.clusters, scenario.max_devices)
        self._levels = Constant(np.asarray(dynamics.load_levels, dtype=np.float64))
        self._chain = LevelChain(len(dynamics.load_levels), dynamics.load_stay_probability)
        self.carries = {"level": CarriedArray("N K", "levels", 0, self._chain.last, "whole", seen="never")}
        self.numbers = math.prod(self._shape)

    @classmethod
    def of(cls, scenario: Scenario) -> Process | None:
        """On where devices can have less than their full speed."""
        return None if scenario.dynamics.load_levels == (1.0,) else cls(scenario)

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - the interface
        """Start in the stationary law."""
        return {"level": self._chain.begun(self._each(u))}

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Any) -> Carried:  # noqa: ARG002
        """One step of the chain, whatever time has passed."""
        return {"level": self._chain.moved(carried["level"], self._each(u))}

    def _each(self, u: Array) -> Array:
        """The number of each device (R, N, K)."""
        return namespace(u).reshape(u, (-1, *self._shape))

    def apply(self, system: System, carried: Carried) -> System:
        """Slow the devices down."""
        return system._replace(speed=system.speed * self.factor(carried, system.speed))

    def factor(self, carried: Carried, like: Array) -> Array:
        """Shares of the full speed (R, N, K), of the type of another array."""
        return self._levels.like(like)[carried["level"]]
