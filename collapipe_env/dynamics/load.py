"""Background load of devices: a slow Markov chain over speed factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, namespace
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.system import System


class Load(Process):
    """Share of its full speed that each device has ([X]): ``dynamics.load_levels`` in their order.

    In each round a device keeps its level with ``dynamics.load_stay_probability``. Otherwise it moves to a
    neighbouring level, either one with equal probability (at the ends, to the only one). The process is off
    where the only level is 1.
    """

    name = "load"
    endogenous = False

    def __init__(self, scenario: Scenario, spec: Any = None) -> None:
        super().__init__(scenario, spec)
        dynamics = scenario.dynamics
        self._shape = (scenario.clusters, scenario.max_devices)
        levels = np.asarray(dynamics.load_levels, dtype=np.float64)
        self._levels, self._last = Constant(levels), len(levels) - 1
        self.carries = {"level": CarriedArray("N K", "levels", 0, self._last, "whole", seen="never")}
        # At the only level it stays.
        self._stay = dynamics.load_stay_probability if self._last else 1.0
        # Inner levels have two neighbours to come from, the ends one: the stationary law is 1, 2, ..., 2, 1.
        weights = np.full(len(levels), 2.0)
        weights[[0, -1]] = 1.0
        # Uniform numbers are below 1, so without the last edge the index stays below the number of levels.
        self._edges = Constant(np.cumsum(weights / weights.sum())[:-1])
        self.numbers = math.prod(self._shape)

    @classmethod
    def of(cls, scenario: Scenario) -> Process | None:
        """On where devices can have less than their full speed."""
        return None if scenario.dynamics.load_levels == (1.0,) else cls(scenario)

    def begin(self, system: System, u: Array) -> Carried:
        """Start in the stationary law."""
        xp = namespace(system.speed)
        level = xp.searchsorted(self._edges.like(u), xp.reshape(u, (-1,)), side="right")
        return {"level": xp.reshape(xp.astype(level, xp.int64), (-1, *self._shape))}

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Any) -> Carried:  # noqa: ARG002
        """One step of the chain, whatever time has passed."""
        xp = namespace(u)
        u = xp.reshape(u, (-1, *self._shape))
        level = carried["level"]
        # The part of the unit interval beyond `stay` is cut in half: down, up; at the ends there is one way.
        up = (u >= self._stay + 0.5 * (1.0 - self._stay)) & (level < self._last) | (level == 0)
        moves = xp.astype(u >= self._stay, xp.int64)
        return {"level": level + moves * (2 * xp.astype(up, xp.int64) - 1)}

    def apply(self, system: System, carried: Carried) -> System:
        """Slow the devices down."""
        return system._replace(speed=system.speed * self.factor(carried, system.speed))

    def factor(self, carried: Carried, like: Array) -> Array:
        """Shares of the full speed (R, N, K), of the type of another array."""
        return self._levels.like(like)[carried["level"]]
