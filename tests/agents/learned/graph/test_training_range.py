"""Range of a net's training: random systems lie within it and near its ends; play outside it warns once."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from collapipe_env.agents.learned.agent_file import AgentFile
from collapipe_env.agents.learned.graph.graph_files import graph_agent, graph_record
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.net import GraphNet
from collapipe_env.agents.learned.graph.systems import random_system
from collapipe_env.agents.learned.graph.training_range import (
    OutsideTrainingWarning,
    outside,
    training_range,
    warn_outside,
)
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import load_scenario

LADDER = usual(GraphParameters, most_clusters=12)
RANDOM = usual(GraphParameters, scenarios=(), most_clusters=12)
WILD = usual(GraphParameters, scenarios=("small-wild", "large-wild"), random_systems="wild", most_clusters=12)


@pytest.mark.parametrize("parameters", [LADDER, RANDOM, WILD], ids=["ladder", "random", "wild"])
def test_random_systems_lie_within_the_range_and_near_its_ends(parameters):
    rng = np.random.default_rng(6)
    drawn = [random_system(rng, parameters.most_clusters, parameters.random_systems) for _ in range(60)]
    trained = training_range(parameters)
    assert [outside(scenario, trained) for scenario in drawn] == [[]] * 60
    blocks = [scenario.blocks for scenario in drawn]
    least, most = trained["numbers"]["workload.blocks"]
    assert min(blocks) <= 1.4 * least
    assert max(blocks) >= 0.85 * most
    on = [set(dict(scenario.dynamics.processes)) for scenario in drawn]
    assert trained["processes"] == {name: all(name in s for s in on) for name in set().union(*on)}


@pytest.mark.parametrize(
    ("scenario", "changes", "said"),
    [
        ("medium", {}, []),
        ("large", {}, ["cluster.clusters = 16 (trained on 2 to 12)"]),
        ("medium", {"radio.diversity": 16}, ["radio.diversity = 16 (trained on 1 to 8)"]),
        ("medium", {"cluster.devices": [5, 6, 20, 5]}, ["cluster.devices = 5 to 20 (trained on 3 to 16)"]),
        ("medium-thermal", {}, ["dynamics.processes.heat on (trained without)"]),
        ("medium", {"workload.width": 128}, ["workload.width = 128 (trained on 256)"]),
    ],
)
def test_what_lies_outside_is_named(scenario, changes, said):
    assert outside(load_scenario(scenario).with_overrides(changes), training_range(LADDER)) == said


def test_a_process_that_was_always_on_is_missed():
    found = outside(load_scenario("large-churn"), training_range(replace(WILD, most_clusters=16)))
    for name in ("channel_knowledge", "heat", "migration", "mobility"):
        assert f"dynamics.processes.{name} off (trained with)" in found
    assert not any("presence" in one for one in found)


def agent(**systems):
    record = graph_record(LADDER, training_range(LADDER) | systems, 1, {"seed": 0}, [])
    weights = GraphNet(LADDER).state_dict()
    return AgentFile(record, {name: value.numpy() for name, value in weights.items()})


def test_a_net_outside_its_training_warns_once():
    warn_outside.cache_clear()
    with pytest.warns(OutsideTrainingWarning, match="net-a was not trained for systems such as large:"):
        graph_agent(agent(), load_scenario("large"), "net-a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph_agent(agent(), load_scenario("large"), "net-a")
        graph_agent(agent(), load_scenario("medium"), "net-a")
    with pytest.warns(OutsideTrainingWarning, match="such as other:"):
        graph_agent(agent(), replace(load_scenario("large"), name="other"), "net-a")


def test_files_without_a_range_do_not_warn():
    assert outside(load_scenario("large-wild"), {"name": "?"}) == []


@pytest.mark.parametrize(
    "systems",
    [
        {"numbers": {"workload.blocks": [1]}},
        {"numbers": {"workload.blocks": [16, 8]}},
        {"numbers": {"workload.blocks": ["a", 3]}},
        {"numbers": {"__class__.x": [1, 2]}},
        {"numbers": 3},
        {"processes": None},
    ],
)
def test_a_damaged_range_is_refused(systems):
    with pytest.raises(CheckpointError, match="net-b: the range of its training systems is damaged"):
        graph_agent(agent(**systems), load_scenario("medium"), "net-b")
