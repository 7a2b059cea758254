"""Small-scale fading of all links (`system_model.md` section 3)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.records import SMALLEST
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.randomness import MOST_FACTORS, normal
from collapipe_env.simulator.system import System, link_count


class Fading(Process):
    """Mean power of ``m`` complex Gaussian AR(1) branches on every link ([R]).

    ``g_i(t) = rho g_i(t-1) + sqrt(1 - rho^2) w_i(t)``, ``w ~ CN(0, 1)``, gain ``= mean_i |g_i|^2``
    (Nakagami-m; rho = 0 is i.i.d. from round to round). ``radio.diversity`` is ``m``,
    ``radio.fading_correlation`` is ``rho``.

    Without memory only the power of a branch matters, which is exponential: minus the logarithm of a uniform
    number. The process then carries the gain. With memory it carries the branches, two numbers each.

    Args:
        spec: Not used; the fields are in ``radio``.
        links: Links, ``None`` for all of the scenario.
        correlation: ``rho``, ``None`` for the scenario's.
    """

    name = "fading"
    endogenous = False
    after = ("shadowing",)

    def __init__(
        self,
        scenario: Scenario,
        spec: Any = None,
        *,
        links: int | None = None,
        correlation: float | None = None,
    ) -> None:
        super().__init__(scenario, spec)
        self._links = link_count(scenario) if links is None else links
        self._rho = scenario.radio.fading_correlation if correlation is None else correlation
        self._diversity = scenario.radio.diversity
        m = self._diversity
        if self._rho > 0.0:
            self.numbers = self._links * 2 * m
            self.carries = {"branches": CarriedArray(f"links {2 * m}", seen="never")}
        else:
            self.numbers, self.factors = self._links * m, m if m <= MOST_FACTORS else 1
            self.carries = {"gain": CarriedArray("links", low=SMALLEST, seen="never")}

    @classmethod
    def of(cls, scenario: Scenario) -> Process:
        """Always on."""
        return cls(scenario)

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - the interface
        """Start in the stationary law."""
        return {"gain": self._independent(u)} if self._rho == 0.0 else {"branches": self._fresh(u)}

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Any) -> Carried:  # noqa: ARG002
        """One step of the AR(1) branches, whatever time has passed."""
        if self._rho == 0.0:
            return {"gain": self._independent(u)}
        moved = math.sqrt(1.0 - self._rho**2) * self._fresh(u)
        return {"branches": self._rho * carried["branches"] + moved}

    def apply(self, system: System, carried: Carried) -> System:
        """Set the links' small-scale gains."""
        gain = self.gain(carried)
        if gain.dtype != system.link_gain.dtype:
            gain = namespace(gain).astype(gain, system.link_gain.dtype)
        before = system.small_scale
        return system._replace(small_scale=gain if before is None else before * gain)

    def gain(self, carried: Carried) -> Array:
        """Small-scale gains (R, links), float64."""
        return carried["gain"] if self._rho == 0.0 else self._mean_power(carried["branches"])

    def check(self, carried: Carried) -> None:
        """Refuse gains with which links would be dead."""
        if not (self.gain(carried) >= SMALLEST).all():
            raise StateError(f"simulator/processes/fading gives a gain below {SMALLEST:g}: {REMEDY}")

    def _independent(self, u: Array) -> Array:
        """Gamma(m) / m (R, links): a sum of exponentials is minus the logarithm of a product."""
        m = self._diversity
        # The numbers were drawn for this process alone, so overwriting them saves new memory.
        total = np.log(u, out=u) if type(u) is np.ndarray else namespace(u).log(u)
        if m > MOST_FACTORS:
            xp = namespace(u)
            total = xp.sum(xp.reshape(total, (total.shape[0], self._links, m)), axis=-1)
        total *= -1.0 / m
        return total

    def _fresh(self, u: Array) -> Array:
        """New branches (R, links, 2 m), real and imaginary parts."""
        numbers = normal(u)
        return namespace(u).reshape(numbers, (numbers.shape[0], self._links, 2 * self._diversity))

    def _mean_power(self, branches: Array) -> Array:
        # Real and imaginary parts of a CN(0, 1) branch have variance 1/2 each.
        if type(branches) is np.ndarray:
            power = np.einsum("...i,...i->...", branches, branches)
        else:
            power = namespace(branches).sum(branches * branches, axis=-1)
        return power / (2.0 * self._diversity)
