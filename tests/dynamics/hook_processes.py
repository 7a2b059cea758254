"""Throw-away processes that define one part each, for tests."""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from collapipe_env.dynamics import (
    PROCESSES,
    Interruption,
    Limits,
    Observed,
    Price,
    Process,
    register_process,
)
from collapipe_env.ground.arrays import namespace


@dataclass(frozen=True)
class Fields:
    size: float = 0.0


class Idle(Process):
    """Carries a counter and does nothing with it."""

    name = "idle_process"
    Spec = Fields
    numbers = 3

    def begin(self, system, u):
        return {"count": namespace(u).zeros_like(u[:, 0]), "drawn": u + 0.0}

    def advance(self, carried, state, costs, u, delta_s):
        return {"count": carried["count"] + delta_s, "drawn": u + 0.0}


class Slowing(Idle):
    """Applies: halves speeds; limits nothing."""

    name = "slowing"

    def apply(self, system, carried):
        return system._replace(speed=system.speed * self.spec.size)


class Absence(Idle):
    """Limits: the first device of every cluster is away, the others offer at most so much memory."""

    name = "absence"

    def limits(self, carried):
        xp = namespace(carried["count"])
        K = self.scenario.max_devices
        rows = carried["count"].shape[0]
        shape = (rows, self.scenario.clusters, K)
        away = xp.broadcast_to(xp.arange(K, device=carried["count"].device) > 0, shape)
        most = xp.full(shape, self.spec.size, dtype=carried["count"].dtype, device=carried["count"].device)
        return Limits(memory_bytes=most, present=away)


class Capped(Idle):
    """Limits: clocks are at most so much of the full clock."""

    name = "capped"

    def limits(self, carried):
        return Limits(clock=self.spec.size)


class Bounded(Idle):
    """Limits under the system: a device offers at most so many bytes for each FLOP/s that it has now."""

    name = "bounded"

    def limits_under(self, system, carried):
        return Limits(memory_bytes=self.spec.size * system.speed)


class Toll(Idle):
    """Price: every used device costs a second and a joule of its cluster, and of itself."""

    name = "toll"

    def price(self, state, plan):
        xp = namespace(state.backlog)
        used = xp.astype(plan.blocks > 0, state.backlog.dtype) * self.spec.size
        cu = xp.zeros_like(used[..., :1])
        return Price(xp.sum(used, axis=-1), xp.concat((cu, used), axis=-1))


class Outage(Idle):
    """Interrupts: a cluster's round is lost where its number is below a bound, and takes 5 s longer."""

    name = "outage"

    def __init__(self, scenario, spec):
        super().__init__(scenario, spec)
        self.interrupt_numbers = scenario.clusters

    def interrupt(self, carried, plan, times, u):
        xp = namespace(times.delay)
        lost = u < self.spec.size
        late = xp.astype(lost, times.delay.dtype) * 5.0
        return Interruption(late, xp.zeros_like(times.energy), ~lost)


class Spill(Outage):
    """Interrupts as well, with numbers of its own, and takes a joule of every node."""

    name = "spill"

    def interrupt(self, carried, plan, times, u):
        own = super().interrupt(carried, plan, times, u)
        return own._replace(energy=own.energy + 1.0)


class Guess(Idle):
    """Estimates: schedulers see uplink gains that are off by a factor."""

    name = "guess"

    def __init__(self, scenario, spec):
        super().__init__(scenario, spec)
        self.estimate_numbers = scenario.clusters

    def estimate(self, carried, truth, u):
        xp = namespace(truth.uplink_gain)
        factor = xp.astype(1.0 + self.spec.size * u, truth.loss.dtype)
        return replace(truth, uplink_gain=truth.uplink_gain * factor)


class Shown(Idle):
    """Observed: the seconds that have passed, against 1,000."""

    name = "shown"

    def __init__(self, scenario, spec):
        super().__init__(scenario, spec)
        self.observed = (Observed("count", (), "s", 0.0, 1000.0, "seconds so far"),)


ALL = (Idle, Slowing, Absence, Capped, Bounded, Toll, Outage, Spill, Guess, Shown)


def scenario_with(process, size=0.0, base="small", **dynamics):
    return {"base": base, "dynamics": {"rounds": 6, "processes": {process.name: {"size": size}}, **dynamics}}


def actions_of(env, count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.0, 1.0, (count, *env.action_space.shape)).astype(np.float32)


@contextmanager
def registered(*processes):
    """Registers processes for as long as the block lasts."""
    for process in processes:
        register_process(process)
    try:
        yield
    finally:
        for process in processes:
            PROCESSES._added.pop(process.name)
