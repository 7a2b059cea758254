"""Search for the best plan of a round on the simulator's physics alone, by evolution and CMA-ES.

A plan is an action: the codec turns every action into a plan that can be played, so the search needs no rule
of its own about memory or bandwidth. Evolution keeps several populations, the islands. Children mix clusters
of two parents, step along the difference of two others, take random steps, and change single choices: blocks
move between devices, devices trade places, micro-batches, schedules, recomputation and the server's blocks
change. CMA-ES then settles the real numbers of the best plans. Nothing here knows a scheduler; one island may
begin with plans from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cma
import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.codec import ActionCodec
from collapipe_env.simulator.decision import nearest_choice, spread
from collapipe_env.simulator.state import SystemState

REAL = ("device_power", "cu_power", "bandwidth", "clock_cap")
"""Parts of an action that CMA-ES settles."""
MEMBERS, CHILDREN = 12, 24
"""Parents that each island keeps, and children of each generation."""
ISLANDS = 4
"""Islands that begin with random plans; one more begins with the plans from outside."""
CMA_CHILDREN = 24


class Stage(NamedTuple):
    """A part of the evolution.

    Attributes:
        order: Order of the mean of the clusters' delays that stands for the longest one. Only the slowest
            cluster counts for the longest delay, so improvements of the others would go unnoticed.
        part: Part of all evaluations.
        left: Random islands whose plans survive it.
        settling: Part of all evaluations with which CMA-ES then settles the best plans.
    """

    order: float
    part: float
    left: int
    settling: float = 0.0


STAGES = (
    Stage(8.0, 0.25, 2),
    Stage(32.0, 0.2, 1),
    Stage(np.inf, 0.15, 1, settling=0.12),
    Stage(np.inf, 0.16, 1, settling=0.12),
)
MOST_CHANGES = 3
"""Most choices that a child changes."""


@dataclass(frozen=True)
class Found:
    """Best plans of some states.

    Attributes:
        alone: Least objectives from random plans (S,).
        value: Least objectives, those from the plans given included (S,).
        actions: Actions of the best plans (S, A).
        evaluations: Plans that were priced for each state.
    """

    alone: FloatArray
    value: FloatArray
    actions: FloatArray
    evaluations: int


@dataclass
class Evolution:
    """Search in some states at once.

    Attributes:
        codec: Turns actions into plans.
        state: The systems (S, ...).
        price: Objectives of plans (R,) in states (R, ...), with a mean of some order as delay.
        rng: Source of random numbers.
    """

    codec: ActionCodec
    state: SystemState
    price: Callable[[SystemState, Allocation, float], FloatArray]
    rng: np.random.Generator
    _repeated: dict[int, SystemState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        codec = self.codec
        self.levels = {"micro_batches": len(codec.micro_batch_choices)}
        for part in codec.opened_parts:
            if part.axes == "N" and part.levels(codec.parameters):
                self.levels[part.name] = part.levels(codec.parameters)
        self.real = self._marked(REAL)
        self.steps = self._marked((*REAL, "caps"))

    def _marked(self, names: Sequence[str]) -> BoolArray:
        """True for the entries of some parts (A,)."""
        marks = {name: np.full(part.shape, name in names) for name, part in self.codec.parts.items()}
        return np.asarray(self.codec.join(marks), dtype=bool)

    def priced(self, actions: FloatArray, order: float = np.inf) -> FloatArray:
        """Objectives (S, P) of actions (S, P, A), whose segments are rewritten as shares of all blocks."""
        S, P, A = actions.shape
        if P not in self._repeated:
            self._repeated[P] = self.state.map(lambda a: np.repeat(a, P, axis=0))
        state = self._repeated[P]
        plan = self.codec.decode(actions.reshape(S * P, A), state.memory_cap, state.memory_bytes)
        parts = self.codec.split(actions.reshape(S * P, A))
        parts["segments"] = spread(np.asarray(plan.blocks), self.codec.blocks + 1)
        actions[...] = self.codec.join(parts).reshape(S, P, A)
        value = self.price(state, plan, order).reshape(S, P)
        return np.where(np.isfinite(value), value, np.inf)

    def run(self, evaluations: int, given: FloatArray | None = None) -> Found:
        """Search from random plans, and from the plans given.

        Args:
            evaluations: Plans to price for each state, about.
            given: Actions of one plan for each state (S, A), with which one more island begins.
        """
        S, A = len(self.state.backlog), self.codec.action_size
        islands = ISLANDS + (given is not None)
        members = self.rng.uniform(-1.0, 1.0, (S, islands, MEMBERS, A))
        free = self._marked(("caps", "clock_cap")) & (self.rng.random((S, islands, MEMBERS, 1)) < 0.5)
        members = np.where(free, 1.0, members)
        members[:, 0, 0] = np.where(self._marked(("segments", *REAL)), 1.0, 0.0)
        if given is not None:
            members[:, -1] = given[:, None]
            changed = self._changed(members[:, -1:], MEMBERS - 1)
            members[:, -1:, 1:] = changed
        used, rows, outside = 0, np.arange(S), given
        for order, part, left, settling in STAGES:
            if outside is not None:
                members[:, -1, -1] = outside  # which another mean of the delays may have driven out
            members, values = _best(members, self._priced_islands(members, order))
            generations = max(int(part * evaluations) // (islands * CHILDREN), 1)
            for _ in range(generations):
                children = self._children(members)
                value = self._priced_islands(children, order)
                members, values = _best(
                    np.concatenate((members, children), axis=2), np.concatenate((values, value), axis=2)
                )
            used += islands * (MEMBERS + generations * CHILDREN)
            ranks = np.argsort(values[:, :ISLANDS, 0], axis=1)[:, np.arange(ISLANDS) % left]
            members[:, :ISLANDS] = np.take_along_axis(members, ranks[..., None, None], axis=1)
            if settling > 0.0:
                actions, value, more = self.settled(
                    members[:, [0] if given is None else [0, -1], 0], int(settling * evaluations)
                )
                members[:, :ISLANDS, -1] = actions[:, :1]
                outside = None if given is None else actions[:, 1]
                used += more
        first = np.argmin(value, axis=1)
        return Found(value[:, 0], value[rows, first], actions[rows, first], used)

    def _priced_islands(self, members: FloatArray, order: float = np.inf) -> FloatArray:
        S, islands, count, A = members.shape
        actions = members.reshape(S, islands * count, A)
        value = self.priced(actions, order)
        members[...] = actions.reshape(members.shape)
        return value.reshape(S, islands, count)

    def _children(self, members: FloatArray) -> FloatArray:
        """Children of all islands (S, I, C, A), from parents (S, I, P, A) in order of their objectives."""
        rng, (S, islands, count, A) = self.rng, members.shape
        shape = (S, islands, CHILDREN)

        def taken(power: float) -> FloatArray:
            place = (count * rng.random(shape) ** power).astype(np.int64)
            return np.asarray(np.take_along_axis(members, place[..., None], axis=2))

        found, other, first, second = taken(1.5), taken(1.0), taken(1.0), taken(1.0)
        by_cluster = (*shape, self.codec.clusters, A // self.codec.clusters)
        mixes = (rng.random((*shape, 1, 1)) < 0.3) & (rng.random((*by_cluster[:-1], 1)) < 0.5)
        found = np.where(mixes, other.reshape(by_cluster), found.reshape(by_cluster)).reshape(found.shape)
        along = (rng.random((*shape, 1)) < 0.5) * 10.0 ** rng.uniform(-1.0, 0.1, (*shape, 1))
        found = found + self.steps * along * (first - second)
        return self._changed(found, CHILDREN, stepped=along > 0.0)

    def _changed(self, actions: FloatArray, count: int, stepped: BoolArray | bool = False) -> FloatArray:
        """Actions (S, I, count, A) after random steps, unless they have ``stepped``, and changed choices."""
        rng = self.rng
        shape, A = (*actions.shape[:2], count), actions.shape[-1]
        found = np.array(actions[:, :, :count])
        size = 10.0 ** rng.uniform(-4.0, -0.3, (*shape, 1)) * ~np.asarray(stepped)
        some = rng.random(found.shape) < 10.0 ** rng.uniform(-1.5, 0.0, (*shape, 1))
        found += self.steps * some * size * rng.standard_normal(found.shape)
        rows = np.clip(found, -1.0, 1.0).reshape(-1, A)
        changing = np.arange(len(rows))
        for _ in range(MOST_CHANGES):
            changing = changing[rng.random(len(changing)) < 0.5]
            rows[changing] = self._with_change(rows[changing])
        return rows.reshape(found.shape)

    def _with_change(self, actions: FloatArray) -> FloatArray:
        """Actions (R, A), each with another choice in one cluster."""
        rng, parts = self.rng, self.codec.split(actions)
        R, N, K = parts["segments"].shape
        names = [*self.levels, "move", "move", "move", "trade"]
        kind, rows, n = rng.integers(len(names), size=R), np.arange(R), rng.integers(N, size=R)
        i = np.argmax(rng.random((R, K)) * (parts["segments"][rows, n] > -1.0), axis=-1)
        j = (i + rng.integers(1, max(K, 2), R)) % K
        for name, levels in self.levels.items():
            at = parts[name]
            place = nearest_choice(at[rows, n], levels)
            near = np.clip(place + rng.choice((-1, 1), R), 0, levels - 1)
            place = np.where(rng.random(R) < 0.5, near, rng.integers(levels, size=R))
            chosen = kind == list(self.levels).index(name)
            at[rows[chosen], n[chosen]] = spread(place, levels)[chosen]
        moves, trades = kind >= len(self.levels), kind == len(names) - 1
        r, c, a, b = (x[moves & ~trades] for x in (rows, n, i, j))
        segments = parts["segments"]
        whole = np.where(rng.random(len(r)) < 0.2, segments[r, c, a] + 1.0, 2.0 / self.codec.blocks)
        segments[r, c, a] -= whole
        segments[r, c, b] += whole
        r, c, a, b = (x[trades] for x in (rows, n, i, j))
        for values in parts.values():
            if values.ndim == 3:
                values[r, c, a], values[r, c, b] = values[r, c, b], values[r, c, a]
        return np.asarray(self.codec.join(parts))

    def settled(self, actions: FloatArray, evaluations: int) -> tuple[FloatArray, FloatArray, int]:
        """Settle the real numbers of plans (S, P, A) by CMA-ES; return plans, objectives and evaluations."""
        best, value = actions.copy(), self.priced(actions.copy())
        S, P = actions.shape[:2]
        options = {"bounds": [-1.0, 1.0], "verbose": -9, "popsize": CMA_CHILDREN}
        searches: list[list[Any]] = []
        uses = self._used(actions)
        for s in range(S):
            seeds = self.rng.integers(1, 2**31, size=(P,))
            searches.append(
                [
                    cma.CMAEvolutionStrategy(actions[s, p, uses[s, p]], 0.05, {**options, "seed": int(seed)})
                    for p, seed in enumerate(seeds)
                ]
            )
        rounds = evaluations // (P * CMA_CHILDREN)
        for _ in range(rounds):
            trial = np.repeat(actions[:, :, None], CMA_CHILDREN, axis=2)
            asked = [[search.ask() for search in each] for each in searches]
            for s in range(S):
                for p in range(P):
                    trial[s, p][:, uses[s, p]] = asked[s][p]
            found = self._priced_islands(trial)
            for s in range(S):
                for p in range(P):
                    searches[s][p].tell(asked[s][p], list(found[s, p]))
            place = np.argmin(found, axis=2)[..., None]
            least = np.take_along_axis(found, place, axis=2)[..., 0]
            better = least < value
            best = np.where(
                better[..., None], np.take_along_axis(trial, place[..., None], axis=2)[:, :, 0], best
            )
            value = np.minimum(least, value)
        return best, value, (1 + rounds * CMA_CHILDREN) * P

    def _used(self, actions: FloatArray) -> BoolArray:
        """Real entries of plans (S, P, A) that count: those of clusters, and of devices with blocks."""
        parts = self.codec.split(actions)
        used = {name: np.ones(values.shape, dtype=bool) for name, values in parts.items()}
        for name in ("device_power", "clock_cap"):
            if name in used:
                used[name] = parts["segments"] > -1.0
        return np.asarray(self.codec.join(used), dtype=bool) & self.real


def _best(members: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The best members of each island in order (S, I, MEMBERS, A), no two with the same objective."""
    order = np.argsort(values, axis=2, kind="stable")
    ranked = np.take_along_axis(values, order, axis=2)
    again = np.zeros(ranked.shape, dtype=bool)
    again[..., 1:] = ranked[..., 1:] == ranked[..., :-1]
    kept = np.take_along_axis(order, np.argsort(again, axis=2, kind="stable")[..., :MEMBERS], axis=2)
    return np.take_along_axis(members, kept[..., None], axis=2), np.take_along_axis(values, kept, axis=2)
