"""Throw-away processes that define one part each, and what processes carry, for tests."""

# ruff: noqa: ARG002 - parts of an interface

from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from collapipe_env.dynamics import PROCESSES, CarriedArray, Events, Process, register_process
from collapipe_env.ground.arrays import at_most, namespace
from collapipe_env.ground.backends import NUMPY
from collapipe_env.simulator.process_registry import active_processes


def seeds(count, seed=0):
    """Words from which rows draw (count,), as an episode's seed gives them."""
    return np.random.SeedSequence(seed).generate_state(count, np.uint64)


def numbers(process, words, t):
    """What a process draws in a round."""
    return NUMPY.uniform(words, np.full(len(words), t), process.numbers, process.factors)


@dataclass(frozen=True)
class Fields:
    size: float = 0.0


class Idle(Process):
    """Carries a counter and does nothing with it."""

    name = "idle_process"
    Spec = Fields
    numbers = 3
    carries = MappingProxyType(
        {"count": CarriedArray("", "s", 0.0, seen="never"), "drawn": CarriedArray("3", seen="never")}
    )

    def begin(self, system, u):
        return {"count": namespace(u).zeros_like(u[:, 0]), "drawn": u + 0.0}

    def advance(self, carried, state, costs, u, delta_s):
        return {"count": carried["count"] + delta_s, "drawn": u + 0.0}


class Slowing(Idle):
    """Applies: halves speeds."""

    name = "slowing"

    def apply(self, system, carried):
        return system._replace(speed=system.speed * self.spec.size)


class Absence(Idle):
    """Applies: the first device of every cluster is away, the others offer at most so much memory."""

    name = "absence"

    def apply(self, system, carried):
        xp = namespace(system.speed)
        here = xp.arange(system.present.shape[-1], device=carried["count"].device) > 0
        memory = at_most(system.memory_bytes, self.spec.size)
        return system._replace(present=system.present & here, memory_bytes=memory)


class Capped(Idle):
    """Applies: clocks are at most so much of the full clock."""

    name = "capped"

    def apply(self, system, carried):
        capped = self.spec.size * system.full_speed
        return system._replace(speed=namespace(capped).minimum(system.speed, capped))


class Bounded(Idle):
    """Applies: a device offers at most so many bytes for each FLOP/s that it has now."""

    name = "bounded"

    def apply(self, system, carried):
        most = self.spec.size * system.speed
        return system._replace(memory_bytes=namespace(most).minimum(system.memory_bytes, most))


class Outage(Idle):
    """Interrupts: a cluster's round is lost where its number is below a bound, and takes 5 s longer."""

    name = "outage"

    def events(self, carried, costs):
        lost = carried["drawn"][:, : self.scenario.clusters] < self.spec.size
        return Events(namespace(lost).astype(lost, costs.delay.dtype) * 5.0, trained=~lost)


class Spill(Outage):
    """Interrupts as well, with numbers of its own, and takes a joule of every node."""

    name = "spill"

    def events(self, carried, costs):
        return super().events(carried, costs)._replace(energy=1.0)


class Guess(Idle):
    """Known: schedulers see uplink gains that are off by a factor."""

    name = "guess"

    def known(self, carried, truth, u):
        xp = namespace(truth.uplink_gain)
        factor = xp.astype(1.0 + self.spec.size * u[:, : self.scenario.clusters], truth.loss.dtype)
        return replace(truth, uplink_gain=truth.uplink_gain * factor)


class Shown(Idle):
    """Shown: the seconds that have passed, against 1,000."""

    name = "shown"

    def __init__(self, scenario, spec):
        super().__init__(scenario, spec)
        count = CarriedArray("", "s", 0.0, seen="always", shown=(0.0, 1000.0), about="seconds so far")
        self.carries = {**Idle.carries, "count": count}


class Gauge(Idle):
    """Carries numbers of every kind of sight."""

    name = "gauge"
    carries = MappingProxyType(
        {
            "told": CarriedArray("", shown=(0.0, 1.0), seen="always", about="a number"),
            "secret": CarriedArray("", shown=(0.0, 1.0), about="another"),
            "carried": CarriedArray(""),
            "hidden": CarriedArray("", seen="never"),
        }
    )

    def begin(self, system, u):
        return dict.fromkeys(self.carries, 0.0 * u[:, 0] + 0.5)

    def advance(self, carried, state, costs, u, delta_s):
        return carried


ALL = (Idle, Slowing, Absence, Capped, Bounded, Outage, Spill, Guess, Shown)

AMPLE = {"device_energy_j": 40, "cu_energy_j": 40}
"""Energy budgets that are enough under whatever a process applies."""


def scenario_with(process, size=0.0, base="small", **dynamics):
    return {
        "base": base,
        "dynamics": {"rounds": 6, "processes": {process.name: {"size": size}}, **dynamics},
        "budgets": AMPLE,
    }


def actions_of(env, count, seed=0):
    """Random actions of an environment, or of all rows of a vector, for some rounds."""
    shape = (count, *env.action_space.shape)
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype(np.float32)


def carried_of(env):
    """What processes carry, by their names."""
    return env.get_state()["mdp"]["simulator"]["processes"]


def process_of(scenario, name):
    return next(process for process in active_processes(scenario) if process.name == name)


@contextmanager
def registered(*processes):
    """Registers processes for as long as the block lasts."""
    before = dict(PROCESSES._added)
    for process in processes:
        register_process(process)
    try:
        yield
    finally:
        PROCESSES._added = before
