"""Budgets per second in scenario files: neutral unless asked for, and what the report says of them."""

import warnings

import pytest

from collapipe_env.feasibility import energy_feasibility, warn_if_infeasible
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import budget_period, reference_delay, system_parameters


def test_budgets_per_round_say_what_they_did_before():
    scenario, named = load_scenario("small"), load_scenario("small").with_overrides({"budgets.per": "round"})
    assert named == scenario
    assert budget_period(scenario) is None
    assert system_parameters(scenario).numbers.budget_period_s == 0.0


def test_budgets_per_second_are_read_from_files():
    scenario = load_scenario({"base": "small", "budgets": {"per": "second"}})
    assert scenario.budgets.per == "second"
    with pytest.raises(ScenarioError, match=r"budgets\.per"):
        load_scenario({"base": "small", "budgets": {"per": "minute"}})


def test_period_is_the_reference_delay_of_one_local_step():
    steps = load_scenario({"base": "small", "budgets": {"per": "second"}, "workload": {"local_steps": 4}})
    one = load_scenario("small")
    assert budget_period(steps) == reference_delay(one)
    assert reference_delay(steps) > 2.0 * reference_delay(one)
    assert system_parameters(steps).numbers.budget_period_s == reference_delay(one)


def test_report_says_how_long_rounds_of_least_energy_must_last():
    """Budgets that are far too small for a round are met in longer ones: nothing is warned of."""
    tight = {"base": "small", "budgets": {"device_energy_j": 1.5}}
    scenario = load_scenario(tight).with_overrides({"budgets.per": "second"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_infeasible(scenario)
    per_round, report = energy_feasibility(load_scenario(tight)), energy_feasibility(scenario)
    assert not per_round.feasible
    assert report.feasible
    assert (report.energy_ratio == per_round.energy_ratio).all()
    assert "per second" in report.describe().splitlines()[0]
    assert "per second" not in per_round.describe()
