"""Powers, shares and other positive numbers of plans, improved together: BFGS on exact prices ([X]).

A step moves the logarithms of all numbers. Slopes come from prices a little to either side. Clusters are
probed side by side, at the interference that they have; one more probe tells what interference costs. The
prices have kinks, where another element of a pipeline becomes the slowest: there BFGS takes short steps, but
does not stop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation, with_values
from collapipe_env.physics.parameters import Parameters
from collapipe_env.simulator.decision import opened_rows

from .joint_prices import ClusterPrices, JointPrices, either

SCALES = (1.6, 1.0, 0.6, 0.3, 0.12, 0.04)
PLAIN_SCALES = (1.25, 0.8, 0.45, 0.2, 0.08)
"""Parts of BFGS's steps, and of those by each number's own curvature, that are tried."""
LONGEST = 0.7
"""Longest step of a logarithm without knowledge of the curvature."""
APART, CLOSE = 0.04, 2e-4
"""First and least distance of a probe, in logarithms."""
SETTLED = 3e-7
"""Fall of the price, relative to the worth of the round's delay, below which a search ends."""
LEAST_LOG_SHARE = -30.0
MEMORY = 12
"""Most steps that BFGS remembers."""


class Improved(NamedTuple):
    """Plans of a batch, and their prices.

    Attributes:
        plan: The plans (R, ...).
        prices: Their prices by cluster.
        value: Their prices (R,).
    """

    plan: Allocation
    prices: ClusterPrices
    value: FloatArray

    def rows(self, rows: IntArray) -> Improved:
        """Some of the plans."""
        prices = ClusterPrices._make(a[rows] for a in self.prices)
        return Improved(self.plan[rows], prices, self.value[rows])

    def replaced(self, rows: IntArray, by: Improved) -> Improved:
        """The plans with others in some rows (Q,)."""
        place = np.zeros(len(self.value), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        instead = np.isin(np.arange(len(self.value)), rows)
        value = np.where(instead, by.value[place], self.value)
        return Improved(
            either(self.plan, by.plan[place], instead), self.prices.taken(place, by.prices, instead), value
        )


class _Numbers:
    """The numbers of plans as rows of logarithms (R, D): powers, those of decisions, and shares.

    Args:
        plan: The plans (R, ...), whose other values stay.

    Attributes:
        first: The plans' own numbers (R, D).
        used: Numbers that the plans read (R, D), bool.
    """

    def __init__(self, parameters: Parameters, plan: Allocation) -> None:
        p, self._plan = parameters, plan
        self._floor = p.bandwidth_floor
        power = p.power_min_w, p.power_max_w
        fields = {"cu_power": power, "device_power": power}
        for row in opened_rows(p.opened):
            fields |= row.slides(p)
        R, N, K = plan.blocks.shape
        given = {name: np.asarray(plan.given(name)) for name in fields}
        self._shapes = {name: now.shape[1:] for name, now in given.items()}
        self.first = np.log(np.hstack([now.reshape(R, -1) for now in (*given.values(), plan.bandwidth)]))
        held, all_ = (plan.blocks > 0).reshape(R, -1), np.ones((R, N), dtype=bool)
        used = [held if now.ndim == 3 else all_ for now in given.values()]
        self.used = np.hstack((*used, all_ & (N > 1)))
        sizes = [now[0].size for now in given.values()]
        self._range = np.repeat(list(fields.values()), sizes, axis=0).T
        self.low, self.high = np.hstack((np.log(self._range), np.tile((LEAST_LOG_SHARE, 0.0), (N, 1)).T))
        # Numbers of one group belong to different clusters.
        per_cluster = np.array([*(size // N for size in sizes), 1])
        first, each = np.cumsum(per_cluster) - per_cluster, np.repeat(per_cluster, [*sizes, N])
        place = np.concatenate([np.arange(size) for size in (*sizes, N)])
        self.group, self.cluster = np.repeat(first, [*sizes, N]) + place % each, place // each
        self.powers, self.shares = N * (K + 1), slice(-N, None)

    def write(self, numbers: FloatArray, rows: IntArray, *, together: bool = True) -> Allocation:
        """Plans with other numbers.

        Args:
            numbers: The numbers (Q, D).
            rows: Plan to which each belongs (Q,).
            together: Whether shares add up; otherwise each cluster's is as if the others' stayed.
        """
        values, at = np.exp(numbers), 0
        some = np.clip(values[:, : self.shares.start], *self._range)
        found: dict[str, FloatArray] = {}
        for name, shape in self._shapes.items():
            size = int(np.prod(shape))
            found[name] = some[:, at : at + size].reshape(-1, *shape)
            at += size
        floor, share = self._floor, values[:, self.shares]
        if together:
            share = share / share.sum(axis=-1, keepdims=True)
        above = np.maximum(share - floor, 1e-12)
        whole = above.sum(axis=-1, keepdims=True) if together else 1.0 - share.shape[1] * floor
        found["bandwidth"] = floor + (1.0 - share.shape[1] * floor) * above / whole
        return with_values(self._plan[rows], found)


def slide(
    pricing: JointPrices, plan: Allocation, rows: IntArray, temperature: FloatArray, steps: int
) -> Improved:
    """Improve the numbers of plans; blocks and other whole numbers stay.

    Args:
        plan: The plans (R, ...).
        rows: Environment of each (R,).
        temperature: Of the soft maxima (R,) [s].
        steps: Most steps, >= 1.
    """
    numbers = _Numbers(pricing.parameters, plan)
    low, high = numbers.low, numbers.high
    prices = pricing.of(plan, rows)
    value = pricing.whole(prices, rows, temperature)
    worth = pricing.worth[rows] * pricing.delay[rows]
    x, every = numbers.first, np.arange(len(rows))
    apart, live = np.full(len(rows), APART), np.ones(len(rows), dtype=bool)
    hessian, better = _Inverse(x.shape), ~live
    scales, plain_scales = np.array(SCALES)[:, None], np.array(PLAIN_SCALES)[:, None]
    tried = len(SCALES) + len(PLAIN_SCALES)
    again = np.repeat(every, tried)
    for _ in range(steps):
        slope, curvature = _probed(
            pricing, numbers, Improved(plan, prices, value), x, apart, rows, temperature
        )
        slope[~numbers.used] = 0.0
        at_end = ((x <= low + 1e-9) & (slope > 0.0)) | ((x >= high - 1e-9) & (slope < 0.0))
        slope[at_end] = 0.0
        least = np.maximum(np.abs(slope) / LONGEST, 1e-12 * worth[:, None] + 1e-30)
        plain = -slope / np.maximum(curvature, least)
        ways = scales * hessian.step(x, slope, plain, ~better)[:, None], plain_scales * plain[:, None]
        trials = np.clip(x[:, None] + np.concatenate(ways, axis=1), low, high)
        other = numbers.write(trials.reshape(-1, x.shape[1]), again)
        found = pricing.of(other, rows[again])
        values = pricing.whole(found, rows[again], temperature[again]).reshape(-1, tried)
        best = values.argmin(axis=1)
        # Where no trial can be played, nothing is gained.
        reached = values[every, best]
        fall = np.where(np.isfinite(reached), value, 0.0) - np.where(np.isfinite(reached), reached, 0.0)
        better = live & (fall > 0.1 * SETTLED * worth)
        place = every * tried + best
        prices = prices.taken(place, found, better)
        value = np.where(better, values[every, best], value)
        new = trials[every, best]
        new[:, numbers.shares] = np.log(other.bandwidth[place])
        x = np.where(better[:, None], new, x)
        apart = np.where(live & (fall < 2e-4 * worth), np.maximum(0.4 * apart, CLOSE), apart)
        live &= (fall >= SETTLED * worth) | (apart > 5.0 * CLOSE)
        if not live.any():
            break
    changed = (x != numbers.first).any(axis=-1)
    return Improved(either(plan, numbers.write(x, every), changed), prices, value)


def _probed(
    pricing: JointPrices,
    numbers: _Numbers,
    at: Improved,
    x: FloatArray,
    apart: FloatArray,
    rows: IntArray,
    temperature: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Slopes and curvatures of the price in all numbers (R, D), 0 where a neighbour cannot be played.

    Args:
        at: The plans, with the prices of their numbers ``x``.
        x: These numbers (R, D).
        apart: Distance of the probes (R,).
    """
    (R, N), felt = at.prices.once.shape, at.prices.interference
    groups = numbers.group.max() + 1
    moved = (numbers.group == np.arange(groups)[:, None]).astype(np.float64)
    moved = np.concatenate((moved, -moved, 0.0 * moved[:1]))
    probes = len(moved)
    again = np.repeat(np.arange(R), probes)
    trials = np.clip(x[:, None] + apart[:, None, None] * moved, numbers.low, numbers.high)
    felt = np.repeat(felt[:, None], probes, axis=1)
    felt[:, -1] *= 1.0 + apart[:, None]
    plans = numbers.write(trials.reshape(-1, x.shape[1]), again, together=False)
    found = pricing.of(plans, rows[again], felt.reshape(-1, N))
    values = pricing.alone(at.prices, found, rows, temperature)
    here, d = at.value[:, None], apart[:, None]
    up, down = values[:, numbers.group, numbers.cluster], values[:, groups + numbers.group, numbers.cluster]
    known = np.isfinite(up) & np.isfinite(down) & np.isfinite(here)
    here = np.where(np.isfinite(here), here, 0.0)
    up, down = np.where(known, up, here), np.where(known, down, here)
    slope = (up - down) / (2.0 * d)
    # At the end of a range one side stays, and the other tells the slope.
    slope = np.where(x <= numbers.low + 1e-9, (up - here) / d, slope)
    slope = np.where(x >= numbers.high - 1e-9, (here - down) / d, slope)
    curvature = (up + down - 2.0 * here) / (d * d)
    # What one cluster gains in share, all others lose.
    share = np.exp(x[:, numbers.shares])
    slope[:, numbers.shares] -= share * slope[:, numbers.shares].sum(axis=-1, keepdims=True)
    # What a watt of each cluster's mean power costs the others.
    of_watt = (values[:, -1] - here) / (d * np.maximum(at.prices.interference, 1e-300))
    of_watt = np.where(np.isfinite(of_watt), of_watt, 0.0)
    cross = np.asarray(pricing.states(rows).cross_gain)
    price = (cross * of_watt[:, None, :]).sum(axis=-1) / (1.0 + (at.plan.blocks > 0).sum(axis=-1))
    watts, owner = np.exp(x[:, : numbers.powers]), numbers.cluster[: numbers.powers]
    slope[:, : numbers.powers] += np.where(known[:, : numbers.powers], watts * price[:, owner], 0.0)
    return slope, curvature


class _Inverse:
    """BFGS's estimate of each row's inverse Hessian, kept as its changes of numbers and slopes."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._changes: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        self._first = np.zeros(shape)
        self._before: tuple[FloatArray, FloatArray] | None = None

    def step(self, x: FloatArray, slope: FloatArray, plain: FloatArray, anew: BoolArray) -> FloatArray:
        """The next step (R, D), none longer than 1.

        Args:
            x: Numbers (R, D).
            slope: Slopes there (R, D).
            plain: Step of each number by its own curvature (R, D), with which rows begin.
            anew: Rows that begin anew (R,), all of them at first.
        """
        fresh = anew[:, None]
        if self._before is not None:
            s, y = x - self._before[0], slope - self._before[1]
            along = _dot(s, y)
            usable = along > 1e-12
            self._changes.append((s, y, np.where(usable, 1.0 / np.where(usable, along, 1.0), 0.0)))
        if fresh.any():
            first = np.where(slope != 0.0, -plain / np.where(slope != 0.0, slope, 1.0), LONGEST)
            self._first = np.where(fresh, first, self._first)
            self._changes = [(s, y, np.where(fresh, 0.0, rho)) for s, y, rho in self._changes]
        self._changes = self._changes[-MEMORY:]
        self._before, found, parts = (x, slope), -slope, []
        for s, y, rho in reversed(self._changes):
            parts.append(rho * _dot(s, found))
            found = found - parts[-1] * y
        found = self._first * found
        for s, y, rho in self._changes:
            found = found + s * (parts.pop() - rho * _dot(y, found))
        found = np.where(_dot(found, slope) < 0.0, found, plain)
        longest = np.abs(found).max(axis=-1, keepdims=True)
        return np.asarray(found / np.maximum(longest, 1.0))


def _dot(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.asarray((first * second).sum(axis=-1, keepdims=True))
