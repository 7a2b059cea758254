"""Can the energy budgets be met at all? (`system_model.md` section 5)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.scenario import Scenario, fixed_layout
from collapipe_env.simulator.build import mean_state, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import SystemParameters, SystemState

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

POWER_LEVELS = 4
MIXING_STEPS = 12


class EnergyBudgetWarning(UserWarning):
    """A scenario's energy budget cannot be met by any allocation that the search found."""


@dataclass(frozen=True, eq=False)
class FeasibilityReport:
    """The least energy use, over budget, that a search ignoring delay found for each cluster.

    Attributes:
        least_use: Time-average energy over budget of the cluster's worst node (N,); at most 1 where the
            budgets can be met.
        worst_node: That node (N,), 0 the CU.
        energy_ratio: Time-average energy over budget of each node under the plan found (N, K+1).
    """

    least_use: FloatArray
    worst_node: IntArray
    energy_ratio: FloatArray

    @property
    def feasible(self) -> bool:
        """True where every budget can be met."""
        return bool((self.least_use <= 1.0).all())

    def describe(self) -> str:
        """One line for each cluster."""
        return "\n".join(
            f"cluster {n}: least energy use {use:.2f} of the budget, at {_node_name(int(node))}"
            for n, (use, node) in enumerate(zip(self.least_use, self.worst_node, strict=True))
        )


@lru_cache(maxsize=64)
def energy_feasibility(scenario: Scenario) -> FeasibilityReport:
    """Search the least energy use of a scenario at mean gains, ignoring delay.

    Per cluster: blocks go one by one to the device whose energy stays lowest, over a few power levels
    and the fewest and most micro-batches; then single blocks move away from the worst device while that
    helps. Where one plan in every round cannot meet the budgets, plans are mixed over time: a linear
    programme over plans, new plans being priced by its duals. The layout is that of ``layout_seed``.

    Args:
        scenario: The scenario.
    """
    parameters = system_parameters(scenario)
    state = mean_state(scenario, fixed_layout(scenario))
    search = _Search(parameters, state)
    best_ratio, best_use = search.best_single_plans()
    for cluster in np.flatnonzero(best_use > 1.0):
        mixed = search.mix_plans(int(cluster))
        if mixed.max() < best_use[cluster]:
            best_ratio[cluster], best_use[cluster] = mixed, mixed.max()
    return FeasibilityReport(best_use, best_ratio.argmax(axis=-1), best_ratio)


@lru_cache(maxsize=64)
def warn_if_infeasible(scenario: Scenario) -> None:
    """Warn once for each scenario whose budgets the search could not meet, naming the worst node."""
    report = energy_feasibility(scenario)
    if report.feasible:
        return
    cluster = int(report.least_use.argmax())
    node = int(report.worst_node[cluster])
    field = "budgets.cu_energy_j" if node == 0 else "budgets.device_energy_j"
    warnings.warn(
        f"scenario {scenario.name!r}: the energy budget of {_node_name(node)} of cluster {cluster} cannot be "
        f"met: even ignoring delay it uses {report.least_use[cluster]:.2f} of it, so its queue grows under "
        f"every policy. Raise {field}, offer more memory, or take another layout_seed",
        EnergyBudgetWarning,
        stacklevel=4,
    )


def _node_name(node: int) -> str:
    return "the CU" if node == 0 else f"device {node - 1}"


class _Search:
    """Plans of least energy for all clusters at once, evaluated by the one physics."""

    def __init__(self, parameters: SystemParameters, state: SystemState) -> None:
        self.parameters = parameters
        self.state = state
        costs = parameters.costs
        work = costs.local_steps * costs.batch_size * 3.0 * costs.block_forward_flops
        # Budget use of one block's computing; transmit energy is added by the exact evaluation.
        self.block_use: FloatArray = state.compute_power * work / state.speed / state.budget[:, 1:]

    def evaluate(self, blocks: IntArray, power: float, micro_batches: int) -> FloatArray:
        """Energy over budget (..., N, K+1) of plans (..., N, K)."""
        lead = blocks.shape[:-1]
        allocation = Allocation(
            blocks=blocks,
            micro_batches=np.full(lead, micro_batches),
            bandwidth=np.full(lead, 1.0 / self.parameters.clusters),
            device_power=np.full(blocks.shape, power),
            cu_power=np.full(lead, power),
        )
        ratio: FloatArray = round_costs(self.parameters, self.state, allocation).energy_ratio
        return ratio

    def fill(self, price: FloatArray, *, rising: bool) -> IntArray:
        """Place ``L`` blocks one by one on the device where the next one is cheapest (N, K).

        Args:
            price: Price of a block (N, K).
            rising: True to compare what the device would then carry in all, False the block alone.
        """
        blocks = np.zeros(price.shape, dtype=np.int64)
        rows = np.arange(len(price))
        for _ in range(self.parameters.costs.blocks):
            carried = price * (blocks + 1) if rising else price
            choice = np.where(blocks < self.state.memory_cap, carried, np.inf).argmin(axis=-1)
            blocks[rows, choice] += 1
        return blocks

    def best_single_plans(self) -> tuple[FloatArray, FloatArray]:
        """Best plan of each cluster: energy over budget (N, K+1) and its maximum (N,)."""
        parameters = self.parameters
        start = self.fill(self.block_use, rising=True)
        choices = parameters.micro_batch_choices
        best_ratio, best_use = np.zeros(self.state.budget.shape), np.full(len(start), np.inf)
        for power in np.geomspace(parameters.power_min_w, parameters.power_max_w, POWER_LEVELS):
            for micro_batches in {choices[0], choices[-1]}:
                blocks = self._improve(start.copy(), power, micro_batches)
                ratio = self.evaluate(blocks, power, micro_batches)
                use = ratio.max(axis=-1)
                better = use < best_use
                best_ratio[better], best_use[better] = ratio[better], use[better]
        return best_ratio, best_use

    def _improve(self, blocks: IntArray, power: float, micro_batches: int) -> IntArray:
        """Move single blocks off the worst device of each cluster while its maximum falls."""
        N, K = blocks.shape
        rows = np.arange(N)
        use = self.evaluate(blocks, power, micro_batches).max(axis=-1)
        for _ in range(self.parameters.costs.blocks):
            worst = np.where(blocks > 0, self.evaluate(blocks, power, micro_batches)[:, 1:], -1.0).argmax(-1)
            moved = np.repeat(blocks[None], K, axis=0)
            moved[:, rows, worst] -= 1
            moved[np.arange(K)[:, None], rows, np.arange(K)[:, None]] += 1
            allowed = (moved <= self.state.memory_cap).all(axis=-1)
            maximum = self.evaluate(moved, power, micro_batches).max(axis=-1)
            maximum = np.where(allowed, maximum, np.inf)
            pick = maximum.argmin(axis=0)
            better = maximum[pick, rows] < use * (1.0 - 1e-9)
            if not better.any():
                break
            blocks = np.where(better[:, None], moved[pick, rows], blocks)
            use = np.where(better, maximum[pick, rows], use)
        return blocks

    def mix_plans(self, cluster: int) -> FloatArray:
        """Least worst time-average of one cluster over mixtures of plans; energy over budget (K+1,)."""
        power, micro_batches = self.parameters.power_min_w, self.parameters.micro_batch_choices[-1]
        columns = [self.evaluate(self.fill(self.block_use, rising=True), power, micro_batches)[cluster]]
        mixed = columns[0]
        for _ in range(MIXING_STEPS):
            use = np.stack(columns)
            weights, prices = _mix(use)
            mixed = np.asarray(weights @ use, dtype=np.float64)
            blocks = self.fill(self.block_use * prices[1:], rising=False)
            column = self.evaluate(blocks, power, micro_batches)[cluster]
            if column @ prices >= mixed.max() - 1e-9:
                break
            columns.append(column)
        return np.asarray(mixed)


def _mix(use: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights over plans (P, K+1) that minimise the largest average, and the nodes' dual prices."""
    # Imported late: it takes longer than making an environment, and few scenarios come here.
    from scipy.optimize import linprog

    plans, nodes = use.shape
    objective = np.r_[np.zeros(plans), 1.0]
    at_most_bound = np.c_[use.T, -np.ones(nodes)]
    solution = linprog(
        objective,
        A_ub=at_most_bound,
        b_ub=np.zeros(nodes),
        A_eq=[np.r_[np.ones(plans), 0.0]],
        b_eq=[1.0],
        bounds=[(0.0, 1.0)] * plans + [(None, None)],
        method="highs",
    )
    return np.asarray(solution.x)[:plans], -np.asarray(solution.ineqlin.marginals)
