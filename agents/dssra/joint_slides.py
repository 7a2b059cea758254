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
"""Parts of a step that are tried."""
LONGEST = 0.7
"""Longest step of a logarithm without knowledge of the curvature."""
APART, CLOSE = 0.04, 2e-4
"""First and least distance of a probe, in logarithms."""
SETTLED = 3e-7
"""Fall of the price, relative to the worth of the round's delay, below which a search ends."""
LEAST_LOG_SHARE = -30.0
MOST_NUMBERS = 400
"""Most numbers for which BFGS keeps a matrix; more move by their own curvatures alone."""


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
    """The numbers of plans as rows of logarithms (R, D): powers, those of decisions, and shares."""

    def __init__(self, parameters: Parameters, plan: Allocation) -> None:
        p = self._parameters = parameters
        power = p.power_min_w, p.power_max_w
        self._fields = {"cu_power": power, "device_power": power}
        for row in opened_rows(p.opened):
            self._fields |= row.slides(p)
        R, N, K = plan.blocks.shape
        ends, own, groups, first = [], [], [], 0
        for name, range_ in self._fields.items():
            each = np.asarray(plan.given(name)).size // (R * N)
            ends.append(np.tile(np.log(range_), (N * each, 1)))
            own.append(np.repeat(np.arange(N), each))
            groups.append(first + np.tile(np.arange(each), N))
            first += each
        ends.append(np.tile((LEAST_LOG_SHARE, 0.0), (N, 1)))
        self.low, self.high = np.concatenate(ends).T
        # A share belongs to all clusters: the others' follow.
        self.cluster = np.concatenate((*own, np.full(N, N)))
        self.group = np.concatenate((*groups, first + np.arange(N)))
        self.powers = N * (K + 1)

    def read(self, plan: Allocation) -> FloatArray:
        """The numbers of plans (R, D)."""
        R = len(plan.blocks)
        fields = [np.asarray(plan.given(name)).reshape(R, -1) for name in self._fields]
        return np.asarray(np.log(np.concatenate((*fields, plan.bandwidth), axis=1)))

    def used(self, plan: Allocation) -> BoolArray:
        """Numbers that plans read (R, D), bool."""
        R, N, _ = plan.blocks.shape
        found = []
        for name in self._fields:
            per_device = np.asarray(plan.given(name)).ndim == 3
            found.append((plan.blocks > 0).reshape(R, -1) if per_device else np.ones((R, N), dtype=bool))
        return np.concatenate((*found, np.full((R, N), N > 1)), axis=1)

    def write(self, plan: Allocation, numbers: FloatArray) -> Allocation:
        """The plans with other numbers (R, D)."""
        found, at = {}, 0
        for name, (low, high) in self._fields.items():
            shape = np.asarray(plan.given(name)).shape
            size = int(np.prod(shape[1:]))
            found[name] = np.clip(np.exp(numbers[:, at : at + size]), low, high).reshape(shape)
            at += size
        floor, N = self._parameters.bandwidth_floor, plan.bandwidth.shape[-1]
        share = np.exp(numbers[:, at:] - numbers[:, at:].max(axis=-1, keepdims=True))
        above = np.maximum(share / share.sum(axis=-1, keepdims=True) - floor, 1e-12)
        found["bandwidth"] = floor + (1.0 - N * floor) * above / above.sum(axis=-1, keepdims=True)
        return with_values(plan, found)


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
    used, x, every = numbers.used(plan), numbers.read(plan), np.arange(len(rows))
    apart, live = np.full(len(rows), APART), np.ones(len(rows), dtype=bool)
    hessian = _Inverse(x.shape)
    for _ in range(steps):
        slope, curvature = _probed(
            pricing, numbers, Improved(plan, prices, value), x, apart, rows, temperature
        )
        slope = np.where(used, slope, 0.0)
        at_end = ((x <= low + 1e-9) & (slope > 0.0)) | ((x >= high - 1e-9) & (slope < 0.0))
        slope = np.where(at_end, 0.0, slope)
        least = np.maximum(np.abs(slope) / LONGEST, 1e-12 * worth[:, None] + 1e-30)
        plain = -slope / np.maximum(curvature, least)
        ways = np.stack((hessian.step(x, slope, plain), plain), axis=1)[:, :, None]
        trials = np.clip(x[:, None, None] + np.array(SCALES)[:, None] * ways, low, high)
        trials = trials.reshape(len(rows), -1, x.shape[1])
        tried = trials.shape[1]
        again = np.repeat(every, tried)
        other = numbers.write(plan[again], trials.reshape(-1, x.shape[1]))
        found = pricing.of(other, rows[again])
        values = pricing.whole(found, rows[again], temperature[again]).reshape(-1, tried)
        best = values.argmin(axis=1)
        fall = value - values[every, best]
        better = live & (fall > 0.1 * SETTLED * worth)
        place = every * tried + best
        plan = either(plan, other[place], better)
        prices = prices.taken(place, found, better)
        value = np.where(better, values[every, best], value)
        x = np.where(better[:, None], numbers.read(plan), x)
        hessian.forget(~better)
        apart = np.where(live & (fall < 2e-4 * worth), np.maximum(0.4 * apart, CLOSE), apart)
        live &= (fall >= SETTLED * worth) | (apart > 5.0 * CLOSE)
        if not live.any():
            break
    return Improved(plan, prices, value)


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
        at: The plans, with their prices.
        x: Their numbers (R, D).
        apart: Distance of the probes (R,).
    """
    R, N, _ = at.plan.blocks.shape
    groups = numbers.group.max() + 1
    moved = (numbers.group == np.arange(groups + 1)[:, None]).astype(np.float64)  # the last moves nothing
    moved = np.concatenate((moved, -moved))
    probes = len(moved)
    again = np.repeat(np.arange(R), probes)
    trials = np.clip(x[:, None] + apart[:, None, None] * moved, numbers.low, numbers.high)
    felt = np.repeat(at.prices.interference[:, None], probes, axis=1)
    felt[:, groups] *= 1.0 + apart[:, None]
    felt[:, -1] *= 1.0 - apart[:, None]
    plans = numbers.write(at.plan[again], trials.reshape(-1, x.shape[1]))
    found = pricing.of(plans, rows[again], felt.reshape(-1, N))
    alone = pricing.alone(at.prices, found, rows, temperature)
    whole = pricing.whole(found, rows[again], temperature[again]).reshape(R, probes, 1)
    values, place = np.concatenate((alone, whole), axis=-1), groups + 1
    here, d = at.value[:, None], apart[:, None]
    up, down = values[:, numbers.group, numbers.cluster], values[:, place + numbers.group, numbers.cluster]
    known = np.isfinite(up) & np.isfinite(down)
    up, down = np.where(known, up, here), np.where(known, down, here)
    slope = (up - down) / (2.0 * d)
    # At the end of a range one side stays, and the other tells the slope.
    slope = np.where(x <= numbers.low + 1e-9, (up - here) / d, slope)
    slope = np.where(x >= numbers.high - 1e-9, (here - down) / d, slope)
    curvature = (up + down - 2.0 * here) / (d * d)
    # What a watt of each cluster's mean power costs the others.
    of_watt = (alone[:, groups] - alone[:, -1]) / (2.0 * d * np.maximum(at.prices.interference, 1e-300))
    of_watt = np.where(np.isfinite(of_watt), of_watt, 0.0)
    cross = np.asarray(pricing.states(rows).cross_gain)
    price = (cross * of_watt[:, None, :]).sum(axis=-1) / (1.0 + (at.plan.blocks > 0).sum(axis=-1))
    watts = np.concatenate((at.plan.cu_power, at.plan.device_power.reshape(R, -1)), axis=1)
    owner = numbers.cluster[: numbers.powers]
    slope[:, : numbers.powers] += np.where(known[:, : numbers.powers], watts * price[:, owner], 0.0)
    return slope, curvature


class _Inverse:
    """BFGS's estimate of the inverse Hessian of each row (R, D, D)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._known = shape[1] <= MOST_NUMBERS
        self._inverse = np.zeros((*shape, shape[1] if self._known else 0))
        self._anew = np.ones(shape[0], dtype=bool)
        self._before: tuple[FloatArray, FloatArray] | None = None

    def forget(self, rows: BoolArray) -> None:
        """Begin anew in some rows (R,), bool."""
        self._anew = rows

    def step(self, x: FloatArray, slope: FloatArray, plain: FloatArray) -> FloatArray:
        """The next step (R, D), none longer than 1.

        Args:
            x: Numbers (R, D).
            slope: Slopes there (R, D).
            plain: Step of each number by its own curvature (R, D), with which rows begin.
        """
        if not self._known:
            return plain
        if self._before is not None:
            s, y = x - self._before[0], slope - self._before[1]
            along = (s * y).sum(axis=-1)
            usable = (along > 1e-12) & ~self._anew
            rho = np.where(usable, 1.0 / np.where(usable, along, 1.0), 0.0)[:, None, None]
            by_y = (self._inverse * y[:, None, :]).sum(axis=-1)
            twice = rho[:, :, 0] * (y * by_y).sum(axis=-1, keepdims=True)
            mixed = by_y[:, :, None] * s[:, None, :]
            change = (1.0 + twice)[:, :, None] * rho * s[:, :, None] * s[:, None, :]
            self._inverse += np.where(
                usable[:, None, None], change - rho * (mixed + mixed.transpose(0, 2, 1)), 0.0
            )
        first = np.where(slope != 0.0, -plain / np.where(slope != 0.0, slope, 1.0), LONGEST)
        self._inverse[self._anew] = np.eye(x.shape[1]) * first[self._anew][:, None, :]
        self._before = x, slope
        found = -(self._inverse * slope[:, None, :]).sum(axis=-1)
        found = np.where(((found * slope).sum(axis=-1) < 0.0)[:, None], found, plain)
        longest = np.abs(found).max(axis=-1, keepdims=True)
        return np.asarray(found / np.maximum(longest, 1.0))
