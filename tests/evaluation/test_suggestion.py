"""Suggested budgets: what a user pastes gives these budgets, and poor problems are warned of."""

import re
import warnings

import pytest

from collapipe_env.cli.suggestion_page import snippet
from collapipe_env.evaluation.suggestion import EVEN, REFERENCE, suggested, untrained
from collapipe_env.feasibility.energy_range import energy_range
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.plain_data import parse
from collapipe_env.simulator.build import node_budgets

ALIKE = {"clock_min_hz": 1e9, "clock_max_hz": 1e9, "memory_bytes": [1e9]}
"""Devices that are all the same: the even split is as good as any."""
UNLIKE = {"cluster.layout": "per_episode", "radio.d2e_shadowing_db": 8.0}
"""Systems that differ from episode to episode."""
PROFILE = "devices.profiles.0"


def warned(changes, tightness, rounds):
    scenario = load_scenario("small").with_overrides(changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # budgets that cannot be met
        return suggested(scenario, tightness, rounds)


def test_the_snippet_gives_the_suggested_budgets_in_a_file():
    rounds = []
    scenario = load_scenario("small")
    found = suggested(scenario, 0.3, 4, 2, 7, lambda: rounds.append(1))
    assert len(rounds) == 2 * 4
    assert found.budgets == energy_range(scenario).at(0.3)
    text = snippet(0.3, found)
    pasted = load_scenario({"base": "small", **parse(text, "snippet")})
    assert node_budgets(pasted) == found.budgets
    (line,) = (line for line in text.splitlines() if "#" in line)
    own = parse("budgets: {" + line.rpartition("fields: ")[2] + "}", "the comment")
    assert own == {"budgets": {"tightness": 0.3}}
    assert node_budgets(load_scenario({"base": "small", **own})) == found.budgets


def test_dssra_is_compared_with_the_even_split_within_these_budgets():
    found = warned({}, 0.5, 12)
    even, reference = found.trials[EVEN], found.trials[REFERENCE]
    assert reference.priced_delay < even.priced_delay
    # The even split uses the full energy, whatever the budgets.
    for use, full, budget in zip(even.use, found.range.full, found.budgets, strict=True):
        assert use == pytest.approx(full / budget, rel=0.05)
    assert sum(map(reference.share, reference.seconds)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "tightness", "rounds", "words"),
    [
        ({f"{PROFILE}.flops_per_cycle": 0.5}, 0.5, 6, "compute takes 9"),
        (
            {"radio.d2d_total_hz": 2e4, "workload.local_steps": 20},
            1.0,
            4,
            r"hops takes 9.*raise radio\.d2d_total_hz",
        ),
        ({f"{PROFILE}.{name}": value for name, value in ALIKE.items()}, 1.0, 12, "the CU budget never binds"),
        ({}, 0.0, 16, "DSSRA's largest queue still grows"),
        (UNLIKE, 0.5, 4, "no fair CU budget exists"),
        (
            {"workload.width": 512, "cluster.devices": 2, f"{PROFILE}.memory_bytes": [2e9]},
            1.0,
            4,
            "zoo:graph was not trained",
        ),
    ],
    ids=["phase", "hops", "slack", "growing", "unlike", "untrained"],
)
def test_a_poor_problem_is_warned_of(changes, tightness, rounds, words):
    assert any(re.match(words, text) for text in warned(changes, tightness, rounds).warnings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "medium"])
def test_the_ladder_is_not_warned_of(name):
    assert suggested(load_scenario(name), 0.5, 40).warnings == ()


def test_what_the_zoo_was_not_trained_for_is_named():
    scenario = load_scenario("medium")
    assert untrained(scenario) == []
    assert untrained(scenario.with_overrides({"cluster.clusters": 1})) == [
        "cluster.clusters = 1 (trained on 2 to 40)"
    ]
