"""The oracle: the optimum of one round's scheduling problem, for instances small enough to try every plan.

It minimises the same drift plus penalty ``V T + L(t+1) - L(t)`` as DSSRA, or the paper's bound of it
``V T + sum z e`` (`system_model.md` section 9, [S]), by different means:
every combination of the clusters' segments (and, if wanted, micro-batches) is tried, and for each of them the
powers and shares are optimised by SciPy's SLSQP on the physics of the simulator, ``round_costs``. It shares
nothing with DSSRA, so each can check the other.

For fixed segments the rest is convex in the logarithms of powers and shares (see :mod:`.oracle_powers`), so a
local minimum is the global one, unless ``arq`` often gives up packets. Restarts from random points do not
look for other minima: they guard against an optimiser that stops early.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation, stack_allocations
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.queues import drift_plus_penalty
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.refusal import require_budgets_per_round
from collapipe_env.simulator.state import SystemState

from .planning.oracle_powers import FixedPlan

POLISHED = 4
"""Best combinations that are optimised again from random points."""


@dataclass(frozen=True, eq=False)
class OracleSolution:
    """The best decision found for one round.

    Attributes:
        objective: Objective of the allocation, from ``round_costs``.
        allocation: The decision, without a batch axis.
        combinations: Combinations of segments and micro-batches that were tried.
        spread: Largest relative improvement that restarts brought over the first start's optimum of a
            combination, among the best ones; an estimate of the other combinations' error.
    """

    objective: float
    allocation: Allocation
    combinations: int
    spread: float


def cluster_plans(blocks: int, cap: IntArray) -> IntArray:
    """All splits of the blocks over a cluster's devices within their caps (K,), one a row (plans, K)."""
    ranges = [range(min(int(c), blocks) + 1) for c in cap]
    plans = [plan for plan in itertools.product(*ranges) if sum(plan) == blocks]
    return np.array(plans, dtype=np.int64).reshape(len(plans), len(ranges))


class Oracle(StateScheduler):
    """Exhaustive over segments, convex optimisation over powers and shares; for tiny scenarios.

    Deterministic. It declares that it sees the truth, so an evaluation shows it the truth, not an estimate.

    Args:
        tradeoff_v: Lyapunov ``V`` [1/s], > 0; the scenario's by default.
        all_micro_batches: Try every allowed number of micro-batches of every cluster, or the largest only.
            By default all are tried where passes or messages have overheads. Without any the largest gives
            the least delay under GPipe for any powers, shares and segments, at the same energy and memory.
        drift: ``"exact"`` for ``V T + L(t+1) - L(t)``, ``"bound"`` for ``V T + sum z e``.
        restarts: Random starting points, in addition to a fixed one, for the best combinations, >= 0.
        largest: Most combinations that are tried; a state with more is refused, >= 1.
        seed: Seed of the random starting points.

    Raises:
        AllocationError: If an argument is out of range.
        ScenarioError: Budgets are per second.
    """

    name = "Oracle"
    sees = "truth"

    def __init__(
        self,
        scenario: Scenario,
        *,
        tradeoff_v: float | None = None,
        all_micro_batches: bool | None = None,
        drift: Literal["bound", "exact"] = "exact",
        restarts: int = 3,
        largest: int = 2000,
        seed: int = 0,
    ) -> None:
        super().__init__(scenario)
        require_budgets_per_round("Oracle", self.parameters)
        self.tradeoff_v = self.parameters.tradeoff_v if tradeoff_v is None else float(tradeoff_v)
        for value, valid, fault in (
            (self.tradeoff_v, 0.0 < self.tradeoff_v < np.inf, "tradeoff_v: expected a finite number above 0"),
            (drift, drift in ("bound", "exact"), "drift: expected 'bound' or 'exact'"),
            (restarts, restarts >= 0, "restarts: expected at least 0"),
            (largest, largest >= 1, "largest: expected at least 1"),
        ):
            if not valid:
                raise AllocationError(f"Oracle({fault}, got {value!r})")
        if all_micro_batches is None:
            all_micro_batches = self.parameters.overheads != NO_OVERHEADS
        choices = self.parameters.micro_batch_choices
        self.numbers = choices if all_micro_batches else choices[-1:]
        self.exact_drift = drift == "exact"
        self.restarts = restarts
        self.largest = largest
        self.seed = seed

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`solve`."""
        rows = range(state.uplink_gain.shape[0])
        return stack_allocations([self.solve(state[row]).allocation for row in rows])

    def objective(self, state: SystemState, allocation: Allocation) -> FloatArray:
        """``V T`` plus the drift, exact or its bound, from the simulator's physics (...)."""
        costs = round_costs(self.parameters, state, allocation)
        value: FloatArray = drift_plus_penalty(
            costs.delay,
            state.live_backlog,
            costs.energy_ratio,
            self.tradeoff_v,
            costs.allowance,
            costs.plays,
            exact=self.exact_drift,
        )
        return value

    def solve(self, state: SystemState) -> OracleSolution:
        """Optimise the round of one environment, without a batch axis.

        Raises:
            AllocationError: If a cluster cannot hold the encoder, or there are too many combinations.
        """
        plans, rng = self._plans(state), np.random.default_rng(self.seed)
        found: list[tuple[float, Allocation, FixedPlan]] = []
        for segments in itertools.product(*plans):
            for numbers in itertools.product(self.numbers, repeat=len(plans)):
                fixed = np.array(segments), np.array(numbers), self.tradeoff_v
                powers = FixedPlan(self.parameters, state, *fixed, exact_drift=self.exact_drift)
                allocation = powers.optimise(powers.start())
                found.append((float(self.objective(state, allocation)), allocation, powers))
        found.sort(key=lambda entry: entry[0])
        best, best_allocation, _ = found[0]
        spread = 0.0
        for first, allocation, powers in found[:POLISHED]:
            values, allocations = [first], [allocation]
            for _ in range(self.restarts):
                allocations.append(powers.optimise(powers.start(rng)))
                values.append(float(self.objective(state, allocations[-1])))
            least = int(np.argmin(values))
            spread = max(spread, first / values[least] - 1.0)
            if values[least] < best:
                best, best_allocation = values[least], allocations[least]
        return OracleSolution(best, best_allocation, len(found), spread)

    def _plans(self, state: SystemState) -> list[IntArray]:
        """Plans of every cluster; refuses states without a plan or with too many combinations."""
        cap = np.where(state.present, state.memory_cap, 0)
        if cap.ndim != 2:
            raise AllocationError(
                f"Oracle.solve takes one environment: state has {cap.ndim - 2} batch axes, index them first"
            )
        # Counted before listing: a cluster's list alone could fill the memory.
        splits = [_count_plans(self.parameters.costs.blocks, c) for c in cap]
        for n, count in enumerate(splits):
            if count == 0:
                raise AllocationError(
                    f"cluster {n}: its devices can hold only {cap[n].sum()} blocks, but the encoder has "
                    f"{self.parameters.costs.blocks}: no plan exists"
                )
        counts = len(self.numbers)
        combinations = math.prod(splits) * counts ** len(splits)
        if combinations > self.largest:
            raise AllocationError(
                f"the oracle tries every combination of plans: here {combinations:,} (segments "
                f"{' x '.join(map(str, splits))}, micro-batches {counts} for each cluster), at most "
                f"{self.largest:,} are allowed; take fewer blocks, devices or clusters, or raise largest"
            )
        return [cluster_plans(self.parameters.costs.blocks, c) for c in cap]


def _count_plans(blocks: int, cap: IntArray) -> int:
    """Number of rows of :func:`cluster_plans`, without listing them."""
    ways = [1] + [0] * blocks
    for c in cap:
        ways = [sum(ways[max(0, total - int(c)) : total + 1]) for total in range(blocks + 1)]
    return ways[blocks]
