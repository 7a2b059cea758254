"""DSSRA's caps on clocks: brute force over a grid, closed forms, and never worse than free clocks."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.clock_search import caps_of_clocks, clock_problem, longer_computing
from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE, OPENED
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

OPEN = [*COLLAPIPE, "clock_cap"]
TINY = load_scenario(
    {
        "base": "small",
        "name": "tiny",
        "decisions": OPEN,
        "cluster": {"clusters": 2, "devices": 2},
        "overheads": {"update_s": 0.0},
        "budgets": {"device_energy_j": 12},
    }
)
MEDIUM = support.MEDIUM.with_overrides({"decisions": OPEN, "name": "capped"})
EVERYTHING = load_scenario(
    {
        "base": "small",
        "name": "everything",
        "decisions": [*COLLAPIPE, *OPENED],
        "budgets": {"per": "second"},
    }
)
WARM = load_scenario(
    {
        "base": "small",
        "name": "warm",
        "decisions": OPEN,
        "workload": {"local_steps": 4},
        "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e3},
        "dynamics": {"processes": {"heat": {"capacity_j_per_k": 8.0, "governor": "pause"}}},
    }
)


def best_on_a_grid(scheduler, state, plan, levels):
    """Least objective of one environment over all caps of a grid, by the simulator's costs."""
    grid = np.geomspace(scheduler.parameters.clock_cap_min, 1.0, levels)
    caps = np.array(list(itertools.product(grid, repeat=plan.device_power[0].size)))
    caps = caps.reshape(-1, *plan.device_power.shape[1:])
    many = plan.map(lambda a: np.repeat(a, len(caps), axis=0))
    rows = state.map(lambda a: np.repeat(a, len(caps), axis=0))
    return scheduler.objective(rows, replace(many, clock_cap=caps)).min()


@pytest.mark.parametrize("drift", ["exact", "bound"])
@pytest.mark.parametrize("seed", range(4))
def test_the_clocks_of_a_plan_are_the_best_ones(seed, drift):
    scheduler = DSSRA(TINY, drift=drift, threads=1)
    state = support.loaded_state(TINY, 1, seed)
    plan = DSSRA(TINY.with_overrides({"decisions": list(COLLAPIPE)}), threads=1).allocate(state)
    costs = round_costs(scheduler.parameters, state, plan)
    exact = drift == "exact"
    problem = clock_problem(scheduler.parameters, state, plan, costs, exact_drift=exact)
    x = longer_computing(problem, np.full(1, scheduler.tradeoff_v))
    capped = replace(plan, clock_cap=caps_of_clocks(state, x, scheduler.parameters.clock_cap_min))
    check_allocation(scheduler.parameters, state, capped)
    found = float(scheduler.objective(state, capped)[0])
    free = float(scheduler.objective(state, plan)[0])
    best = best_on_a_grid(scheduler, state, plan, 11)
    assert best < free - 1e-3 * abs(free)  # there is something to find
    # The grid misses a little of it, and so may the search.
    assert found <= best + 1e-4 * abs(best)
    # The delays that the search reckons with are the simulator's.
    np.testing.assert_allclose(
        problem.delays(x), round_costs(scheduler.parameters, state, capped).cluster_delay, rtol=1e-9
    )


def test_a_stage_that_is_not_the_bottleneck_has_the_closed_form():
    """``x = (2 p E / (w H (a + c)))^(1/3)``, with the queue before the round as price."""
    scheduler = DSSRA(TINY, drift="bound", threads=1)
    state = support.loaded_state(TINY, 1, 3)
    plan = DSSRA(TINY.with_overrides({"decisions": list(COLLAPIPE)}), threads=1).allocate(state)
    # One cluster alone decides the round, as the other one's link is far better than all else is quick.
    slow = state.uplink_gain.copy()
    slow[:, 1] *= 1e-4
    # Its uplink is the bottleneck of every direction, and its devices are nearly idle.
    state = replace(state, uplink_gain=slow, backlog=np.full_like(state.backlog, 0.4))
    costs = round_costs(scheduler.parameters, state, plan)
    assert (costs.cluster_delay[0, 1] > 2.0 * costs.cluster_delay[0, 0]).all()
    e = costs.elements
    assert (e.uplink[0, 1] > 5.0 * e.compute_backward[0, 1]).all()
    problem = clock_problem(scheduler.parameters, state, plan, costs, exact_drift=False)
    V = 2.0  # caps are within their range
    x = longer_computing(problem, np.full(1, V))[0, 1]
    c = scheduler.parameters.costs
    joules = (
        state.compute_power[0, 1] * 3.0 * (plan.micro_batches[0, 1] * c.local_steps * e.compute_forward[0, 1])
    )
    price = 0.4 / state.budget[0, 1, 1:]
    second = V * c.local_steps * (e.compute_forward + e.compute_backward)[0, 1]
    expected = np.clip((2.0 * price * joules / second) ** (1.0 / 3.0), 1.0, 5.0)
    assert ((expected > 1.0) & (expected < 5.0)).any()
    np.testing.assert_allclose(x, np.where(plan.blocks[0, 1] > 0, expected, 1.0), rtol=2e-4)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    scenario=st.sampled_from([TINY, MEDIUM, EVERYTHING]),
    seed=st.integers(0, 2**20),
    drift=st.sampled_from(["exact", "bound"]),
)
def test_the_objective_is_never_worse_than_with_free_clocks(scenario, seed, drift):
    scheduler = DSSRA(scenario, drift=drift, threads=1)
    rest = [name for name in scenario.decisions if name != "clock_cap"]
    free = DSSRA(scenario.with_overrides({"decisions": rest}), drift=drift, threads=1)
    state = support.loaded_state(scenario, 2, seed)
    plan, other = scheduler.allocate(state), free.allocate(state)
    check_allocation(scheduler.parameters, state, plan)
    one, two = scheduler.objective(state, plan), scheduler.objective(state, other)
    assert (one <= two).all()
    # A plan to begin with is never lost either, whatever its clocks are.
    again = scheduler.objective(state, scheduler.allocate(state, start=plan))
    assert (again <= one).all()


@pytest.mark.parametrize("scheduler", [DSSRA, DSSRAPlus])
def test_energy_without_a_price_leaves_clocks_free(scheduler):
    """Empty queues under the bound, and budgets that no round uses up under the exact drift."""
    env = CollaPipeVectorEnv(2, MEDIUM, learner="surrogate")
    env.reset(seed=0)
    assert (env.state.backlog == 0.0).all()
    plan = scheduler(MEDIUM, drift="bound", threads=1).allocate(env.state)
    assert (plan.clock_cap == 1.0).all()
    rich = replace(env.state, budget=np.full_like(env.state.budget, 1e6))
    assert (scheduler(MEDIUM, threads=1).allocate(rich).clock_cap == 1.0).all()


def test_profiles_with_a_stated_power_run_free():
    """Their energy does not fall with the clock."""
    profile = {"name": "board", "active_power_w": 6.0, "clock_min_hz": 1e9, "clock_max_hz": 2e9}
    scenario = MEDIUM.with_overrides({"devices.profiles": [profile], "budgets.device_energy_j": 200})
    plan = DSSRA(scenario, threads=1).allocate(support.loaded_state(scenario, 2, 0))
    assert (plan.clock_cap == 1.0).all()


def test_a_price_of_heat_caps_the_clocks_of_hot_devices_only():
    env = CollaPipeVectorEnv(1, WARM, learner="surrogate")
    env.reset(seed=0)
    hot = np.zeros_like(env.state.speed)
    hot[0, 0] = 1.2
    shown = {"heat": {**env.state.processes["heat"], "headroom": hot}}
    state = replace(env.state, processes=shown)
    assert (DSSRAPlus(WARM, heat_price=0.0, threads=1).allocate(state).clock_cap == 1.0).all()
    plan = DSSRAPlus(WARM, heat_price=0.1, heat_start=0.5, threads=1).allocate(state)
    assert (plan.clock_cap[0, 1] == 1.0).all()
    used = plan.blocks[0, 0] > 0
    assert used.any()
    assert (plan.clock_cap[0, 0, used] < 1.0).all()
