"""DSSRA under both forms of the drift and with budgets per second: objective, plans and mean powers."""

from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support

from collapipe_env.agents.dssra import DSSRA, DSSRABound, price_plan
from collapipe_env.agents.dssra import round_plan as round_plans
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.agents.dssra.round_input import environment_row, round_input
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler
from collapipe_env.baselines.oracle import Oracle
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.scheduler_loading import make_scheduler, package_title
from collapipe_env.ground.compiled import called_from_python
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.queues import idle_drift
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import budget_period, system_parameters
from collapipe_env.simulator.costs import round_costs

environment_of = called_from_python(environment_row)
evaluate, reprice = called_from_python(round_plans.evaluate), called_from_python(round_plans.reprice)


def per_second(scenario):
    return scenario.with_overrides({"budgets.per": "second"})


SCENARIOS = {
    "small": support.SMALL,
    "medium": support.MEDIUM,
    "moving": support.MOVING,
    "arq": support.ARQ,
    "priced": support.PRICED,
    "relayed": support.RELAYED,
}
PER_SECOND = {f"{name} per second": per_second(s) for name, s in SCENARIOS.items() if name != "priced"}
EVERY = {**SCENARIOS, **PER_SECOND}
BOARDS = load_scenario("boards")
HOT = load_scenario(
    {
        "base": "small",
        "dynamics": {"processes": {"heat": {"governor": "pause", "capacity_j_per_k": 8.0}}},
        "dssra_plus": {"heat_price": 0.4, "heat_start": 0.0},
    }
)
SEARCHED = {
    **PER_SECOND,
    "heat": HOT,
    "heat per second": per_second(HOT),
    "moments": BOARDS,
    "moments over the CU": per_second(BOARDS.with_overrides({"dynamics.processes.migration.route": "cu"})),
}


@pytest.mark.parametrize("name", EVERY)
def test_objective_is_what_the_reward_pays_for(name):
    scenario = EVERY[name]
    env = CollaPipeVectorEnv(3, scenario, "surrogate", reward="lyapunov", autoreset_mode="Disabled")
    env.reset(seed=2)
    scheduler = DSSRA(scenario)
    scale = scenario.budgets.tradeoff_v * env.reference_delay
    for _ in range(4):
        plan, state = scheduler.allocate(env.state), env.state
        reward = env.step_allocation(plan)[1]
        np.testing.assert_allclose(-reward * scale, scheduler.objective(state, plan), rtol=1e-5)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("mean", [0.0, 0.5, 5.0])
def test_plans_are_better_than_those_of_the_bound(name, mean):
    scenario = SCENARIOS[name]
    exact, bound = DSSRA(scenario), DSSRABound(scenario)
    gains = []
    for seed in range(3):
        state = support.loaded_state(scenario, 4, seed, mean, silent=0.2)
        values = [exact.objective(state, s.allocate(state)) for s in (exact, bound)]
        gains.append((values[1] - values[0]) / np.abs(values[1]))
    assert np.min(gains) > -5e-3
    assert np.mean(gains) > -1e-4


@pytest.mark.parametrize("name", ["small", "small per second"])
def test_no_block_elsewhere_and_no_other_power_or_share_is_better(name):
    scenario = EVERY[name]
    scheduler = DSSRA(scenario, tolerance=0.0)
    for seed in range(4):
        state = support.loaded_state(scenario, 1, seed, 0.7, silent=0.3)
        plan = scheduler.allocate(state)
        best, tried = scheduler.objective(state, plan)[0], support.neighbours(plan, state)
        shares = np.linspace(0.1, 0.9, 33)
        tried += [replace(plan, bandwidth=np.array([[share, 1.0 - share]])) for share in shares]
        least = min(scheduler.objective(state, other)[0] for other in tried)
        size = best + 0.5 * (state.backlog**2).sum() if name in PER_SECOND else least
        assert best <= least + 2e-3 * size


def test_schedulers_of_both_forms_go_by_name():
    state = support.loaded_state(support.MEDIUM, 2, 1, 0.5)
    for name, drift in (("dssra", "exact"), ("dssra-bound", "bound")):
        decision = make_scheduler(name, support.MEDIUM).act(None, state)
        support.assert_same(decision, DSSRA(support.MEDIUM, drift=drift).allocate(state))
    assert package_title("dssra-bound") != package_title("dssra")
    assert DSSRABound(support.SMALL, tradeoff_v=3.0, turns=2).budget.turns == 2


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("drift", ["exact", "bound"])
def test_search_prices_plans_as_the_simulator_does(name, drift):
    """Up to what no plan changes: ``V T_bc``, and the least drift of a round that grants 1, or ``sum z``."""
    scenario, weight = SEARCHED[name], 0.7 if name == "moving per second" else 0.0
    scheduler = DSSRAPlus(scenario, drift=drift, convergence_weight=weight)
    parameters, seconds = system_parameters(scenario), scenario.budgets.per == "second"
    V, allowances, moved = parameters.tradeoff_v, [], False
    for seed in range(8):
        state = support.loaded_state(scenario, 1, seed, 0.5, silent=0.3, rounds=2)
        plan = support.random_plan(scenario, state, seed)
        form = {"exact_drift": drift == "exact", "extra_price": scheduler.extra_price(state)}
        assert (form["extra_price"] is not None) == name.startswith("heat")
        option = options_with(option_table(parameters, 0), plan.micro_batches)
        every = round_input(parameters, state, option, weight, **form)
        inputs = environment_of(every, 0)
        blocks, power = plan.blocks[0], np.ascontiguousarray(plan.node_power[0])
        found, shared = evaluate(blocks, power, option[0], plan.bandwidth[0], inputs, parameters.numbers)
        if drift == "exact":
            # At the prices of a plan that is repriced, too: they steer the search and are not what counts.
            reprice(shared, inputs, parameters.numbers)
            costs = round_costs(parameters, state, replace(plan, bandwidth=np.asarray(shared.share)[None]))
            after = np.maximum(state.backlog + costs.energy_ratio - costs.allowance[:, None, None], 0.0)
            extra = 0.0 if form["extra_price"] is None else form["extra_price"]
            np.testing.assert_allclose(inputs.price, (after / state.budget + extra)[0], rtol=1e-6)
            if seconds:
                assert inputs.common[0].relief == pytest.approx(
                    after.sum() / parameters.budget_period_s, rel=1e-6
                )
            found, shared = evaluate(blocks, power, option[0], shared.share, inputs, parameters.numbers)
        plan = replace(plan, bandwidth=np.asarray(shared.share)[None])
        costs = round_costs(parameters, state, plan)
        allowances.append(costs.allowance[0])
        assert inputs.common[0].broadcast_s == pytest.approx(
            costs.broadcast[0] if seconds else 0.0, rel=1e-12
        )
        if drift == "exact":
            assert inputs.common[0].allowance > 0.0
            left = V * costs.broadcast + idle_drift(state.backlog)
        elif seconds:
            worth = V - state.backlog.sum() / parameters.budget_period_s
            if worth < 0.1 * V:
                continue
            left = worth * costs.broadcast + state.backlog.sum()
        else:
            left = V * costs.broadcast
        assert scheduler.objective(state, plan)[0] == pytest.approx(found + left[0], rel=1e-7, abs=1e-7)
        moved |= "migration" in costs.terms.once and bool((costs.terms.once["migration"] > 0.0).any())
    assert np.ptp(allowances) > 0.2 or not seconds
    assert moved == name.startswith("moments")


@pytest.mark.parametrize("name", ["small", "medium", "moving", "relayed"])
@pytest.mark.parametrize("mean", [0.0, 0.3, 1.0])
def test_no_price_of_time_that_is_given_is_better(name, mean):
    """The price of a second is found: DSSRA per round at any other ``V`` plans no better rounds."""
    per_round = SCENARIOS[name]
    if name == "moving":  # its own budgets bind nobody
        per_round = per_round.with_overrides({"budgets.device_energy_j": 12.0})
    scenario = per_second(per_round)
    scheduler, gains = DSSRA(scenario), []
    for seed in range(2):
        state = support.loaded_state(scenario, 3, seed, mean, silent=0.3)
        value = scheduler.objective(state, scheduler.allocate(state))
        size = value + 0.5 * (state.backlog**2).sum(axis=(-2, -1))
        for factor in (0.02, 0.1, 0.3, 0.6, 1.0):
            fixed = DSSRA(per_round, tradeoff_v=factor * scenario.budgets.tradeoff_v)
            other = scheduler.objective(state, fixed.allocate(state))
            gains.append((other - value) / size)
    assert np.min(gains) > -3e-3
    assert np.mean(gains) > 5e-5


def test_long_queues_do_not_make_rounds_endless():
    """Where waiting alone would pay, plans cease to hurry; they are not spoilt to last longer."""
    scenario = per_second(support.MEDIUM)
    period = budget_period(scenario)
    for scheduler in (DSSRA(scenario), DSSRABound(scenario)):
        state = support.loaded_state(scenario, 3, 0, 20.0)
        costs = round_costs(scheduler.parameters, state, scheduler.allocate(state))
        assert (state.backlog.sum(axis=(-2, -1)) > scheduler.tradeoff_v * period).all()
        assert (costs.delay < 5.0 * period).all()
        # What is spent at least: about as little as plans that only save energy.
        saving = DSSRA(support.MEDIUM, tradeoff_v=1e-3).allocate(state)
        least = (state.backlog * round_costs(scheduler.parameters, state, saving).energy_ratio).sum()
        assert (state.backlog * costs.energy_ratio).sum() < 1.2 * least


def test_who_cannot_follow_says_so():
    scenario = per_second(support.SMALL)
    state = support.loaded_state(scenario, 1, 0)
    plan = DSSRA(scenario).allocate(state)
    for refused in (
        lambda: Oracle(scenario),
        lambda: price_plan(scenario, state, plan),
        lambda: GraphScheduler(scenario, None),
    ):
        with pytest.raises(ScenarioError, match=r"budgets\.per is 'second': set it to 'round', or use dssra"):
            refused()
