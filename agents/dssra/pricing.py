"""Price of a given plan under drift plus penalty, with the shares that suit it best ([R])."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation, own_arrays
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.queues import (
    drift_plus_penalty,
    participation_drift,
    queue_drift,
)
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.refusal import require_budgets_per_round
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import SystemState

from .argument_checks import require_choice, require_weights
from .option_table import option_table, options_of
from .parallel_rounds import as_record
from .round_input import RoundInput, environment_row, round_input
from .round_plan import evaluate_at_length


@dataclass(frozen=True, eq=False)
class PlanPrice:
    """Price of a plan in each of E environments.

    Attributes:
        costs: The round's costs with the best shares; ``costs.allocation`` is the plan with them.
        shares: Best shares of the uplink ``beta`` (E, N), with sum 1.
        worth: Worth of each cluster's delay ``w`` (E, N) [1/s], >= 0: how fast the objective falls with that
            delay. Their sum is ``V``, plus the priced power of idle radios. Clusters with time to spare
            have 0.
        objective: ``V T + L(t+1) - L(t)``, or its bound ``V T + sum z e`` (E,), with the convergence term
            where there is one.
    """

    costs: RoundCosts
    shares: FloatArray
    worth: FloatArray
    objective: FloatArray


def price_plan(
    scenario: Scenario,
    state: SystemState,
    plan: Allocation,
    *,
    tradeoff_v: float | None = None,
    convergence_weight: float = 0.0,
    drift: Literal["bound", "exact"] = "exact",
) -> PlanPrice:
    """Price segments, micro-batches and powers, and find the best shares of the uplink for them.

    Shares minimise the drift plus penalty, a convex problem, to about 1e-6 of the objective. A search over
    segments and powers can therefore leave the shares out; ``worth`` tells which clusters' delays matter. The
    exception is an uplink under ``arq`` or ``harq`` with so little power that repeats outgrow the rate. There
    more band costs time and energy, the problem is not convex, and other shares can be better.

    >>> from collapipe_env import CollaPipeVectorEnv, load_scenario
    >>> from collapipe_env.agents.dssra import DSSRA, price_plan
    >>> from collapipe_env.simulator.build import system_parameters
    >>> scenario = load_scenario("medium")
    >>> env = CollaPipeVectorEnv(scenario=scenario, num_envs=2, learner="surrogate")
    >>> _ = env.reset(seed=0)
    >>> price = price_plan(scenario, env.state, DSSRA(scenario).allocate(env.state))
    >>> price.shares.shape, price.costs.delay.shape
    ((2, 4), (2,))
    >>> bool((price.worth.sum(axis=-1) > 0.999999 * system_parameters(scenario).tradeoff_v).all())
    True

    Args:
        scenario: The scenario of the state.
        state: The system before the round (E, ...).
        plan: A plan of CollaPipe's own form (E, ...): one device per stage, GPipe. Its shares are ignored.
        tradeoff_v: Lyapunov ``V`` [1/s], > 0; the scenario's by default.
        convergence_weight: Weight of ``-ln(survival)``, as for :class:`DSSRA`, >= 0.
        drift: ``"exact"`` for ``L(t+1) - L(t)``, ``"bound"`` for ``sum z e``.

    Raises:
        AllocationError: If the plan has groups, schedules or split training or breaks a constraint, or a
            number is out of its range.
        ScenarioError: Budgets are per second.
    """
    parameters = system_parameters(scenario)
    require_budgets_per_round("price_plan", parameters)
    V = parameters.tradeoff_v if tradeoff_v is None else tradeoff_v
    V, convergence_weight = require_weights("price_plan", V, convergence_weight)
    require_choice("price_plan", "drift", drift, ("bound", "exact"))
    exact = drift == "exact"
    even = np.full(state.uplink_gain.shape, 1.0 / parameters.clusters)
    plan = own_arrays(replace(plan, bandwidth=even))
    if not plan.is_plain:
        raise AllocationError(
            "price_plan prices plans with one device a stage, GPipe and no split training: this one has "
            "groups, a schedule or server_blocks; round_costs prices any plan for given shares"
        )
    check_allocation(parameters, state, plan)
    own = parameters.costs.training_memory.recompute
    option = options_of(plan, option_table(parameters, 0), recompute=own)
    running = running_state(state, plan)
    inputs = round_input(parameters, running, option, convergence_weight, exact_drift=exact)
    numbers: Any = as_record(parameters.numbers._replace(tradeoff_v=V))
    shares, worth = even.copy(), np.empty_like(even)
    best_shares(inputs, numbers, plan.blocks, np.ascontiguousarray(plan.node_power), shares, worth)
    costs = round_costs(parameters, state, replace(plan, bandwidth=shares))
    objective = round_objective(costs, state, V, convergence_weight, exact_drift=exact)
    return PlanPrice(costs, shares, worth, objective)


def round_objective(
    costs: RoundCosts,
    state: SystemState,
    tradeoff_v: float,
    convergence_weight: float = 0.0,
    *,
    exact_drift: bool = False,
    participation_min: float = 0.0,
) -> FloatArray:
    """Objective of a round, ``V T + sum z e - c sum_n ln(survival_n)``, including the server's queue.

    Queues of clusters that sit out do not change. Participation queues, where there are any, add their drift.

    Args:
        costs: Costs of the plan (...).
        state: The system before the round (...).
        tradeoff_v: ``V`` [1/s].
        convergence_weight: ``c``; has no effect if links do not fail.
        exact_drift: ``L(t+1) - L(t)`` in place of its bound ``sum z e``.
        participation_min: ``rho_min``, the least share of rounds in which a cluster is to take part.
    """
    granted = costs.allowance
    value: FloatArray = drift_plus_penalty(
        costs.delay,
        state.live_backlog,
        costs.energy_ratio,
        tradeoff_v,
        granted,
        costs.plays,
        exact=exact_drift,
    )
    if state.server_backlog is not None:
        value = value + queue_drift(state.server_backlog, costs.server_ratio, granted, exact=exact_drift)
    if state.absence is not None:
        value = value + participation_drift(state.absence, costs.plays, participation_min)
    if convergence_weight > 0.0:
        value = value - convergence_weight * np.log(np.maximum(costs.survival, 1e-300)).sum(axis=-1)
    return value


@compiled
def best_shares(
    inputs: RoundInput,
    parameters: Numbers,
    segments: IntArray,
    power: FloatArray,
    share: FloatArray,
    worth: FloatArray,
) -> None:
    """Write the best shares and the worths (E, N) of given segments (E, N, K) and powers (E, N, K+1)."""
    for e in range(segments.shape[0]):
        row = environment_row(inputs, e)
        _, plan = evaluate_at_length(segments[e], power[e], row.option, share[e], row, parameters)
        for n in range(segments.shape[1]):
            share[e, n], worth[e, n] = plan.share[n], plan.weight[n]
