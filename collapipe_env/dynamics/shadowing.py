"""Log-normal shadowing, drawn once per episode."""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, namespace
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.randomness import normal
from collapipe_env.simulator.system import System, link_count


class Shadowing(Process):
    """Gains in dB that are normal with the scenario's deviations ([R]); a pair's is the same both ways.

    ``radio.d2e_shadowing_db`` holds for uplinks, ``radio.d2d_shadowing_db`` for pairs of a cluster; null
    stands for the deviation of the law of their path loss, with or without a line of sight as the layout drew
    it. It is always on: a deviation of 0 multiplies by 1.
    """

    name = "shadowing"
    endogenous = False

    def __init__(self, scenario: Scenario, spec: Any) -> None:
        super().__init__(scenario, spec)
        (d2e, d2d), self._links = scenario.radio.shadowing_db, link_count(scenario)
        self.carries = {"gain": CarriedArray("links", low=0.0, seen="never")}
        # Normal numbers come in pairs.
        self.numbers = self._links + self._links % 2
        deviation_db = np.full(self._links, d2d)
        deviation_db[: scenario.clusters] = d2e
        self._deviation_db = Constant(deviation_db)

    @classmethod
    def of(cls, scenario: Scenario) -> Process:
        """Always on."""
        return cls(scenario, None)

    def begin(self, system: System, u: Array) -> Carried:
        """Draw a gain for every link (R, links)."""
        xp = namespace(u)
        own = system.shadowing_db
        deviation_db = self._deviation_db.like(u) if own is None else xp.astype(own, u.dtype)
        gain = 10.0 ** (normal(u, 0, self._links) * deviation_db / 10.0)
        return {"gain": xp.astype(gain, system.link_gain.dtype)}

    def apply(self, system: System, carried: Carried) -> System:
        """Multiply the links' gains."""
        return system._replace(link_gain=system.link_gain * carried["gain"])
