"""One small cluster with the package's own physics: states by their coordinates, plans, and rounds.

A state of a miniature holds, for each device, a level of background load, a temperature and a level of its
governor, and also the previous round's plan. Links have their mean gains. Costs come from ``round_costs``,
heat from the process `heat`, and the law of the load from the process `load`; nothing is modelled twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.dynamics.heat import Heat
from collapipe_env.dynamics.load import Load
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.backends import NUMPY
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.moves import block_holders
from collapipe_env.physics.thermal import allocated_power, clock_share, governor_moves, moved_level
from collapipe_env.scenario import Scenario, fixed_layout
from collapipe_env.simulator.build import energy_budgets, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.moving_system import MovingSystem
from collapipe_env.simulator.state import SystemState


class Coordinates(NamedTuple):
    """States of a miniature; leading axis ``R``.

    Attributes:
        load: Level of each device's background load (R, K), int; zeros where there is none.
        temperature: Temperature of each device (R, K) [C]; zeros without heat.
        level: Level of each device's governor (R, K), int, 0 for the full clock; zeros where it has none.
        plan: Index of the previous round's split (R,), int; zeros where it does not matter.
    """

    load: IntArray
    temperature: FloatArray
    level: IntArray
    plan: IntArray


class Rounds(NamedTuple):
    """Rounds of every action in ``R`` states.

    Attributes:
        delay: Delay (R, A) [s].
        moving: Seconds of it in which moments move (R, A).
        temperature: Temperature of each device after it (R, A, K) [C]; zeros without heat.
        micro_batches: Number of micro-batches (R, A), int.
        energy: Energy of each device (R, A, K) [J]; ``None`` where it is not needed.
    """

    delay: FloatArray
    moving: FloatArray
    temperature: FloatArray
    micro_batches: IntArray
    energy: FloatArray | None = None


def splits(blocks: int, caps: IntArray) -> IntArray:
    """All ways to divide blocks among devices (P, K), int, within their memories.

    Args:
        blocks: Encoder depth ``L``.
        caps: Most blocks of each device (K,).
    """
    grid = np.indices([min(blocks, int(cap)) + 1 for cap in caps]).reshape(len(caps), -1).T
    return np.asarray(grid[grid.sum(axis=1) == blocks])


def repeated(carried: Mapping[str, Mapping[str, Any]], rows: int) -> dict[str, Any]:
    """Values that the processes of one system carry, for several rows, at mean gains of the links."""
    found: dict[str, Any] = {
        name: {key: np.repeat(array, rows, axis=0) for key, array in own.items()}
        for name, own in carried.items()
    }
    found["fading"] = {key: np.ones_like(array) for key, array in found["fading"].items()}
    return found


def state_of(system: MovingSystem, scenario: Scenario, carried: Any, rows: int) -> SystemState:
    """State of a system of one cluster with empty queues (rows, ...)."""
    nodes = (rows, 1, scenario.max_devices + 1)
    return system.state(
        carried,
        budget=np.broadcast_to(energy_budgets(scenario), nodes),
        backlog=np.zeros(nodes),
        round_index=np.zeros(rows, dtype=np.int64),
        loss=np.zeros(rows),
    )


def full_power(blocks: IntArray, micro_batches: IntArray, power_w: float) -> Allocation:
    """Plans of one cluster at full power (R, ...).

    With one cluster and no energy budgets, less power only makes a round longer.

    Args:
        blocks: Blocks of each device (R, K), int.
        micro_batches: ``M`` (R,).
        power_w: Largest transmit power [W].
    """
    rows, K = blocks.shape
    return Allocation(
        blocks=blocks[:, None, :],
        micro_batches=np.asarray(micro_batches, dtype=np.int64)[:, None],
        bandwidth=np.ones((rows, 1)),
        device_power=np.full((rows, 1, K), power_w),
        cu_power=np.full((rows, 1), power_w),
    )


class SmallSystem:
    """One cluster of a scenario, played from any state.

    Args:
        scenario: One cluster, in the layout of its seed; of the processes, only `load`, `heat` and
            `migration` may move it in addition to fading.

    Attributes:
        scenario: The scenario.
        devices: ``K``.
        full_speed: Speeds at the full clocks (K,) [FLOP/s].
        splits: Every division of the blocks (P, K), int.
        choices: Numbers of micro-batches that a plan may have, ascending.
        split_of: Split of every action (A,), int. With heat an action is a split and a number of
            micro-batches, which decides how long devices idle; without, it is a split with the number that
            is fastest.
        heat: The process, or ``None``.
        levels: Levels of the governor, 1 where it has none.
        speeds_are_levels: Whether speeds follow from levels of load and governors alone.
        loads: Law of one device's load: probability of each next level (J, J).
        remembers: Whether a change of plan has a price.
    """

    def __init__(self, scenario: Scenario) -> None:
        if scenario.clusters != 1 or scenario.cluster.layout != "fixed":
            raise ValueError(f"the scenario {scenario.name!r} must have one cluster in a fixed layout")
        self.scenario = scenario
        self.parameters = system_parameters(scenario)
        self.devices = scenario.max_devices
        self._system = lru_cache(maxsize=4)(self._of_rows)
        one = self._system(1)
        self._processes = {process.name: process for process in one.processes}
        unknown = set(self._processes) - {"fading", "shadowing", "load", "heat", "migration"}
        if "load" in self._processes:
            unknown |= set(self._processes) & {"heat"}
        if unknown or scenario.dynamics.time_base == "reference":
            raise ValueError(
                f"the scenario {scenario.name!r} moves by what a miniature leaves out: {unknown}"
            )
        self._begun = one.carried
        begun = state_of(one, scenario, one.carried, 1)
        layout = fixed_layout(scenario)
        self.full_speed = (layout.max_clock_hz * layout.flops_per_cycle)[0]
        self.splits = splits(scenario.blocks, begun.memory_cap[0, 0])
        self.choices = self.parameters.micro_batch_choices
        heat = self._processes.get("heat")
        self.heat: Heat | None = heat if isinstance(heat, Heat) else None
        self.levels = 1
        if self.heat is not None:
            own = self.heat.own
            if own.die_resistance_k_per_w > 0.0 or self.heat.numbers:
                raise ValueError("a miniature's devices have no die, and one ambient temperature")
            self.levels = 1 if self.heat.spec.governor == "ipa" else len(own.levels)
        self.split_of = np.arange(len(self.splits))
        if heat is not None:
            self.split_of = np.repeat(self.split_of, len(self.choices))
        self.loads = self._load_law()
        # Otherwise a governor caps the clock as a smooth function of the temperature.
        self.speeds_are_levels = heat is None or self.levels > 1
        rules = self.parameters.migration
        self.remembers = rules is not None and rules.moves

    def _of_rows(self, rows: int) -> MovingSystem:
        return MovingSystem(self.scenario, self.parameters.costs, rows, NUMPY)

    def _load_law(self) -> FloatArray:
        """Transition matrix of one device's load, from the process at each thousandth of chance.

        Exact where the probability of staying is a multiple of 0.002: no thousandth then straddles a limit.
        """
        load = self._processes.get("load")
        if not isinstance(load, Load):
            return np.ones((1, 1))
        count, thousandths = len(self.scenario.dynamics.load_levels), 1000
        chance = (np.arange(thousandths) + 0.5) / thousandths
        u = np.repeat(chance[:, None], self.devices, axis=1)
        law = np.empty((count, count))
        for level in range(count):
            now = {"level": np.full((thousandths, 1, self.devices), level)}
            then = load.advance(now, None, None, u, None)["level"][:, 0, 0]
            law[level] = np.bincount(then, minlength=count) / thousandths
        return law

    def carried(self, at: Coordinates) -> dict[str, Any]:
        """Values that the processes carry in some states (R, ...)."""
        rows = len(at.plan)
        found = repeated(self._begun, rows)
        if "load" in found:
            found["load"] = {"level": at.load[:, None, :]}
        if self.heat is not None:
            found["heat"] = self._warm(found["heat"], at)
        if self.remembers:
            plan = self.plan(at.plan, np.full(rows, self.choices[0]))
            found["migration"] = {"blocks": plan.blocks, "holders": block_holders(plan, self.scenario.blocks)}
        return found

    def _warm(self, begun: dict[str, Any], at: Coordinates) -> dict[str, Any]:
        """Values that heat carries at some temperatures and levels; the process itself checks them."""
        assert self.heat is not None
        own, reading = self.heat.own, at.temperature[:, None, :]
        paused = reading > own.critical_c
        found = {**begun, "temperature": reading, "reading": reading, "paused": paused}
        found["headroom"] = np.clip((reading - 25.0) / (own.set_c - 25.0), 0.0, 1.5)
        if "level" in begun:
            found["level"] = at.level[:, None, :]
            share = np.asarray(own.levels)[found["level"]]
        else:
            power = allocated_power(reading, own.on_c, own.set_c, own.sustainable_w, own.least_w)
            share = clock_share(power, begun["full_power"], begun["cubic"])
        found["share"] = np.where(paused, np.minimum(share, own.levels[-1]), share)
        self.heat.check(found)
        return found

    def state(self, at: Coordinates) -> SystemState:
        """The system before a round (R, ...), with empty queues and mean gains."""
        rows = len(at.plan)
        return state_of(self._system(rows), self.scenario, self.carried(at), rows)

    def plan(self, split: IntArray, micro_batches: IntArray) -> Allocation:
        """Plans at full power (R, ...).

        Args:
            split: Index of the division of blocks (R,).
            micro_batches: ``M`` (R,).
        """
        return full_power(self.splits[split], micro_batches, self.parameters.power_max_w)

    def micro_batches(self, state: SystemState) -> IntArray:
        """Number of micro-batches of every action in every state (R, A), int.

        Args:
            state: The system (R, ...). A change of plan costs the same for all numbers, so it is left out.
        """
        R, P, choices = state.speed.shape[0], len(self.splits), np.asarray(self.choices)
        if self.heat is not None:
            return np.tile(choices, (R, P))
        still, found = replace(state, processes={}), np.empty((R, P), dtype=np.int64)
        for split in range(P):
            plans = (self.plan(np.full(R, split), np.full(R, m)) for m in choices)
            delays = [round_costs(self.parameters, still, plan).delay for plan in plans]
            found[:, split] = choices[np.argmin(delays, axis=0)]
        return found

    def rounds(self, at: Coordinates) -> Rounds:
        """Try every action in some states (R, ...)."""
        return self.rounds_from(self.state(at))

    def rounds_from(self, state: SystemState) -> Rounds:
        """Try every action in states of the environment (R, ...)."""
        R, A, K = state.speed.shape[0], len(self.split_of), self.devices
        micro_batches, each = self.micro_batches(state), state[np.repeat(np.arange(R), A)]
        plan = self.plan(np.tile(self.split_of, R), micro_batches.ravel())
        costs = round_costs(self.parameters, each, plan)
        moving = costs.terms.once["migration"][:, 0] if costs.terms.once else np.zeros(R * A)
        temperature = np.zeros((R * A, K))
        if self.heat is not None:
            warm = self.heat.advance(each.processes["heat"], each, costs, None, costs.delay)
            temperature = warm["temperature"][:, 0]
        return Rounds(
            costs.delay.reshape(R, A),
            moving.reshape(R, A),
            temperature.reshape(R, A, K),
            micro_batches,
            costs.energy[:, 0, 1:].reshape(R, A, K),
        )

    def levels_after(
        self, level: IntArray, temperature: FloatArray, delay: FloatArray, remainder: FloatArray | float
    ) -> IntArray:
        """Levels of the governors after a round (R, K), int.

        Args:
            level: Levels in the round (R, K).
            temperature: Temperatures at its end (R, K) [C].
            delay: Its delay (R,) [s].
            remainder: Seconds that governors had waited before it (R,) or one for all [s].
        """
        assert self.heat is not None
        own = self.heat.own
        moves, _ = governor_moves(remainder + 0.0 * delay, delay, own.period_s)
        after = moved_level(
            level[:, None],
            temperature[:, None],
            moves[..., None, None],
            self.levels - 1,
            own.set_c,
            own.hysteresis_k,
        )
        return np.asarray(after[:, 0])
