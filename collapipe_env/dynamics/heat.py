"""Heat: devices warm up with the power that they spend, and slow down when they are hot."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from collapipe_env.dynamics.heat_spec import HeatSpec, heat_numbers
from collapipe_env.ground.arrays import (
    Array,
    Constant,
    FloatArray,
    at_most,
    loop_array,
    loop_record,
    namespace,
    where,
)
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.kernels.heating import HeatPlan, HeatSystem, heat_rows
from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.recomputation import recomputation_terms
from collapipe_env.physics.thermal import (
    MOST_HEADROOM,
    HeatNumbers,
    allocated_power,
    ambient_after,
    clock_share,
    computing_seconds,
    governor_moves,
    headroom_after,
    held_back,
    moved_level,
    warmed,
)
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters, usual_round
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.randomness import normal
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import System

FARTHEST = 20.0
"""Standard deviations from the mean at which surroundings count as a damaged file."""
SLACK = 1e-4
"""Slack of numbers in saved states, which may be of single precision."""
STEP = 0.1
"""Step of the headroom that schedulers receive under ``visibility: realistic``, as phones report it."""

_NONE: FloatArray = np.empty((0, 0))
_NO_DEVICES: FloatArray = _NONE[:, None]
_READ = {
    "temperature": _NO_DEVICES,
    "ambient": _NONE,
    "paused": _NO_DEVICES.astype(np.bool_),
    "remainder": np.empty(0),
    "level": _NO_DEVICES.astype(np.int64),
    "full_power": _NO_DEVICES,
    "cubic": _NO_DEVICES.astype(np.bool_),
}
"""Carried arrays that the loop reads, each with one that stands for it where a governor lacks it."""
_WRITTEN = ("temperature", "reading", "headroom", "share")


class Heat(Process):
    """Temperature of each device, and the clock that its governor allows ([X]).

    A round heats a device with the energy of its busy phase and with its idle power all the time
    (:mod:`collapipe_env.physics.thermal`). At the end of the round the governor reads the temperature and
    caps the clock of the next round. Devices that are away cool down.
    """

    name = "heat"
    endogenous = True
    after = ("load",)
    Spec = HeatSpec

    def __init__(self, scenario: Scenario, spec: HeatSpec) -> None:
        super().__init__(scenario, spec)
        self.own = heat_numbers(spec)
        levels = np.asarray(self.own.levels, dtype=np.float64)
        self._levels, self._last = Constant(levels), len(levels) - 1
        self._steps = spec.governor != "ipa"
        self._drifts = spec.ambient_sd_k > 0.0
        # Normal numbers come in pairs, after the numbers from which the means are drawn.
        self.numbers = scenario.clusters if self._drifts or spec.ambient_max_c > spec.ambient_min_c else 0
        if self._drifts:
            self.numbers += scenario.clusters + scenario.clusters % 2
        self.carries = self._arrays()
        self._parameters = system_parameters(scenario)
        self._record = loop_record(HeatNumbers._make(map(float, self.own._replace(levels=1.0))))
        # Plans do not affect the surroundings, so these have the clock of exogenous processes.
        steady = self._drifts and scenario.dynamics.time_base != "real"
        self._reference_s = usual_round(scenario) if steady else None

    def _arrays(self) -> dict[str, CarriedArray]:
        """Declarations of the arrays that it carries."""
        spec, last, celsius = self.spec, self._last, partial(CarriedArray, "N K", "C", -273.15)
        told = partial(CarriedArray, "N K", seen="always")
        low, high = spec.ambient_min_c - SLACK, spec.ambient_max_c + SLACK
        most = FARTHEST * spec.ambient_sd_k
        headroom = (
            "thermal headroom: the temperature that the governor reads over its set point, both above 25 C"
        )
        shown, level = (0.0, MOST_HEADROOM), "level of the governor, 0 the full clock"
        found: dict[str, CarriedArray] = {
            "temperature": celsius(about="temperature of the device"),
            "reading": celsius(about="what the governor reads: the temperature of the working chip"),
            "headroom": told("1", *shown, shown=shown, about=headroom, resolution=STEP),
            "share": told("1", 0.0, 1.0, about="cap on the clock over the full clock"),
            "paused": CarriedArray("N K", kind="truth", about="above critical_c, and not yet cool since"),
            "ambient": CarriedArray("N", "C", low - most, high + most, about="surroundings of the cluster"),
        }
        if self._drifts:
            found["ambient_mean"] = CarriedArray("N", "C", low, high, about="mean of the surroundings")
        if self._steps:
            found["level"] = told("levels", 0, last, "whole", shown=(0.0, last), about=level)
            found["remainder"] = CarriedArray("", "s", 0.0, self.own.period_s, about="time since a move")
        else:
            found["full_power"] = CarriedArray("N K", "W", 0.0, about="power at the full clock")
            found["cubic"] = CarriedArray("N K", kind="truth", about="whether it grows with the clock's cube")
        return found

    def begin(self, system: System, u: Array) -> Carried:
        """Start at the temperatures of idle devices, with full clocks, in surroundings drawn per cluster."""
        xp, speed, own, spec = namespace(system.speed), system.speed, self.own, self.spec
        ambient = xp.full_like(speed[..., 0], spec.ambient_min_c)
        if self.numbers:
            drawn = xp.astype(u[:, : ambient.shape[1]], speed.dtype)
            ambient = ambient + (spec.ambient_max_c - spec.ambient_min_c) * drawn
        mean = ambient
        if self._drifts:
            ambient = mean + spec.ambient_sd_k * self._normals(u, mean)
        temperature = ambient[..., None] + own.resistance_k_per_w * self._idle(system.present, speed)
        carried = {"ambient": ambient, "temperature": temperature}
        if self._drifts:
            carried["ambient_mean"] = mean
        reading = temperature + own.die_resistance_k_per_w * self._idle(system.present, speed)
        paused = reading > own.critical_c
        if self._steps:
            carried["remainder"] = xp.zeros_like(speed[:, 0, 0])
            carried["level"] = xp.zeros_like(speed, dtype=xp.int64)
        else:
            full = system.full_speed
            carried["full_power"] = compute_power(
                full, system.flops_per_cycle, system.switched_capacitance, system.active_power, full
            )
            carried["cubic"] = system.switched_capacitance > 0.0
        return {**carried, **self._read(carried, reading, paused)}

    def _idle(self, present: Array, like: Array) -> Array:
        """Idle power (R, N, K) [W]; 0 for devices that are away."""
        return self.own.idle_w * namespace(like).astype(present, like.dtype)

    def _normals(self, u: Array, like: Array) -> Array:
        """Standard normal numbers (R, N), of the type of another array (R, N)."""
        N = like.shape[1]
        return namespace(like).astype(normal(u, N, N), like.dtype)

    def _surroundings(self, carried: Carried, u: Array | None, delta_s: Array) -> Array:
        """Surroundings in the next round (R, N) [C]; unchanged where nothing is drawn."""
        ambient, xp = carried["ambient"], namespace(carried["ambient"])
        if u is None or not self._drifts:
            return ambient
        passed = xp.zeros_like(ambient) + (
            delta_s[:, None] if self._reference_s is None else self._reference_s
        )
        tau_s, sd_k = self.spec.ambient_tau_s, self.spec.ambient_sd_k
        return ambient_after(ambient, carried["ambient_mean"], passed, tau_s, sd_k, self._normals(u, ambient))

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array | None, delta_s: Array) -> Carried:
        """Heat and cool the devices over the round, then move the governors and the surroundings.

        The numbers ``u`` are ``None`` for constant surroundings.
        """
        plan, running = costs.allocation, running_state(state, costs.allocation)
        following = {**carried, "ambient": self._surroundings(carried, u, delta_s)}
        if type(delta_s) is np.ndarray:
            return {**following, **self._in_loops(carried, running, costs, delta_s)}
        own, each = self.own, delta_s[..., None, None]
        temperature, reading = warmed(
            own,
            self._parameters.radio_power,
            carried["temperature"],
            carried["ambient"][..., None],
            plan.device_power,
            costs.busy_energy[..., 1:],
            computing_seconds(self._parameters, plan, running.speed, running.clock),
            running.compute_power,
            self._idle(state.present, costs.energy),
            each,
        )
        following["temperature"] = temperature
        if self._steps:
            moves, left = governor_moves(carried["remainder"], delta_s, own.period_s)
            following["remainder"], moves = left, moves[..., None, None]
            following["level"] = moved_level(
                carried["level"], reading, moves, self._last, own.set_c, own.hysteresis_k
            )
        paused = held_back(own, reading, carried["paused"])
        return {**following, **self._read(following, reading, paused)}

    def _in_loops(self, carried: Carried, running: SystemState, costs: RoundCosts, delta_s: Array) -> Carried:
        """Arrays of the devices after a round, from a compiled loop; arguments as for :meth:`advance`."""
        plan, p = costs.allocation, self._parameters
        share = _NO_DEVICES if plan.sample_share is None else plan.sample_share
        ratio = _NONE if plan.recompute is None else np.asarray(recomputation_terms(p, plan)[0])[..., 0]
        played = HeatPlan(
            loop_array(plan.micro_batches, np.int64),
            loop_array(plan.device_blocks, np.int64),
            loop_array(share, np.float64),
            plan.real_steps(p.costs.local_steps),
            ratio,
            loop_array(plan.device_power, np.float64),
            costs.busy_energy,
        )
        system = HeatSystem(running.speed, running.clock, running.compute_power, running.present)
        before = (carried.get(name, none) for name, none in _READ.items())
        found, paused, remainder, level = heat_rows(
            p.record, self._record, self._levels.values, played, system, delta_s, *before
        )
        following = {**dict(zip(_WRITTEN, found, strict=True)), "paused": paused}
        return {**following, "remainder": remainder, "level": level} if self._steps else following

    def _read(self, carried: Carried, reading: Array, paused: Array) -> Carried:
        """Headroom, pause and cap on the clock after a reading of the temperature."""
        own = self.own
        if self._steps:
            share = self._levels.like(reading)[carried["level"]]
        else:
            power = allocated_power(reading, own.on_c, own.set_c, own.sustainable_w, own.least_w)
            share = clock_share(power, carried["full_power"], carried["cubic"])
        share = where(paused, at_most(share, own.levels[-1]), share)
        headroom = headroom_after(reading, own.set_c)
        return {"reading": reading, "headroom": headroom, "paused": paused, "share": share}

    def apply(self, system: System, carried: Carried) -> System:
        """Cap the clocks."""
        capped = carried["share"] * system.full_speed
        return system._replace(speed=namespace(capped).minimum(system.speed, capped))

    def check(self, carried: Carried) -> None:
        """Refuse a reading, headroom and caps that do not follow from one another."""
        place = "simulator/processes/heat"
        if self.own.die_resistance_k_per_w == 0.0 and (carried["reading"] != carried["temperature"]).any():
            raise StateError(f"{place}/reading is not the temperature: {REMEDY}")
        expected = self._read(carried, carried["reading"], carried["paused"])
        for name in ("headroom", "share"):
            if (np.abs(carried[name] - expected[name]) > SLACK).any():
                raise StateError(f"{place}/{name} does not follow from the reading: {REMEDY}")
