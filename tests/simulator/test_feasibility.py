"""The energy feasibility report against brute force, its warning, and the margin of the shipped ladder."""

import itertools
import warnings

import gymnasium as gym
import numpy as np
import pytest

from collapipe_env.allocation import Allocation
from collapipe_env.scenario import fixed_layout, load_scenario, scenario_names
from collapipe_env.simulator.build import mean_state, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.feasibility import EnergyBudgetWarning, energy_feasibility


def tiny(seed, blocks=4, **budgets):
    """One cluster of three devices, small enough to try every split."""
    return load_scenario(
        {
            "base": "medium",
            "name": f"tiny-{seed}-{blocks}-{budgets}",
            "workload": {"blocks": blocks},
            "cluster": {"clusters": 1, "devices": 3, "layout_seed": seed},
            "budgets": budgets,
        }
    )


def every_split(scenario):
    """Energy over budget of all splits, fewest and most micro-batches, over a fine grid of powers."""
    parameters = system_parameters(scenario)
    state = mean_state(scenario, fixed_layout(scenario))
    L, K = scenario.blocks, scenario.max_devices
    splits = [s for s in itertools.product(range(L + 1), repeat=K) if sum(s) == L]
    splits = np.array([s for s in splits if (np.array(s) <= state.memory_cap[0]).all()])[:, None, :]
    ratios = []
    for power in np.geomspace(parameters.power_min_w, parameters.power_max_w, 25):
        allocation = Allocation(
            blocks=splits,
            micro_batches=np.full((len(splits), 1), 64),
            bandwidth=np.ones((len(splits), 1)),
            device_power=np.full(splits.shape, power),
            cu_power=np.full((len(splits), 1), power),
        )
        ratios.append(round_costs(parameters, state, allocation).energy_ratio[:, 0])
    return np.concatenate(ratios)


@pytest.mark.parametrize("seed", range(12))
def test_least_use_is_that_of_the_best_split(seed):
    scenario = tiny(seed, device_energy_j=50.0)
    best = every_split(scenario).max(axis=-1).min()
    found = energy_feasibility(scenario)
    assert found.feasible
    assert found.least_use[0] == pytest.approx(best, rel=0.02)
    assert found.energy_ratio[0].max() == found.least_use[0]
    assert found.energy_ratio[0].argmax() == found.worst_node[0]


def test_plans_are_mixed_over_time_where_one_plan_does_not_do():
    """One block on two equal devices: either one alone is over budget, each half of the time is not."""
    scenario = load_scenario(
        {
            "base": "medium",
            "name": "mixed",
            "workload": {"blocks": 1},
            "cluster": {"clusters": 1, "devices": 2},
            "devices": {
                "profiles": [{"clock_min_hz": 1e9, "clock_max_hz": 1e9, "switched_capacitance": 1e-27}]
            },
            "budgets": {"device_energy_j": 1.0},
        }
    )
    single = every_split(scenario).max(axis=-1).min()
    assert single > 1.0
    assert energy_feasibility(scenario).least_use[0] == pytest.approx(single / 2.0, rel=0.02)


def test_impossible_budget_warns_with_the_node():
    scenario = tiny(3, blocks=8, device_energy_j=2.0)
    report = energy_feasibility(scenario)
    assert not report.feasible
    node = int(report.worst_node[0])
    with pytest.warns(EnergyBudgetWarning, match=rf"device {node - 1} of cluster 0 cannot be met"):
        gym.make("CollaPipeSurrogate-v0", scenario=scenario.to_dict())


def test_impossible_cu_budget_names_the_cu():
    scenario = tiny(4, cu_energy_j=1e-4)
    with pytest.warns(EnergyBudgetWarning, match=r"the CU of cluster 0.*budgets\.cu_energy_j"):
        gym.make("CollaPipeSurrogate-v0", scenario=scenario.to_dict())


@pytest.mark.parametrize("name", scenario_names())
def test_shipped_scenarios_have_a_margin(name):
    report = energy_feasibility(load_scenario(name))
    assert report.least_use.max() <= 0.9
    assert len(report.describe().splitlines()) == len(report.least_use)


def test_feasible_scenario_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gym.make("CollaPipeSurrogate-v0", scenario=tiny(0, device_energy_j=60.0).to_dict())
