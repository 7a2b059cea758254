"""Channel knowledge: schedulers know old, noisy or averaged gains; rounds play on the true ones."""

from __future__ import annotations

import math
from typing import Any, Literal

from collapipe_env.ground.arrays import Array, concatenate, namespace
from collapipe_env.physics.radio import gain_of
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.fields import OnlyIf, field, real, spec, whole
from collapipe_env.simulator.process import EVERY_OTHER, Carried, CarriedArray, Process
from collapipe_env.simulator.randomness import normal
from collapipe_env.simulator.system import System, joined_links, link_count

MOST_DELAY = 16
"""Largest age of a known gain in rounds."""

Mode = Literal["perfect", "delayed", "noisy", "mean"]
_DELAYED = OnlyIf("if modes include delayed", lambda spec: "delayed" in spec.modes)
_NOISY = OnlyIf("if modes include noisy", lambda spec: "noisy" in spec.modes)


@spec
class ChannelKnowledgeSpec:
    """Fields of ``dynamics.processes.channel_knowledge``.

    Raises:
        ScenarioError: If one is out of range, or modes exclude each other.
    """

    modes: tuple[Mode, ...] = field(
        ("delayed", "noisy"),
        "errors of known gains: any of delayed, noisy and mean, or only perfect; delayed and mean exclude "
        "each other",
    )
    delay_rounds: int = whole(1, "age `d` of `delayed` gains", 0, MOST_DELAY, _DELAYED)
    noise_db: float = real(
        2.0, "standard deviation `sigma_e` of the error of `noisy` gains", "[0, 30] dB", _NOISY
    )
    noise_correlation: float = real(
        0.0, "correlation `rho_e` of a link's errors from round to round", "[0, 1)", _NOISY
    )

    def __post_init__(self) -> None:
        modes = list(self.modes)
        if not modes:
            raise ValueError("modes is empty: give ['perfect'] for known gains that are the true ones")
        if len(set(modes)) < len(modes):
            raise ValueError(f"modes are {modes}: name each once")
        if "perfect" in modes and len(modes) > 1:
            raise ValueError(f"modes are {modes}: perfect cannot be combined with others")
        if {"delayed", "mean"} <= set(modes):
            raise ValueError(f"modes are {modes}: remove delayed, as a mean gain is not measured")

    @property
    def delay(self) -> int:
        """Age of known gains in rounds; 0 unless ``delayed``."""
        return self.delay_rounds if "delayed" in self.modes else 0

    @property
    def error_db(self) -> float:
        """Standard deviation of the error of known gains [dB]; 0 unless ``noisy``."""
        return self.noise_db if "noisy" in self.modes else 0.0


def hidden_gains(scenario: Scenario) -> ChannelKnowledgeSpec | None:
    """Rules by which a scenario's gains are known; ``None`` where they are known exactly."""
    spec: ChannelKnowledgeSpec | None = dict(scenario.dynamics.processes).get("channel_knowledge")
    return None if spec is None or "perfect" in spec.modes else spec


def gains_are_exact(scenario: Scenario) -> bool:
    """Whether schedulers know the gains of a round; a trace's are those before it."""
    return hidden_gains(scenario) is None and "traces" not in dict(scenario.dynamics.processes)


class ChannelKnowledge(Process):
    """Known gains of all links ([X]), which schedulers and observations receive instead of the true ones.

    ``G_hat(t) = G(t - d) 10^(e(t) / 10)`` with ``e(t) = rho_e e(t-1) + sqrt(1 - rho_e^2) sigma_e n(t)``, one
    error per link for both directions. ``mean`` replaces ``G`` by path loss and shadowing, without fading.
    In the first ``d`` rounds, before any measurement, the gain at the start of the episode counts, without
    fading. Path losses between clusters stay known. Where another process sets the known gains of uplinks
    before a round, as ``traces`` does, these replace the uplinks' gains in the round.

    It carries ``error_db`` where gains are noisy, and ``past_1`` to ``past_d``, the gains of one to ``d``
    rounds ago, where they are delayed.
    """

    name = "channel_knowledge"
    endogenous = False
    after = EVERY_OTHER
    Spec = ChannelKnowledgeSpec

    def __init__(self, scenario: Scenario, spec: ChannelKnowledgeSpec) -> None:
        super().__init__(scenario, spec)
        self._links = link_count(scenario)
        # Normal numbers come in pairs. Their count is the same with and without noise.
        self.numbers = self._links + self._links % 2
        self._mean = "mean" in spec.modes
        past = CarriedArray("links", low=0.0, seen="never")
        self.carries = {f"past_{age}": past for age in range(1, spec.delay + 1)}
        if spec.error_db > 0.0:
            # A normal number from a uniform one of 53 bits is below 9.
            most = 100.0 * spec.error_db
            self.carries["error_db"] = CarriedArray("links", "dB", -most, most, seen="never")

    def begin(self, system: System, u: Array) -> Carried:
        """Draw errors; only the gains without fading have been measured so far."""
        carried: dict[str, Array] = {}
        if self.spec.error_db > 0.0:
            carried["error_db"] = self._fresh(u)
        for age in range(1, self.spec.delay + 1):
            carried[f"past_{age}"] = self._measured(system, system.link_gain)
        return carried

    def _measured(self, system: System, gain: Array) -> Array:
        """Gains (R, links); for uplinks those before the round, if only these are known."""
        if system.known_gain is None:
            return gain
        N = self.scenario.clusters
        return concatenate((system.known_gain[:, :N], gain[:, N:]))

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Any) -> Carried:  # noqa: ARG002
        """Gains grow a round older, and errors move, whatever time has passed."""
        following: dict[str, Array] = {}
        if self.spec.error_db > 0.0:
            rho, fresh = self.spec.noise_correlation, self._fresh(u)
            if rho > 0.0:
                fresh = rho * carried["error_db"] + math.sqrt(1.0 - rho * rho) * fresh
            following["error_db"] = fresh
        for age in range(self.spec.delay, 1, -1):
            following[f"past_{age}"] = carried[f"past_{age - 1}"]
        if self.spec.delay:
            following["past_1"] = joined_links(state.uplink_gain, state.d2d_gain)
        return following

    def _fresh(self, u: Array) -> Array:
        """Errors of the stationary law (R, links) [dB]."""
        return self.spec.error_db * normal(u, 0, self._links)

    def apply(self, system: System, carried: Carried) -> System:
        """Set the known gains of the links."""
        xp, real = namespace(system.link_gain), system.link_gain.dtype
        if self.spec.delay:
            gain = carried[f"past_{self.spec.delay}"]
        elif self._mean or system.small_scale is None:
            gain = self._measured(system, system.link_gain)
        else:
            gain = self._measured(system, system.link_gain * system.small_scale)
        if self.spec.error_db > 0.0:
            gain = gain * xp.astype(gain_of(carried["error_db"]), real, copy=False)
        return system._replace(known_gain=gain)
