"""Layouts and processes of a batch of environments: their state before a round, and its change after it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from operator import is_
from typing import Any

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, WordArray, where
from collapipe_env.ground.backends import NUMPY, Backend, Rows
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.records import made, mapped, record_of, sizes_of, tree_of
from collapipe_env.ground.state_trees import Tree, require_within
from collapipe_env.kernels.channels import split_links
from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.memory import memory_caps
from collapipe_env.physics.workload import WorkloadCosts
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import usual_round
from collapipe_env.simulator.own_results import own_events, own_result, require_carried
from collapipe_env.simulator.process import EVERY_OTHER, Carried, Process
from collapipe_env.simulator.process_registry import PROCESSES, active_processes
from collapipe_env.simulator.round import NO_EVENTS, Interruption, RoundCosts
from collapipe_env.simulator.sight import Sight
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import System, axis_sizes, laid_out, reach_of

AllCarried = Mapping[str, Carried]
"""Carried state of every process, by its name."""


_Gains = tuple[Array, Array]
_Derived = tuple[Array, Array, Array, Array]
"""Clocks, powers, blocks that fit the memories, and devices whose power grows with the cube of the clock."""


class MovingSystem:
    """Seeds, layouts and processes of ``E`` environments. Arrays are replaced and never written to.

    Args:
        costs: Priced workload, for the memory that a block needs.
        num_envs: ``E``.

    Attributes:
        processes: Active processes, in the order in which they act.
        carried: Arrays that the processes carry now (E, ...).
        comes_and_goes: Whether a process may send devices away.
        may_lack_room: Whether a process is the user's own, and so may leave a cluster without memory for the
            encoder.
        checked: Names of the user's own processes, whose results are checked (in NumPy only).
    """

    def __init__(self, scenario: Scenario, costs: WorkloadCosts, num_envs: int, backend: Backend) -> None:
        self._scenario, self._costs, self._backend = scenario, costs, backend
        self._devices = (scenario.clusters, scenario.max_devices)
        self.processes = active_processes(scenario)
        # The leading processes that never move are applied once, when an episode begins.
        self._still = len(list(takewhile(lambda p: not p.defines("advance"), self.processes)))
        moving = self.processes[self._still :]
        self._applied_later = tuple(p for p in moving if p.defines("apply"))
        self._advancing = tuple(p for p in moving if p.defines("advance"))
        base = scenario.dynamics.time_base
        # Processes that receive T_ref instead of the delay.
        self._steady = {
            p.name for p in self._advancing if base == "reference" or (base == "mixed" and not p.endogenous)
        }
        self._horizon_s = reference_s = usual_round(scenario) if self._steady else 0.0
        self._reference_s = backend.array(np.full(num_envs, reference_s))
        shipped = PROCESSES.shipped()
        self._own = {p.name for p in self.processes if p.name not in shipped}
        self.may_lack_room = bool(self._own)
        # Only in NumPy: checking tensors would mean waiting for the device.
        self.checked = self._own if backend is NUMPY else set()
        self._sizes = axis_sizes(scenario)
        # A process of one's own may do anything.
        self.comes_and_goes = (
            self.may_lack_room
            or reach_of(scenario) is not None
            or any(p.leaves_clusters_short for p in self.processes)
        )
        self._recovers = any(p.recovery is not None for p in self.processes)
        self._eventful = tuple(p for p in self.processes if p.defines("events"))
        self._sight = Sight(scenario, self.processes, self.checked)
        # One per process, and one for each estimate.
        estimates = [f"{p.name}/known" for p in self.processes if p.defines("known")]
        self.streams = (*(p.name for p in self.processes), *estimates)
        none = np.zeros(num_envs, dtype=np.uint64)
        self._seeds: Mapping[str, Array] = {name: backend.array(none) for name in self.streams}
        self._first = backend.array(np.zeros(num_envs, dtype=np.int64))
        self._advance = backend.fuse(self._advanced)
        self._see = backend.fuse(self._system)
        # Rows that have not been reset use the scenario's own layout.
        fixed = scenario
        if scenario.cluster.layout != "fixed":
            fixed = scenario.with_overrides({"cluster.layout": "fixed"})
        everyone = backend.rows(np.ones(num_envs, dtype=np.bool_))
        self._base: System
        self.carried: AllCarried = {}
        self._start(laid_out(fixed, none, backend), everyone, self._seeds)

    def begin(self, rows: Rows, seeds: Mapping[str, WordArray]) -> None:
        """Start episodes in some rows.

        Args:
            seeds: Seeds of the rows (R,) by component: the layout's and those of :attr:`streams`.
        """
        drawn = {name: rows.put(old, self._backend.array(seeds[name])) for name, old in self._seeds.items()}
        self._start(laid_out(self._scenario, seeds["layout"], self._backend), rows, drawn)

    def _start(self, system: System, rows: Rows, seeds: Mapping[str, Array]) -> None:
        fresh: dict[str, Carried] = {}
        # Moving processes are applied here too, for those that read what all others have made.
        moved = system
        for place, process in enumerate(self.processes):
            u = self._numbers(process, rows.of(seeds[process.name]), rows.of(self._first))
            fresh[process.name] = process.begin(moved if process.after == EVERY_OTHER else system, u)
            if process.name in self._own:
                running = {} if rows.all else self.carried[process.name]
                self._require(process, "begin", fresh[process.name], len(rows), running)
            if place < self._still or self.processes[-1].after == EVERY_OTHER:
                moved = self._applied(process, moved, fresh[process.name])
            if place < self._still:
                system = moved
        if rows.all:
            self._base, self.carried = system, fresh
        else:
            before = iter(array for array in self._base if array is not None)
            self._base = mapped(system, lambda fresh: rows.put(next(before), fresh))
            self.carried = {
                name: {key: rows.put(old, fresh[name][key]) for key, old in carried.items()}
                for name, carried in self.carried.items()
            }
        self._seeds = seeds
        self._rest(self._base)

    def _rest(self, base: System) -> None:
        """Store what follows from the base, used while no process moves it."""
        caps = memory_caps(self._costs, base.memory_bytes)
        self._at_rest = _clock(base), _power(base), caps, base.switched_capacitance > 0.0

    def _numbers(self, process: Process, seeds: Array, rounds: Array) -> Array:
        return self._backend.uniform(seeds, rounds, process.numbers, process.factors)

    def advanced(self, state: SystemState, costs: RoundCosts) -> AllCarried:
        """Carried state of the processes in the next round; changes nothing.

        Args:
            state: The system before the round just played (E, ...).

        Raises:
            ScenarioError: If a user's own process returns other arrays than it declares or, in NumPy, a
                number out of range (tensors are checked when a state is loaded: a check here would mean
                waiting for the device).
        """
        following: AllCarried = self._advance(self.carried, self._seeds, state, costs)
        for process in self._advancing:
            if (name := process.name) in self._own:
                self._require(process, "advance", following[name], len(costs.delay), self.carried[name])
        return following

    def _require(self, process: Process, method: str, found: Carried, rows: int, before: Carried) -> None:
        sizes = {"...": (rows,), **self._sizes}
        require_carried(process, method, found, sizes, before, numbers=process.name in self.checked)

    def _advanced(
        self, carried: AllCarried, seeds: Mapping[str, Array], state: SystemState, costs: RoundCosts
    ) -> AllCarried:
        rounds = state.round_index + 1
        following = dict(carried)
        for process in self._advancing:
            name = process.name
            u = self._numbers(process, seeds[name], rounds)
            delta_s = self._reference_s if name in self._steady else costs.delay
            following[name] = process.advance(carried[name], state, costs, u, delta_s)
        return following

    def state(
        self,
        carried: AllCarried,
        budget: Array,
        backlog: Array,
        round_index: Array,
        loss: Array,
        absence: Array | None = None,
    ) -> SystemState:
        """The state of a round (E, ...): the system of the layout under every process.

        Args:
            carried: Arrays that the processes carry in the round.
            budget: Energy budgets (E, N, K+1) [J].
            backlog: Virtual queues (E, N, K+1).
            round_index: Rounds played (E,).
            loss: Smoothed evaluation loss (E,).
            absence: Participation queues (E, N); ``None`` where all clusters have to take part.
        """
        gains, known, system, derived = self._see(self._base, self._at_rest, carried)
        (uplink, d2d), (clock, power, caps, cubic) = gains, derived
        return made(
            SystemState,
            uplink_gain=uplink,
            d2d_gain=d2d,
            cross_gain=system.cross_gain,
            speed=system.speed,
            clock=clock,
            compute_power=power,
            memory_bytes=system.memory_bytes,
            memory_cap=caps,
            present=system.present,
            budget=budget,
            backlog=backlog,
            round_index=round_index,
            loss=loss,
            server_share=system.server_share,
            absence=absence,
            known_uplink_gain=known[0],
            known_d2d_gain=known[1],
            full_speed=system.full_speed,
            cubic_power=cubic,
            processes=self._sight.shown(carried) if self._sight.showing else {},
        )

    @property
    def path_gains(self) -> Array:
        """True gains of all links before the next round without small-scale fading (E, links)."""
        return self._see(self._base, self._at_rest, self.carried)[2].link_gain

    def _applied(self, process: Process, system: System, carried: Carried) -> System:
        """The system with one more process applied."""
        found = process.apply(system, carried)
        checked = process.name in self.checked
        return own_result(process, "apply", found, System, system) if checked else found

    def _system(
        self, base: System, rest: _Derived, carried: AllCarried
    ) -> tuple[_Gains, tuple[Array | None, Array | None], System, _Derived]:
        """Gains of uplinks and pairs, the known ones, the system, and what follows from it in a round."""
        clock, power, caps, cubic = rest
        system = base
        for process in self._applied_later:
            system = self._applied(process, system, carried[process.name])
        if system.memory_bytes is not base.memory_bytes:
            caps = memory_caps(self._costs, system.memory_bytes)
        if system.present is not base.present:
            # Devices that are away offer no memory.
            memory = where(system.present, system.memory_bytes, 0.0)
            system, caps = system._replace(memory_bytes=memory), where(system.present, caps, 0)
        gains = split_links(system.link_gain, system.small_scale, self._devices)
        known: tuple[Array | None, Array | None] = (None, None)
        if system.known_gain is not None:
            known = split_links(system.known_gain, None, self._devices)
        if not all(map(is_, _power_fields(system), _power_fields(base))):
            clock, power = _clock(system), _power(system)
        if system.switched_capacitance is not base.switched_capacitance:
            cubic = system.switched_capacitance > 0.0
        return gains, known, system, (clock, power, caps, cubic)

    def estimate(self, truth: SystemState, carried: AllCarried) -> SystemState:
        """State that schedulers receive: the state itself where everything is known and shown."""
        if truth.known_uplink_gain is None and not self._sight.changes:
            return truth
        return self._sight.estimate(
            truth,
            carried,
            lambda p: self._numbers(p, self._seeds[f"{p.name}/known"], truth.round_index),
        )

    def events(self, costs: RoundCosts) -> tuple[Interruption | None, FloatArray | None]:
        """Events inside a round, all processes together.

        Args:
            costs: The round without them (E, ...).

        Returns:
            The interruption, ``None`` where no process interrupts; and the times at which devices first fail
            (E, N, K) [s] from the start of the round, infinite for never, on the host; ``None`` where no
            device fails in the clock of a process.

        Raises:
            ScenarioError: If a user's own process returns what no round can have, or lets devices fail and
                no process says how clusters recover.
        """
        together: Interruption | None = None
        first: FloatArray | None = None
        for process in self._eventful:
            given = process.events(self.carried[process.name], costs)
            found = own_events(process, given, costs) if process.name in self.checked else given
            if not all(map(is_, given[:3], NO_EVENTS)):
                together = found.on(costs).after(together)
            if given.fails_s is NO_EVENTS.fails_s:
                continue
            if not self._recovers:
                raise ScenarioError(
                    f"the process {process.name!r} says when devices fail, but no process says how their "
                    "clusters recover: give it a property recovery that returns RecoveryTerms(...)"
                )
            at = self._backend.host(found.fails_s)
            if process.name in self._steady:
                # In the clock of the process the round lasts the horizon, whatever its delay.
                inside, delay = at <= self._horizon_s, self._backend.host(costs.cluster_delay)[..., None]
                at = np.where(inside, np.where(inside, at, 0.0) * (delay / self._horizon_s), np.inf)
            first = at if first is None else np.minimum(first, at)
        return together, None if first is None or (first == np.inf).all() else first

    def snapshot(self) -> tuple[Any, ...]:
        """References to everything that changes, for :meth:`put_back`."""
        return self._seeds, self._base, self._at_rest, self.carried

    def put_back(self, kept: tuple[Any, ...]) -> None:
        """Go back to a :meth:`snapshot`."""
        self._seeds, self._base, self._at_rest, self.carried = kept

    def get_state(self) -> Tree:
        """Seeds, layouts and carried arrays, on the host; see :mod:`collapipe_env.ground.state_trees`."""
        host = self._backend.host
        return {
            "seeds": mapped(self._seeds, lambda words: host(words).view(np.uint64)),
            "layout": tree_of(mapped(self._base, host)),
            "processes": mapped(self.carried, host),
        }

    def set_state(self, tree: Tree) -> None:
        """Continue from a state of :meth:`get_state`, of the right names, shapes and types.

        Raises:
            StateError: If the layout is impossible, or a process cannot carry what the tree holds.
        """
        layout = record_of(System, tree["layout"], sizes_of(self._base), "simulator/layout")
        for process in self.processes:
            carried = tree["processes"][process.name]
            place = f"simulator/processes/{process.name}"
            for key, declared in process.carries.items():
                if declared.kind != "truth":
                    require_within(carried[key], declared.low, declared.high, f"{place}/{key}")
            process.check(carried)
        array = self._backend.array
        self._seeds, self._base = mapped(tree["seeds"], array), mapped(layout, array)
        self.carried = mapped(tree["processes"], partial(array, keep=True))
        self._rest(self._base)


POWER_FIELDS = ("speed", "flops_per_cycle", "switched_capacitance", "active_power", "full_speed")
"""Fields of a system that determine compute power, in the order of the formula's arguments."""


def _power_fields(system: System) -> tuple[Array, ...]:
    return tuple(getattr(system, name) for name in POWER_FIELDS)


def _clock(system: System) -> Array:
    return system.speed / system.flops_per_cycle


def _power(system: System) -> Array:
    return compute_power(*_power_fields(system))
