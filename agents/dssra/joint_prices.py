"""Prices of plans for the joint search of open decisions: all from :func:`round_costs` ([X]).

The search compares plans of a whole batch by ``W max_n T_n`` plus the drift, ``W`` being the worth of a
second. The maximum is a soft one, ``t ln sum exp(x / t)`` with a temperature ``t``: a cluster that is nearly
the slowest counts nearly as much, so clusters improve together. With a common head, every local step ends
with that of the slowest cluster, so the longest local step and the longest rest of a round each have a
maximum.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import COMMON, Allocation, stack_allocations
from collapipe_env.physics.energy import idle_power
from collapipe_env.physics.memory import fits
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.queues import update_backlog
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.refusal import SLACK
from collapipe_env.simulator.state import SystemState

from .cluster_costs import LEAST_PRICE

MOST = 1e100
"""Stands for times and energies without end, or unknown, over dead links: they have no differences."""
Scalar = TypeVar("Scalar", bound=np.generic)


class Worth(NamedTuple):
    """Worth of plans to a scheduler, which it minimises.

    Attributes:
        parameters: The scenario's scalars.
        tradeoff_v: ``V`` [1/s].
        exact_drift: Whether the drift is the change of the queues rather than the paper's bound.
        convergence_weight: Price of a unit of loss exponent.
        extra_price: Price of each node's energy on top of its queue's (E, N, K+1) [1/J]; ``None`` for 0.
        use_price: Price of giving a device any blocks at all (E, N, K); ``None`` for 0.
    """

    parameters: Parameters
    tradeoff_v: float
    exact_drift: bool
    convergence_weight: float
    extra_price: FloatArray | None
    use_price: FloatArray | None


class ClusterPrices(NamedTuple):
    """Prices of a batch of plans, by cluster.

    Attributes:
        once: ``T_n``; where local steps wait for each other, without them (R, N) [s].
        steps: All local steps where they wait for each other, otherwise 0 (R, N) [s].
        drift: Drift of the cluster's queues and other priced energy (R, N).
        broadcast: ``T_bc`` (R,) [s].
        fits: Whether the devices can hold their blocks (R, N), bool.
        interference: ``I_n`` (R, N) [W].
    """

    once: FloatArray
    steps: FloatArray
    drift: FloatArray
    broadcast: FloatArray
    fits: BoolArray
    interference: FloatArray

    def taken(self, rows: IntArray, others: ClusterPrices, instead: BoolArray) -> ClusterPrices:
        """These prices, and in some rows those of other plans.

        Args:
            rows: Row of the other plans for each of these (R,).
            instead: Rows to take from there (R,), bool.
        """
        pairs = zip(self, others, strict=True)
        return ClusterPrices._make(
            np.where(instead.reshape(-1, *(1,) * (a.ndim - 1)), b[rows], a) for a, b in pairs
        )


def either(first: Allocation, second: Allocation, instead: BoolArray) -> Allocation:
    """The first plans (R, ...), and in some rows (R,) the second ones."""
    if instead.all():
        return second
    return stack_allocations((first, second))[instead.astype(np.int64), np.arange(len(instead))]


class JointPrices:
    """Prices plans for a batch of environments, as a scheduler sees them.

    The queues get what a round as long as that of the plan at hand leaves them: what it grants, less what
    idle radios use. A second is worth ``V`` less what it leaves them. Otherwise, with budgets per second,
    waiting would pay wherever queues are long.

    Args:
        state: The system (E, ...).
        plan: The plan at hand (E, ...).
    """

    def __init__(self, worth: Worth, state: SystemState, plan: Allocation) -> None:
        p = worth.parameters
        self.parameters = p.without_idle_radios
        self._of, self._state = worth, state
        costs = round_costs(p, state, plan)
        self._granted = np.asarray(costs.allowance)
        idle_w = p.radio_power.idle_w
        # Budgets that idle radios use in a second [1/s].
        self._idle = idle_power(idle_w, state.present, costs.plays, state.budget) / state.budget
        # A scale for temperatures; any will do for a plan over a dead link.
        self.delay = np.where(np.isfinite(costs.delay), costs.delay, 1.0)
        self.worth = np.full(self.delay.shape, worth.tradeoff_v)
        if p.budget_period_s is not None or idle_w > 0.0:
            each = np.where(costs.plays[..., None], costs.energy_ratio, 0.0)
            after = update_backlog(state.live_backlog, each, self._granted[:, None, None])
            left = -((after if worth.exact_drift else state.live_backlog) * self._idle).sum(axis=(-2, -1))
            if p.budget_period_s is not None:
                held = after.sum(axis=(-2, -1))
                if state.server_backlog is not None:
                    held = held + update_backlog(state.server_backlog, costs.server_ratio, self._granted)
                left = held / p.budget_period_s + left
            self.worth = np.maximum(self.worth - left, LEAST_PRICE * self.worth)
        self._left = self._granted[:, None, None] - self._idle * self.delay[:, None, None]
        self._waits = p.barrier and p.costs.local_steps > 1
        self._repeated: dict[bytes, SystemState] = {}

    def states(self, rows: IntArray) -> SystemState:
        """The systems of environments (R, ...).

        Args:
            rows: Their numbers (R,).
        """
        key = rows.tobytes()
        if key not in self._repeated:
            if len(self._repeated) > 16:
                self._repeated.clear()
            self._repeated[key] = self._state.map(lambda a: a[rows])
        return self._repeated[key]

    def of(self, plan: Allocation, rows: IntArray, interference: FloatArray | None = None) -> ClusterPrices:
        """Price plans.

        Args:
            plan: The plans (R, ...).
            rows: Environment of each (R,).
            interference: Interference to use instead of the plans' own (R, N) [W].
        """
        p, of, state = self.parameters, self._of, self.states(rows)
        costs = round_costs(p, state, plan, interference)
        once = np.asarray(costs.cluster_delay)
        steps = np.zeros_like(once)
        if self._waits:
            H = float(p.costs.local_steps)
            waits = (np.asarray(plan.server.server_mode) == COMMON)[..., None] & costs.plays
            steps = np.where(waits, H * costs.local_step, 0.0)
            once = np.where(waits, once - H * (costs.local_step + costs.barrier), once)
        exact = of.exact_drift
        backlog, ratio = np.asarray(state.live_backlog), np.asarray(costs.energy_ratio)
        after = update_backlog(backlog, ratio, self._left[rows])
        drift = (0.5 * after * after if exact else backlog * ratio).sum(axis=-1)
        if of.extra_price is not None:
            drift = drift + (of.extra_price[rows] * costs.energy).sum(axis=-1)
        if of.use_price is not None:
            drift = drift + (of.use_price[rows] * (plan.blocks > 0)).sum(axis=-1)
        if of.convergence_weight > 0.0:
            drift = drift - of.convergence_weight * np.log(np.maximum(costs.survival, 1e-300))
        if state.server_backlog is not None:
            # Priced at the queue after the round, like the radios of DSSRA's search.
            of_server = (costs.terms.server_j + np.zeros_like(once)) / p.server.budget_j
            queue = np.asarray(state.server_backlog)
            queue = update_backlog(queue, of_server.sum(axis=-1), self._granted[rows]) if exact else queue
            drift = drift + queue[:, None] * of_server
        hold = np.asarray(fits(costs.memory, state.memory_bytes, SLACK)).all(axis=-1)
        return ClusterPrices(
            np.fmin(once, MOST),
            np.fmin(steps, MOST),
            np.where(costs.plays, np.fmin(drift, MOST), 0.0),
            np.fmin(costs.broadcast, MOST),
            hold | ~costs.plays,
            np.asarray(costs.interference),
        )

    def whole(self, prices: ClusterPrices, rows: IntArray, temperature: FloatArray) -> FloatArray:
        """Price of each plan (R,); infinite where some device cannot hold its blocks.

        Args:
            rows: Environment of each (R,).
            temperature: Of the soft maxima (R,) [s]; 0 for true ones.
        """
        longest = _soft_max(prices.once, temperature)
        if self._waits:
            longest = longest + _soft_max(prices.steps, temperature)
        found = self.worth[rows] * (longest + prices.broadcast) + prices.drift.sum(axis=-1)
        return np.where(prices.fits.all(axis=-1), found, np.inf)

    def alone(
        self, base: ClusterPrices, others: ClusterPrices, rows: IntArray, temperature: FloatArray
    ) -> FloatArray:
        """Price of base plans in which one cluster alone takes its part of another plan (R, P, N).

        Args:
            base: Prices of the base plans (R, ...).
            others: Prices of ``P`` other plans for each (R P, ...), at the interference of the base.
            rows: Environment of each base plan (R,).
            temperature: Of the soft maxima (R,) [s].
        """
        R = len(base.once)

        def by_base(a: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
            return a.reshape(R, -1, *a.shape[1:])

        longest = _soft_max_with(base.once, by_base(others.once), temperature)
        if self._waits:
            longest = longest + _soft_max_with(base.steps, by_base(others.steps), temperature)
        longest = longest + by_base(others.broadcast)[..., None]
        of_rest = base.drift.sum(axis=-1, keepdims=True) - base.drift
        found = self.worth[rows][:, None, None] * longest + of_rest[:, None] + by_base(others.drift)
        return np.where(by_base(others.fits), found, np.inf)


def _soft_max(values: FloatArray, temperature: FloatArray) -> FloatArray:
    """Soft maximum over the last axis."""
    largest, t = values.max(axis=-1), np.maximum(temperature, 1e-12)
    return np.asarray(largest + t * np.log(np.exp((values - largest[:, None]) / t[:, None]).sum(axis=-1)))


def _soft_max_with(values: FloatArray, own: FloatArray, temperature: FloatArray) -> FloatArray:
    """Soft maximum over clusters if one of them alone has another value (R, P, N).

    Args:
        values: Of all clusters (R, N).
        own: Other values (R, P, N).
    """
    N = values.shape[-1]
    if N == 1:
        return own
    rest = np.where(np.eye(N, dtype=bool), -np.inf, values[:, None, :])
    t = np.maximum(temperature, 1e-12)
    of_rest = _soft_max(rest.reshape(-1, N), np.repeat(t, N)).reshape(-1, 1, N)
    high, low = np.maximum(of_rest, own), np.minimum(of_rest, own)
    return np.asarray(high + t[:, None, None] * np.log1p(np.exp((low - high) / t[:, None, None])))
