"""Budgets of a tightness: least energy at 0, that of the even split at 1, and what cannot have any."""

import numpy as np
import pytest
from unpriced_support import PAPER_RADIO

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.feasibility import energy_feasibility
from collapipe_env.feasibility.energy_range import EnergyRange, energy_range
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import Joules, energy_budgets, system_parameters
from collapipe_env.simulator.even_split import even_split

STRANGER = {
    "name": "stranger",
    "base": "medium",
    "cluster": {"clusters": 3, "devices": [4, 2, 3], "layout_seed": 3},
    "devices": {
        "profiles": [
            {"name": "old", "switched_capacitance": 2e-27, "clock_max_hz": 1.2e9, "memory_bytes": [1e9]},
            {"name": "new", "active_power_w": 3.0, "flops_per_cycle": 24.0, "memory_bytes": [2e9]},
        ]
    },
    "radio": {"diversity": 2, "uplink_bandwidth_hz": 6e6},
    "workload": {"batch_size": 48},
}
"""A system that resembles no shipped one."""


def at(tightness: float, **changes: object) -> Scenario:
    return load_scenario({**STRANGER, "budgets": {"tightness": tightness}, **changes})


def played(scenario: Scenario, plans, rounds: int, before: int = 0, episodes: int = 4) -> np.ndarray:
    """Energy over budget of each node (N, K+1), averaged over rounds, after some uncounted, and episodes."""
    env = CollaPipeVectorEnv(episodes, scenario, IdleLearner(episodes))
    env.reset(seed=1)
    total = 0.0
    for t in range(before + rounds):
        env.step_allocation(plans(env.state))
        if t < before:
            continue
        total = total + env.last_round.costs.energy_ratio.mean(axis=0) / rounds
    return np.asarray(total)


@pytest.mark.parametrize(("radio", "least"), [(PAPER_RADIO, 0.97), ({}, 0.85)])
def test_at_0_plans_of_least_energy_just_meet_the_budgets(radio, least):
    """Circuits and receivers let nodes spare each other energy, so that some plans use a little less."""
    report = energy_feasibility(at(0.0, radio={**radio, **STRANGER["radio"]}))
    assert report.feasible
    assert least < report.energy_ratio[..., 1:].max() <= 1.0
    assert least < report.energy_ratio[..., 0].max() <= 1.0


@pytest.mark.parametrize(("idle_w", "close"), [(0.0, 0.02), (0.1, 0.05)])
def test_at_1_the_even_split_at_full_power_just_meets_them(idle_w, close):
    """Idle radios are on until the deepest fade of all uplinks is over, of which there are few samples."""
    scenario = at(1.0, radio={**STRANGER["radio"], "idle_w": idle_w})
    parameters = system_parameters(scenario)
    use = played(scenario, lambda state: even_split(parameters, state), 60)
    assert use[:, 1:].max() == pytest.approx(1.0, abs=close)
    assert use[:, 0].max() == pytest.approx(1.0, abs=0.1)  # of few samples of a fading uplink


def test_between_them_budgets_grow_evenly():
    found = EnergyRange(Joules(2.0, 0.1), Joules(10.0, 0.5))
    assert found.at(0.0) == (2.0, 0.1)
    assert found.at(1.0) == (10.0, 0.5)
    assert found.at(0.25) == (4.0, 0.2)
    assert EnergyRange(Joules(1.2341, 0.9996), Joules(7.0, 1.0)).at(0.0) == (1.24, 1.0)


def test_nodes_get_the_budgets_of_the_tightness():
    scenario = at(0.5)
    device, cu = energy_range(scenario).at(0.5)
    budgets = energy_budgets(scenario)
    assert (budgets[:, 0] == cu).all()
    assert (budgets[:, 1:] == device).all()
    env = CollaPipeVectorEnv(1, scenario, IdleLearner(1))
    env.reset(seed=0)
    assert (env.state.budget[0] == budgets).all()


def test_the_range_is_of_the_system_alone():
    """Longer episodes, another tradeoff or name, and given budgets change nothing; the radio does."""
    found = energy_range(at(0.5))
    others = {"dynamics": {"rounds": 700}, "name": "other"}
    assert energy_range(at(0.1, **others)) == found
    given = {"device_energy_j": 3.0, "cu_energy_j": 9.0, "tradeoff": 70.0, "per": "second"}
    assert energy_range(load_scenario({**STRANGER, "budgets": given})) == found
    assert energy_range(at(0.5, radio={"uplink_bandwidth_hz": 2e7})) != found


def test_where_links_hardly_deliver_no_budget_is_made_up():
    # A most robust format would bound the energy of a message.
    radio = {"noise_dbm_per_hz": -40.0, "link_errors": "arq", "snr_floor_db": None}
    scenario = load_scenario({"base": "small", "radio": radio, "budgets": {"tightness": 0.5}})
    with pytest.raises(ScenarioError, match=r"no budgets of a tightness, .* hardly ever deliver"):
        energy_budgets(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("tightness", [0.25, 0.5, 0.8])
def test_dssra_keeps_the_budgets_of_a_stranger(tightness):
    """Once its queues are full, which takes fewer rounds with a smaller tradeoff."""
    scenario = at(tightness).with_overrides({"budgets.tradeoff": 3.0})
    use = played(scenario, DSSRA(scenario, threads=1).allocate, 100, before=100, episodes=2)
    assert 0.97 < use.max() < 1.02
