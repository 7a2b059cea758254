"""Battery: devices spend their charge, are charged now and then, and sit out while the charge is low."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collapipe_env.arrays import Array, Constant, at_least, namespace
from collapipe_env.dynamics.battery_spec import BatterySpec
from collapipe_env.dynamics.process import Carried, Limits, Observed, Process
from collapipe_env.dynamics.randomness import normal
from collapipe_env.dynamics.sojourns import LognormalStay
from collapipe_env.dynamics.system import System, split_links
from collapipe_env.errors import StateError
from collapipe_env.physics.batteries import (
    DAY_S,
    charge_after,
    eligible_after,
    energy_caps,
    memory_for,
    plugged_seconds,
    round_demand,
    solar_power,
)
from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.thermal import ambient_after
from collapipe_env.scenario import Scenario
from collapipe_env.state_trees import LARGEST_NUMBER, REMEDY, require_within

BATTERY = "battery"
"""Name of the process, for modules that show its carried arrays."""
SHORTEST_S = 1e-6
"""Least remaining time of a charger's state after a round [s]; at most one state ends in a round."""
OF_CHARGER = 5
"""Uniform numbers of a device's charger: state, power, remaining time; two for a time on or off."""
BOOKS = ("start_j", "drawn_j", "gained_j", "deficit_j", "spilled_j")
"""Carried arrays of an episode's energy accounts, in joules."""
FARTHEST = 20.0
"""Standard deviations from the mean at which clouds count as a damaged file."""


class Battery(Process):
    """Battery of each device ([X]), which the device discharges and a source charges.

    ``b' = clip(b - E - P_id Delta + eta_c A Delta, 0, B)``; the clipped amounts count as deficit and spill
    (:mod:`collapipe_env.physics.batteries`). The drain lasts as long as the round. Sources are independent of
    plans and therefore move by ``T_ref``, unless ``dynamics.time_base`` is ``real``. Devices below a level
    may not take part until they are above another; they count as away. The others hold no more blocks than
    their charge can pay for: their memory is reduced accordingly, and every plan is decoded within it.

    It carries, for each device (R, N, K):

    - ``charge`` [J] and ``eligible``, bool: whether it may take part;
    - the energy accounts since the start of the episode [J]: ``start_j``, the initial charge, ``drawn_j``,
      ``gained_j``, ``deficit_j``, the energy drawn beyond an empty battery, and ``spilled_j``, the energy
      that a full battery did not take: ``charge = start_j - drawn_j + gained_j + deficit_j - spilled_j``;
    - with a source ``harvest_w`` [W], its present power;
    - with a charger ``plugged``, bool, ``charger_w`` [W] and ``residual_s`` [s], the remaining time of the
      charger's state, which schedulers never receive. With a panel ``time_s`` (R,) [s], the time of the day,
      and ``cloud`` (R, N), the fraction that clouds let through, before it is clipped to [0, 1].

    Args:
        scenario: The scenario.
        spec: Batteries, their source, and the levels of eligibility.
    """

    name = BATTERY
    after = ("presence", "mobility", "load", "heat")
    endogenous = True
    leaves_clusters_short = True
    hidden = ("residual_s",)
    Spec = BatterySpec

    @classmethod
    def idle_fields(cls, spec: BatterySpec) -> Mapping[str, str]:
        """Fields of the other sources."""
        charger = ("charger_min_w", "charger_max_w", "charger_on_s", "charger_off_s", "charger_deviation")
        solar = ("panel_w", "cloud_mean", "cloud_sd", "cloud_tau_s")
        found: dict[str, str] = {}
        if spec.harvest != "charger":
            found |= dict.fromkeys(charger, "it is used only with harvest: charger")
        if spec.harvest != "solar":
            found |= dict.fromkeys(solar, "it is used only with harvest: solar")
        if spec.harvest == "none":
            found["efficiency"] = "it is used only with harvest: charger or solar"
        elif spec.harvest == "solar" and spec.cloud_sd == 0.0:
            found["cloud_tau_s"] = "it is used only with cloud_sd above 0"
        return found

    def __init__(self, scenario: Scenario, spec: BatterySpec) -> None:
        super().__init__(scenario, spec)
        N, K = scenario.clusters, scenario.max_devices
        self._devices, self._count = (N, K), N * K
        there = np.arange(K) < np.asarray(scenario.cluster.devices_per_cluster)[:, None]
        self._there = Constant(there)
        self.numbers = self._count
        if spec.harvest == "charger":
            self.numbers += OF_CHARGER * self._count
        elif spec.harvest == "solar":
            self.numbers += 1 + N + N % 2
        self._on = LognormalStay(spec.charger_on_s, spec.charger_deviation)
        self._off = LognormalStay(spec.charger_off_s, spec.charger_deviation)
        # Imported here: the simulator is built on processes.
        from collapipe_env.simulator.build import system_parameters, usual_round

        self._parameters = system_parameters(scenario)
        self._usual_s = usual_round(scenario)
        self._steady = scenario.dynamics.time_base != "real"
        battery_j = spec.battery_j
        self.observed = (
            Observed("charge", (N, K), "J", 0.0, battery_j, "charge of the battery that training may use"),
            Observed("eligible", (N, K), "1", 0.0, 1.0, "1 for a device whose battery lets it take part"),
        )
        most_w = {"none": 0.0, "charger": spec.charger_max_w, "solar": spec.panel_w}[spec.harvest]
        if most_w > 0.0:
            source = "present power of the source that charges the device"
            self.observed += (Observed("harvest_w", (N, K), "W", 0.0, most_w, source),)

    def begin(self, system: System, u: Array) -> Carried:  # noqa: ARG002 - the interface
        """Start with drawn levels, and sources in their stationary law."""
        xp, spec, N = namespace(u), self.spec, self._devices[0]
        there = self._there.like(u, xp.bool)
        level = xp.reshape(u[:, : self._count], (u.shape[0], *self._devices))
        level = spec.start_min + (spec.start_max - spec.start_min) * level
        charge = xp.where(there, spec.battery_j * level, 0.0)
        books = {name: xp.zeros_like(charge) for name in BOOKS} | {"start_j": charge}
        carried: dict[str, Array] = {"charge": charge, "eligible": there & (level >= spec.off_below), **books}
        if spec.harvest == "charger":
            state, power, left, noise = self._of_chargers(u)
            plugged = (state < spec.charger_on_s / (spec.charger_on_s + spec.charger_off_s)) & there
            residual = xp.where(plugged, self._on.left(left, noise), self._off.left(left, noise))
            carried["charger_w"] = spec.charger_min_w + (spec.charger_max_w - spec.charger_min_w) * power
            carried["plugged"], carried["residual_s"] = plugged, at_least(residual, SHORTEST_S)
        elif spec.harvest == "solar":
            carried["time_s"] = DAY_S * u[:, self._count]
            carried["cloud"] = spec.cloud_mean + spec.cloud_sd * self._weather(u, N)
        return self._with_power(carried)

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Array) -> Carried:  # noqa: ARG002
        """Draw the energy of the round, charge, and decide which devices may take part.

        Args:
            carried: Arrays of the round just played.
            state: Unused.
            costs: Costs of the round (R, ...).
            u: Numbers of the next round (R, numbers).
            delta_s: Seconds that passed for the devices (R,).
        """
        xp, spec = namespace(carried["charge"]), self.spec
        seconds = xp.astype(delta_s, xp.float64)[:, None, None]
        there = self._there.like(u, xp.bool)
        drawn = xp.astype(costs.energy[..., 1:], xp.float64) + spec.idle_w * seconds
        drawn = xp.where(there, drawn, 0.0)
        passed = xp.full_like(seconds, self._usual_s) if self._steady else seconds
        joules, moved = self._source(carried, u, passed)
        gained = xp.where(there, spec.efficiency * joules, 0.0)
        charged = charge_after(carried["charge"], drawn, gained, spec.battery_j)
        level = charged.charge / spec.battery_j
        following: dict[str, Array] = {
            **carried,
            **moved,
            "charge": charged.charge,
            "eligible": eligible_after(carried["eligible"], level, spec.off_below, spec.on_above) & there,
        }
        for name, joules in zip(BOOKS[1:], (drawn, gained, charged.deficit, charged.spill), strict=True):
            following[name] = carried[name] + joules
        return self._with_power(following)

    def _source(self, carried: Carried, u: Array, passed: Array) -> tuple[Array, Carried]:
        """Energy from the source in a round (R, N, K) [J], and its changed arrays.

        Args:
            carried: Arrays of the round.
            u: Numbers of the next round (R, numbers).
            passed: Seconds (R, 1, 1).
        """
        xp, spec = namespace(u), self.spec
        if spec.harvest == "none":
            return xp.zeros_like(carried["charge"]), {}
        if spec.harvest == "solar":
            normals = self._weather(u, self._devices[0])
            cloud = ambient_after(
                carried["cloud"], spec.cloud_mean, passed[..., 0], spec.cloud_tau_s, spec.cloud_sd, normals
            )
            time_s = carried["time_s"] + passed[:, 0, 0]
            return carried["harvest_w"] * passed, {
                "cloud": cloud,
                "time_s": time_s - DAY_S * xp.floor(time_s / DAY_S),
            }
        plugged, residual = carried["plugged"], carried["residual_s"]
        joules = carried["charger_w"] * plugged_seconds(plugged, residual, passed)
        *_, noise = self._of_chargers(u)
        ends = residual <= passed
        further = xp.where(plugged, self._off.drawn(noise), self._on.drawn(noise))
        left = residual - passed + xp.where(ends, further, 0.0)
        return joules, {
            "plugged": (plugged ^ ends) & self._there.like(u, xp.bool),
            "residual_s": at_least(left, SHORTEST_S),
        }

    def _with_power(self, carried: dict[str, Array]) -> Carried:
        """Carried arrays with the power of the source now."""
        if self.spec.harvest == "none":
            return carried
        return {**carried, "harvest_w": self._power(carried)}

    def _power(self, carried: Carried) -> Array:
        """Present power of the source (R, N, K) [W]; 0 for devices that the layout lacks."""
        xp = namespace(carried["charge"])
        if self.spec.harvest == "charger":
            return xp.where(carried["plugged"], carried["charger_w"], 0.0)
        power = solar_power(self.spec.panel_w, carried["time_s"][:, None], carried["cloud"])[..., None]
        return xp.where(self._there.like(power, xp.bool), power, 0.0)

    def limits(self, carried: Carried) -> Limits:
        """Devices that may not take part count as away."""
        return Limits(present=carried["eligible"])

    def limits_under(self, system: System, carried: Carried) -> Limits:
        """In addition, no device holds more blocks than its charge can pay for at its present clock."""
        xp = namespace(system.speed)
        gains = system.link_gain if system.known_gain is None else system.known_gain
        small = system.small_scale if system.known_gain is None else None
        _, d2d_gain = split_links(gains, small, self._devices)
        present = system.present & carried["eligible"]
        power = compute_power(
            system.speed,
            system.flops_per_cycle,
            system.switched_capacitance,
            system.active_power,
            system.full_speed,
        )
        clock = system.speed / system.flops_per_cycle
        demand = round_demand(
            self._parameters, present, system.speed, clock, power, d2d_gain, system.cross_gain
        )
        charge = xp.astype(carried["charge"], system.speed.dtype)
        costs = self._parameters.costs
        caps = energy_caps(charge, demand, self.spec.idle_w * self._usual_s, costs.blocks)
        return Limits(memory_bytes=memory_for(caps, costs), present=carried["eligible"])

    def check(self, carried: Carried) -> None:
        """Refuse charges outside the battery, accounts that do not balance, and impossible sources."""
        place, spec = f"simulator/processes/{self.name}", self.spec
        battery_j = spec.battery_j
        require_within(carried["charge"], 0.0, battery_j, f"{place}/charge")
        for name in BOOKS:
            require_within(carried[name], 0.0, LARGEST_NUMBER, f"{place}/{name}")
        start, drawn, gained, deficit, spilled = (carried[name] for name in BOOKS)
        wrong = np.abs(start - drawn + gained + deficit - spilled - carried["charge"])
        if (wrong > 1e-6 * (battery_j + drawn + gained)).any():
            raise StateError(f"{place}: the energy accounts do not add up to the charge: {REMEDY}")
        level = carried["charge"] / battery_j
        if (carried["eligible"] & ((level < spec.off_below) | ~self._there.values)).any():
            raise StateError(f"{place}/eligible is True for a device below off_below: {REMEDY}")
        if (~carried["eligible"] & (level > spec.on_above)).any():
            raise StateError(f"{place}/eligible is False for a device above on_above: {REMEDY}")
        if spec.harvest == "none":
            return
        if spec.harvest == "charger":
            require_within(carried["charger_w"], spec.charger_min_w, spec.charger_max_w, f"{place}/charger_w")
            require_within(carried["residual_s"], SHORTEST_S, LARGEST_NUMBER, f"{place}/residual_s")
        else:
            far = FARTHEST * spec.cloud_sd
            require_within(carried["time_s"], 0.0, DAY_S, f"{place}/time_s")
            require_within(carried["cloud"], spec.cloud_mean - far, spec.cloud_mean + far, f"{place}/cloud")
        if (np.abs(carried["harvest_w"] - self._power(carried)) > 1e-6).any():
            raise StateError(f"{place}/harvest_w does not agree with the source: {REMEDY}")

    def _weather(self, u: Array, clusters: int) -> Array:
        """Standard normal numbers of the clouds (R, N)."""
        return normal(u[:, self._count + 1 :])[:, :clusters]

    def _of_chargers(self, u: Array) -> tuple[Array, Array, Array, Array]:
        """Three uniform numbers and a normal one of each device's charger (R, N, K)."""
        xp, rows = namespace(u), u.shape[0]
        each = xp.reshape(u[:, self._count :], (rows, *self._devices, OF_CHARGER))
        pair = xp.reshape(each[..., 3:], (rows, -1))
        noise = xp.reshape(normal(pair), (rows, *self._devices, 2))[..., 0]
        return each[..., 0], each[..., 1], each[..., 2], noise
