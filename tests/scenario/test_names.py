"""Names of scenarios: tiers, and those of the user's own."""

import gymnasium as gym
import pytest

from collapipe_env import load_scenario, register_scenario, scenario_names
from collapipe_env.cli.main import main
from collapipe_env.envs.registration import SURROGATE
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario.names import (
    LADDER,
    PRESETS,
    SCENARIOS,
    TIER_SIZES,
    TIERS,
    WHOLE_TIERS,
    is_tier,
    sizes_of,
)

TWO = {
    "base": "small",
    "cluster": {"devices": [3, 2]},
    "dynamics": {"rounds": 7},
    "budgets": {"device_energy_j": 99},
}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Nothing stays registered."""
    monkeypatch.setattr(SCENARIOS, "_added", {})


def test_a_mapping_under_a_name(capsys):
    expected = load_scenario({**TWO, "name": "two"})
    assert register_scenario("two", TWO) == expected
    assert load_scenario("two") == expected
    assert scenario_names()[-1] == "two"
    assert gym.make("CollaPipeSurrogate-v0", scenario="two").unwrapped.rounds == 7
    assert main(["scenario", "check", "two"]) == 0
    assert "two" in capsys.readouterr().out


def test_a_file_under_a_name(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("base: small\ndynamics: {rounds: 3}\n")
    register_scenario("short", file)
    file.unlink()  # it was read when it was registered
    assert load_scenario("short") == load_scenario(
        {"base": "small", "name": "mine", "dynamics": {"rounds": 3}}
    )


def test_a_registered_scenario_can_be_a_base(tmp_path):
    register_scenario("two", TWO)
    file = tmp_path / "more.yaml"
    file.write_text("base: two\nworkload: {task: ner}\n")
    more = load_scenario(file)
    assert more == load_scenario({**TWO, "name": "more", "workload": {"task": "ner"}})
    # One that replaces its own base is based on what was there.
    register_scenario("two", {"base": "two", "dynamics": {"rounds": 9}}, replace=True)
    assert load_scenario("two") == load_scenario({**TWO, "name": "two", "dynamics": {"rounds": 9}})


def test_what_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match="scenario name 'medium' is taken by the package"):
        register_scenario("medium", TWO, replace=True)
    with pytest.raises(ScenarioError, match=r"dynamcs: .* did you mean 'dynamics'"):
        register_scenario("two", {"base": "small", "dynamcs": {}})
    with pytest.raises(ScenarioError, match="cannot be read"):
        register_scenario("two", tmp_path / "none.yaml")
    assert "two" not in SCENARIOS
    register_scenario("two", TWO)
    register_scenario("two", TWO)
    with pytest.raises(ScenarioError, match="scenario name 'two' is taken"):
        register_scenario("two", {"base": "small"})
    with pytest.raises(ScenarioError, match="no shipped or registered scenario 'twoo'; did you mean 'two'"):
        load_scenario("twoo")


def test_stale_and_wild_come_in_the_largest_size():
    assert WHOLE_TIERS == ("stale", "wild")
    assert set(SURROGATE) <= set(PRESETS)
    assert sizes_of("wild") == sizes_of("stale") == LADDER
    assert {sizes_of(tier) for tier in TIERS if tier not in WHOLE_TIERS} == {TIER_SIZES}
    assert is_tier("xlarge-wild")
    assert is_tier("small-churn-ner")
    assert not is_tier("xlarge-churn")
