"""Grid of a miniature's states, and the decision process on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from research.miniatures.average_cost import Decisions, Solution, solve
from research.miniatures.system import Coordinates, Rounds, SmallSystem

_ROWS = 200_000
"""States and actions that are worked out at a time."""


class Grid(NamedTuple):
    """Grid over loads, governors' levels, temperatures and the previous plan, in this order.

    Attributes:
        system: The small system.
        temperatures: Points of the temperature of every device (G,), ascending [C]; one without heat.
        sizes: Points along every axis: K loads, K levels, K temperatures, plans.
    """

    system: SmallSystem
    temperatures: FloatArray
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, system: SmallSystem, intervals: int = 4) -> Grid:
        """The grid of a system.

        Args:
            intervals: Intervals between the temperatures of every device, a multiple of 4. Half of them lie
                from 1 K below the governor's hysteresis to 1.5 K above its set point, where it acts; the
                others below, from the temperature of idling, and above, up to the critical temperature.
                Ignored without heat.
        """
        temperatures = np.zeros(1)
        if system.heat is not None:
            own, spec = system.heat.own, system.heat.spec
            coldest = spec.ambient_min_c + own.resistance_k_per_w * own.idle_w
            acts = own.on_c if spec.governor == "ipa" else own.set_c - own.hysteresis_k - 1.0
            ends, n = (coldest, acts, min(own.set_c + 1.5, own.critical_c), own.critical_c), intervals // 4
            if not coldest < acts or n < 1:
                raise ValueError(f"{intervals} intervals from {coldest:g} C: give 4, 8, ... and cooler air")
            parts = [np.linspace(a, b, m + 1) for a, b, m in zip(ends, ends[1:], (n, 2 * n, n), strict=False)]
            temperatures = np.unique(np.concatenate(parts))
        K = system.devices
        plans = len(system.splits) if system.remembers else 1
        sizes = (len(system.loads),) * K + (system.levels,) * K + (len(temperatures),) * K + (plans,)
        return cls(system, temperatures, sizes)

    @property
    def states(self) -> int:
        """Number of states."""
        return math.prod(self.sizes)

    def coordinates(self, index: IntArray) -> Coordinates:
        """Coordinates of some states (R,)."""
        K = self.system.devices
        places = np.stack(np.unravel_index(index, self.sizes), axis=-1)
        warm = self.temperatures[places[:, 2 * K : 3 * K]]
        return Coordinates(places[:, :K], warm, places[:, K : 2 * K], places[:, -1])

    def after(self, load: IntArray, temperature: FloatArray, level: IntArray, plan: IntArray) -> csr_array:
        """Probabilities of the states of the next round (R, S).

        The load moves by its law. A temperature between two points counts as one of them, with the chances
        that keep its mean (linear interpolation of the values).

        Args:
            load: Levels of load in the round just played (R, K).
            temperature: Temperatures after it (R, K) [C].
            level: Levels of the governors after it (R, K).
            plan: Split that was played (R,).
        """
        K, rows = self.system.devices, len(plan)
        strides = np.asarray([math.prod(self.sizes[i + 1 :]) for i in range(len(self.sizes))])
        base = level @ strides[K : 2 * K] + (plan if self.sizes[-1] > 1 else 0)
        ways = []  # places and chances along each axis that has any (R, ways)
        law, points = self.system.loads, self.temperatures
        for k in range(K):
            if len(law) > 1:
                places = np.broadcast_to(np.arange(len(law)) * strides[k], (rows, len(law)))
                ways.append((places, law[load[:, k]]))
            if len(points) > 1:
                below = np.clip(np.searchsorted(points, temperature[:, k], "right") - 1, 0, len(points) - 2)
                share = (temperature[:, k] - points[below]) / (points[below + 1] - points[below])
                share = np.clip(share, 0.0, 1.0)
                places = np.stack((below, below + 1), axis=-1) * strides[2 * K + k]
                ways.append((places, np.stack((1.0 - share, share), axis=-1)))
        columns, weights = base[:, None], np.ones((rows, 1))
        for places, chances in ways:
            columns = (columns[:, :, None] + places[:, None, :]).reshape(rows, -1)
            weights = (weights[:, :, None] * chances[:, None, :]).reshape(rows, -1)
        starts = np.arange(rows + 1) * columns.shape[1]
        return csr_array((weights.ravel(), columns.ravel(), starts), shape=(rows, self.states))


class Model(NamedTuple):
    """A miniature on a grid.

    Attributes:
        grid: The grid.
        decisions: Delay [s] and successors of every action in every state.
        moving: Seconds of the delay in which moments move (S, A).
        micro_batches: Number of micro-batches (S, A), int.
    """

    grid: Grid
    decisions: Decisions
    moving: FloatArray
    micro_batches: IntArray


def successors(grid: Grid, at: Coordinates, rounds: Rounds, remainder: FloatArray | None = None) -> csr_array:
    """Probabilities of the next states after every action in some states (R A, S).

    A governor moves once a period. The time since its last move is not a coordinate: all times are taken as
    equally likely, so one more move occurs with a chance equal to the part of a period that is left.

    Args:
        at: The states (R, ...).
        remainder: Time since the governors' last move (R,) [s], where it is known.
    """
    R, A = rounds.delay.shape
    system, K = grid.system, grid.system.devices
    load, level = (np.repeat(array, A, axis=0) for array in (at.load, at.level))
    split, delay = np.tile(system.split_of, R), rounds.delay.ravel()
    temperature = rounds.temperature.reshape(-1, K)
    if system.levels == 1 or system.heat is None:
        return grid.after(load, temperature, level, split)
    period = system.heat.own.period_s
    if remainder is not None:
        after = system.levels_after(level, temperature, delay, np.repeat(remainder, A))
        return grid.after(load, temperature, after, split)
    fewer, more = (
        system.levels_after(level, temperature, delay, left) for left in (0.0, math.nextafter(period, 0.0))
    )
    if (fewer == more).all():
        return grid.after(load, temperature, fewer, split)
    chance = np.mod(delay, period) / period
    found = grid.after(load, temperature, fewer, split).multiply((1.0 - chance)[:, None])
    return csr_array(found + grid.after(load, temperature, more, split).multiply(chance[:, None]))


def model_of(grid: Grid) -> Model:
    """Work out every action in every state of a grid."""
    rounds_of = _table(grid) if grid.system.speeds_are_levels else grid.system.rounds
    rounds, chains = [], []
    pieces = math.ceil(grid.states * len(grid.system.split_of) / _ROWS)
    for states in np.array_split(np.arange(grid.states), pieces):
        at = grid.coordinates(states)
        rounds.append(rounds_of(at))
        chains.append(successors(grid, at, rounds[-1]))
    delay, moving, micro_batches = (
        np.concatenate([getattr(part, name) for part in rounds])
        for name in ("delay", "moving", "micro_batches")
    )
    decisions = Decisions(delay, csr_array(vstack(chains, format="csr")))
    return Model(grid, decisions, moving, micro_batches)


def solve_model(model: Model, tolerance: float = 1e-3) -> Solution:
    """Best schedule among the states in reach, as :func:`~research.miniatures.average_cost.solve` finds it.

    In long rounds a governor moves over several levels at once, so the levels in between are never held.
    Such states are left out; they get the greatest value of the others.

    Args:
        model: The miniature.
        tolerance: Gap of the bounds over the mean.
    """
    kept, decisions = np.flatnonzero(_in_reach(model)), model.decisions
    states, actions = decisions.cost.shape
    if len(kept) == states:
        return solve(decisions, tolerance)
    rows = (kept[:, None] * actions + np.arange(actions)).ravel()
    found = solve(Decisions(decisions.cost[kept], decisions.successors[rows][:, kept]), tolerance)
    value, action = np.full(states, found.value.max()), np.zeros(states, dtype=np.int64)
    value[kept], action[kept] = found.value, found.action
    return found._replace(value=value, action=action)


def _in_reach(model: Model) -> BoolArray:
    """States whose governors' levels can be reached from full clocks (S,), at any temperature."""
    grid, K = model.grid, model.grid.system.devices
    levels = np.unravel_index(np.arange(grid.states), grid.sizes)[K : 2 * K]
    place = np.ravel_multi_index(levels, grid.sizes[K : 2 * K])
    count = math.prod(grid.sizes[K : 2 * K])
    chain = model.decisions.successors
    before = np.repeat(np.arange(chain.shape[0]) // len(grid.system.split_of), np.diff(chain.indptr))
    follows = np.zeros((count, count), dtype=np.bool_)
    some = chain.data > 0.0
    follows[place[before[some]], place[chain.indices[some]]] = True
    reached = np.arange(count) == 0
    for _ in range(count):
        reached = reached | follows[reached].any(axis=0)
    return np.asarray(reached[place])


def _table(grid: Grid) -> Callable[[Coordinates], Rounds]:
    """Rounds of any states, where temperatures act only through the governors' levels.

    Delays depend only on the other coordinates, which are few. At a constant power a temperature after some
    time is a linear function of the earlier one, so two are enough: the coldest and the warmest.
    """
    system, K = grid.system, grid.system.devices
    sizes = (*grid.sizes[: 2 * K], grid.sizes[-1])
    places = np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=-1)
    ends = grid.temperatures[0], grid.temperatures[-1]
    cold, warm = (
        system.rounds(
            Coordinates(places[:, :K], np.full((len(places), K), end), places[:, K : 2 * K], places[:, -1])
        )
        for end in ends
    )
    kept = (warm.temperature - cold.temperature) / max(ends[1] - ends[0], 1e-9)

    def look_up(at: Coordinates) -> Rounds:
        place = np.ravel_multi_index((*at.load.T, *at.level.T, at.plan), sizes)
        temperature = cold.temperature[place] + kept[place] * (at.temperature - ends[0])[:, None, :]
        return Rounds(cold.delay[place], cold.moving[place], temperature, cold.micro_batches[place])

    return look_up
