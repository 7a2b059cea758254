"""The search's price of a plan, with the best shares for it, against the simulator's physics."""

from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support
from as_python_support import as_python

from collapipe_env.agents.dssra import DSSRA, round_plan
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.parallel_rounds import Openings, allocation_of, open_plan
from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.queues import idle_drift
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

evaluate, reprice = as_python(round_plan.evaluate), as_python(round_plan.reprice)

BOARDS = load_scenario("boards")
HOT = load_scenario(
    {
        "base": "small",
        "dynamics": {"processes": {"heat": {"governor": "pause", "capacity_j_per_k": 8.0}}},
        "dssra_plus": {"heat_price": 0.4, "heat_start": 0.0},
    }
)
SEARCHED = {
    **{
        f"{name} per second": support.per_second(support.SCENARIOS[name])
        for name in ("medium", "moving", "arq")
    },
    "relayed": support.RELAYED,
    "relayed per second": support.per_second(support.RELAYED),
    "heat": HOT,
    "heat per second": support.per_second(HOT),
    "moments": BOARDS,
    "moments over the CU": support.per_second(
        BOARDS.with_overrides({"dynamics.processes.migration.route": "cu"})
    ),
}


def evaluated(plan, option, inputs, parameters):
    """Objective of the first row of a plan, and the plan with its best shares."""
    power, share = (np.ascontiguousarray(a[0]) for a in (plan.node_power, plan.bandwidth))
    found, shared = evaluate(
        np.array(plan.blocks[0]), power, np.array(option[0]), share, inputs, parameters.numbers
    )
    return found, shared, replace(plan, bandwidth=np.asarray(shared.share)[None])


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("drift", ["exact", "bound"])
def test_the_search_prices_plans_as_the_simulator_does(name, drift):
    """Up to what no plan changes: ``V T_bc``, and the least drift of a round that grants 1, or ``sum z``."""
    scenario, weight = SEARCHED[name], 0.7 if name == "moving per second" else 0.0
    scheduler = DSSRAPlus(scenario, drift=drift, convergence_weight=weight)
    parameters, seconds = system_parameters(scenario), scenario.budgets.per == "second"
    V, allowances, moved = parameters.tradeoff_v, [], False
    radio, per_s = parameters.radio_power, 1.0 / parameters.budget_period_s if seconds else 0.0
    for seed in range(3 if drift == "exact" else 8):
        state = support.loaded_state(scenario, 1, seed, 0.5, silent=0.3, rounds=2)
        plan, extra = support.random_plan(scenario, state, seed), scheduler.extra_price(state)
        assert (extra is not None) == name.startswith("heat")
        option = options_with(option_table(parameters, 0), plan.micro_batches)
        inputs = support.row_of(
            round_input(parameters, state, option, weight, exact_drift=drift == "exact", extra_price=extra), 0
        )
        found, shared, plan = evaluated(plan, option, inputs, parameters)
        if drift == "exact":
            # At the prices of a plan that is repriced, too: they steer the search and are not what counts.
            reprice(shared, inputs, parameters.numbers)
            costs = round_costs(parameters, state, plan)
            after = np.maximum(state.backlog + costs.energy_ratio - costs.allowance[:, None, None], 0.0)
            expected = after / state.budget + (0.0 if extra is None else extra)
            np.testing.assert_allclose(inputs.price, expected[0], rtol=1e-6)
            if seconds or radio.idle_w > 0.0:
                relief = (after * (per_s - radio.idle_w / state.budget)).sum()
                assert inputs.common[0].relief == pytest.approx(relief, rel=1e-6)
                assert inputs.common[0].round_s == pytest.approx(costs.delay[0], rel=1e-12)
            found, shared, plan = evaluated(plan, option, inputs, parameters)
        costs = round_costs(parameters, state, plan)
        allowances.append(costs.allowance[0])
        broadcast = costs.broadcast[0] if seconds or radio.edge_receive_w > 0.0 else 0.0
        assert inputs.common[0].broadcast_s == pytest.approx(broadcast, rel=1e-12)
        if drift == "exact":
            left = V * costs.broadcast + idle_drift(state.backlog)
        else:
            worth = V - (state.backlog * (per_s - radio.idle_w / state.budget)).sum()
            if worth < 0.1 * V:
                continue
            left = worth * costs.broadcast + (state.backlog.sum() if seconds else 0.0)
        assert scheduler.objective(state, plan)[0] == pytest.approx(found + left[0], rel=1e-7, abs=1e-7)
        moved |= "migration" in costs.terms.once and bool((costs.terms.once["migration"] > 0.0).any())
    assert np.ptp(allowances) > 0.2 or not seconds
    assert moved == name.startswith("moments")


def open_random_plan(scenario, state, seed):
    """Any plan of the open space: that of a random action."""
    codec, rng = action_codec(scenario), np.random.default_rng(seed)
    actions = rng.uniform(-1.0, 1.0, (len(state.present), codec.action_size))
    if system_parameters(scenario).overheads == NO_OVERHEADS:
        parts = codec.split(actions)
        parts["micro_batches"] = np.ones_like(parts["micro_batches"])  # the largest number is the best
        actions = codec.join(parts)
    return codec.decode(actions, state.memory_cap, state.memory_bytes)


@pytest.mark.parametrize("scenario", support.OPEN.values(), ids=list(support.OPEN))
def test_differences_of_open_plans_are_priced_as_the_simulator_does(scenario):
    """Recomputation and blocks on the server, best shares aside."""
    scenario = scenario.with_overrides({"decisions": [d for d in scenario.decisions if d != "schedule"]})
    scheduler, state = DSSRA(scenario), support.loaded_state(scenario, 1, 5)
    p, gaps, kept = scheduler.parameters, [], "server_blocks" in scenario.decisions
    most = p.costs.blocks - 1 if kept else 0
    opened = Openings(
        kept, "recompute" in scenario.decisions, p.costs.training_memory.recompute, option_table(p, most)
    )
    for seed in range(8):
        plan = open_plan(open_random_plan(scenario, state, seed), opened)
        inputs = round_input(p, state, exact_drift=True, choose_recompute=True, most_server=most)
        even = replace(allocation_of(plan, opened), bandwidth=np.full(plan.share.shape, 1.0 / p.clusters))
        value, _, allocation = evaluated(even, plan.option, support.row_of(inputs, 0), p)
        check_allocation(p, state, allocation)
        gaps.append(scheduler.objective(state, allocation)[0] - value)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-4)
