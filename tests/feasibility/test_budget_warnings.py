"""What an environment and the report say of energy budgets that cannot be met."""

import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
from feasibility_support import README_EXAMPLE, tiny

import collapipe_env  # noqa: F401 - registers the environments
from collapipe_env.feasibility import (
    EnergyBudgetWarning,
    FeasibilityReport,
    energy_feasibility,
)
from collapipe_env.feasibility import feasibility_report as feasibility
from collapipe_env.feasibility.energy_search import EnergySearch
from collapipe_env.scenario import load_scenario

HOPELESS = {"noise_dbm_per_hz": -40.0, "link_errors": "arq", "snr_floor_db": None}
"""No most robust format, which would bound the energy of a message."""


def test_impossible_budget_warns_with_the_node_and_what_would_do():
    scenario = tiny(3, blocks=8, device_energy_j=2.0)
    report = energy_feasibility(scenario)
    assert not report.feasible
    assert report.share == 1.0
    node = int(report.worst_node[0, 0])
    needed = 2.0 * report.least_use.max()
    with pytest.warns(
        EnergyBudgetWarning, match=rf"device {node - 1} of cluster 0 cannot be met\."
    ) as caught:
        gym.make("CollaPipeSurrogate-v0", scenario=scenario.to_dict())
    message = str(caught[0].message)
    raised = float(message.split("budgets.device_energy_j from 2 to ")[1].split(",")[0])
    assert needed <= raised <= 1.11 * needed
    assert energy_feasibility(scenario.with_overrides({"budgets.device_energy_j": raised})).feasible


@pytest.mark.parametrize("area", ["open", "closed", None])
def test_the_warning_says_what_it_takes_for_granted_of_devices_that_walk(area):
    """A device that is away has a queue that stands still: it does not grow under every policy."""
    scenario = load_scenario({"base": "small", "budgets": {"device_energy_j": 0.5}})
    if area is not None:
        scenario = scenario.with_overrides({"dynamics.processes.mobility": {"area": area}})
    with pytest.warns(EnergyBudgetWarning) as caught:
        gym.make("CollaPipeSurrogate-v0", scenario=scenario)
    (text,) = (str(warning.message) for warning in caught)
    assert ("its queue grows under every policy" in text) == (area is None)
    assert ("where the layout puts them; here they walk" in text) == (area is not None)
    assert ("while one is away its queue stays constant" in text) == (area == "open")


def test_the_warning_names_the_cu_and_says_in_which_share_of_the_episodes():
    scenario = {
        **README_EXAMPLE,
        "base": "small",
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "budgets": {"device_energy_j": 15.0, "cu_energy_j": 12.0},
    }
    words = r"budget of the CU of cluster \d cannot be met in \d+ of 64 sampled episodes \(\d+ %\)"
    with pytest.warns(EnergyBudgetWarning, match=words) as caught:
        gym.make("CollaPipeSurrogate-v0", scenario=scenario)
    assert "budgets.cu_energy_j from 12 to" in str(caught[0].message)
    assert "budgets.device_energy_j from 15 to" in str(caught[0].message)
    report = energy_feasibility(load_scenario(scenario))
    assert 0.05 < report.share < 0.4
    assert report.verdict.startswith(
        f"energy budgets cannot be met in {report.broken.sum()} of 64 sampled episodes"
    )


@pytest.mark.parametrize("budget", [0.1, 0.3, 0.7, 1.1, 2.0, 6.4, 10.0, 1234.5])
def test_a_budget_that_is_missed_by_the_least_is_raised(budget, monkeypatch):
    scenario = load_scenario(
        {
            "base": "small",
            "cluster": {"layout": "per_episode"},
            "budgets": {"cu_energy_j": budget, "device_energy_j": budget},
        }
    )
    ratio = np.full((1, scenario.clusters, scenario.max_devices + 1), 0.5)
    ratio[0, 0, :2] = np.nextafter(1.0, 2.0)
    monkeypatch.setattr(feasibility, "energy_feasibility", lambda _: FeasibilityReport(ratio))
    monkeypatch.setattr(EnergySearch, "bound", lambda _: ratio.max(axis=-1))
    with pytest.warns(EnergyBudgetWarning) as caught:
        feasibility.warn_if_infeasible.__wrapped__(scenario)
    message = str(caught[0].message)
    for field in ("cu_energy_j", "device_energy_j"):
        raised = float(re.search(rf"budgets\.{field} from {budget:g} to ([\d.]+\d)", message)[1])
        assert budget < raised <= 1.11 * budget
    assert ", which is enough in all sampled episodes" in message


def test_hopeless_links_are_reported_and_not_stumbled_over():
    """At such a noise no bit arrives with an energy that a budget could hold."""
    scenario = {"base": "small", "radio": HOPELESS}
    with pytest.warns(EnergyBudgetWarning, match=r"cannot be met\. .*improve the links"):
        gym.make("CollaPipeSurrogate-v0", scenario=scenario)


def test_feasible_scenario_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gym.make("CollaPipeSurrogate-v0", scenario=tiny(0, device_energy_j=60.0).to_dict())
