"""The price of a plan: the simulator's costs, the oracle's objective, and what a second of delay is worth."""

import doctest
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support

from collapipe_env.agents.dssra import DSSRA, DSSRABound, price_plan, pricing
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import with_schedule
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs

SCENARIOS = {
    "medium": support.MEDIUM,
    "moving": support.MOVING,
    "arq": support.ARQ,
    "recomputed": support.RECOMPUTED,
    "decided": support.DECIDED,
    "capped": support.SMALL.with_overrides({"decisions": [*COLLAPIPE, "clock_cap"]}),
    "moments": load_scenario("boards"),
}


def test_the_example_of_the_documentation_runs():
    (example,) = (t for t in doctest.DocTestFinder().find(pricing) if t.name.endswith(".price_plan"))
    assert len(example.examples) == 9
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("weight", [0.0, 0.7])
@pytest.mark.parametrize("drift", ["bound", "exact"])
def test_costs_and_objective_are_the_simulators_and_no_other_shares_are_better(name, weight, drift):
    scenario = SCENARIOS[name]
    parameters = system_parameters(scenario)
    rng = np.random.default_rng(5)
    for seed in range(4):
        state = support.loaded_state(scenario, 3, seed, silent=0.3, rounds=2)
        plan = support.random_plan(scenario, state, seed)
        if parameters.link.transmissions > 1.0:  # with many repeats, at low powers, it is not convex
            plan = replace(plan, cu_power=np.full_like(plan.cu_power, parameters.power_max_w))
        price = price_plan(scenario, state, plan, tradeoff_v=2.0, convergence_weight=weight, drift=drift)

        def objective(allocation, state=state):
            costs = round_costs(parameters, state, allocation)
            spent = (state.backlog * costs.energy_ratio).sum(axis=(-2, -1))
            if drift == "exact":
                after = np.maximum(state.backlog + costs.energy_ratio - 1.0, 0.0)
                spent = 0.5 * (after**2 - state.backlog**2).sum(axis=(-2, -1))
            return 2.0 * costs.delay + spent - weight * np.log(costs.survival).sum(axis=-1), costs

        value, costs = objective(replace(plan, bandwidth=price.shares))
        np.testing.assert_allclose(price.objective, value, rtol=1e-12)
        np.testing.assert_array_equal(price.costs.delay, costs.delay)
        np.testing.assert_array_equal(price.costs.allocation.micro_batches, plan.micro_batches)
        np.testing.assert_allclose(price.shares.sum(axis=-1), 1.0, rtol=1e-12)
        floor = parameters.bandwidth_floor
        assert (price.shares >= floor * (1.0 - 1e-12)).all()
        assert (price.worth >= 0.0).all()
        idle_w = parameters.radio_power.idle_w
        queues = state.backlog
        if drift == "exact":
            queues = np.maximum(state.backlog + costs.energy_ratio - 1.0, 0.0)
        worth = 2.0 + (queues / state.budget * idle_w).sum(axis=(-2, -1))
        np.testing.assert_allclose(price.worth.sum(axis=-1), worth, rtol=1e-6 if idle_w == 0.0 else 1e-4)
        # Near the shares found and far from them.
        for spread in (0.01, 0.1, 1.0, 10.0):
            for _ in range(50):
                drawn = price.shares * np.exp(spread * rng.standard_normal(price.shares.shape))
                drawn = floor + (1.0 - floor * drawn.shape[-1]) * drawn / drawn.sum(axis=-1, keepdims=True)
                other, costs = objective(replace(plan, bandwidth=drawn))
                # With idle radios the exact drift's price of a second is found by repeating.
                settled = 1e-6 if drift == "bound" else 1e-5 if idle_w == 0.0 else 2e-4
                assert (value <= other + settled * (np.abs(other) + 2.0 * costs.delay)).all()


@pytest.mark.parametrize("drift", ["bound", "exact"])
@pytest.mark.parametrize("name", ["medium", "arq"])
def test_worth_is_the_slope_of_the_objective_with_a_clusters_delay(name, drift):
    scenario = SCENARIOS[name]
    state = support.loaded_state(scenario, 2, 1, mean=1.0)
    plan = DSSRABound(scenario).allocate(state)
    price = price_plan(scenario, state, plan, drift=drift)
    checked = 0
    for n in range(state.present.shape[1]):
        values, delays = [], []
        for side in (-1.0, 1.0):
            # Slower devices of proportionally less power: the delay changes, no energy does.
            factor = np.ones(state.present.shape)
            factor[:, n] = 1.0 + side * 1e-3
            other = replace(
                state,
                speed=state.speed * factor,
                clock=state.clock * factor,
                compute_power=state.compute_power * factor,
            )
            values.append(price_plan(scenario, other, plan, drift=drift).objective)
            delays.append(
                round_costs(system_parameters(scenario), other, price.costs.allocation).cluster_delay[:, n]
            )
        slope = (values[1] - values[0]) / (delays[1] - delays[0])
        np.testing.assert_allclose(
            slope, price.worth[:, n], rtol=0.03, atol=0.01 * system_parameters(scenario).tradeoff_v
        )
        checked += (price.worth[:, n] > 0.1 * system_parameters(scenario).tradeoff_v).sum()
    assert checked >= 3


def test_bad_numbers_and_foreign_plans_are_refused():
    state = support.loaded_state(support.SMALL, 1)
    plan = DSSRA(support.SMALL).allocate(state)
    with pytest.raises(AllocationError, match=r"price_plan\(tradeoff_v: .*got 0"):
        price_plan(support.SMALL, state, plan, tradeoff_v=0.0)
    with pytest.raises(AllocationError, match=r"price_plan\(convergence_weight: .*got -1"):
        price_plan(support.SMALL, state, plan, convergence_weight=-1)
    with pytest.raises(AllocationError, match=r"price_plan\(drift: .*got 'true'"):
        price_plan(support.SMALL, state, plan, drift="true")
    with pytest.raises(AllocationError, match="this one has groups, a schedule"):
        price_plan(support.SMALL, state, with_schedule(plan, "1f1b", 2))
    with pytest.raises(AllocationError, match="cu_power of environment 0, cluster 1 is 7"):
        price_plan(support.SMALL, state, replace(plan, cu_power=np.array([[0.1, 7.0]])))
