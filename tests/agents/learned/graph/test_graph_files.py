"""Files of graph nets: what their record says is checked, and refused by name if it is of another net."""

import dataclasses
import json
import re

import graph_net_support as support
import numpy as np
import pytest

from collapipe_env.agents.learned.agent_file import AgentFile, write_agent_file
from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.agents.learned.graph.graph_files import features, graph_record
from collapipe_env.agents.learned.graph.graph_parameters import (
    GraphParameters,
    graph_parameters_from_dict,
    require_scenarios,
)
from collapipe_env.agents.learned.graph.net import GraphNet
from collapipe_env.agents.learned.graph.training_range import training_range
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.envs.graph_features import CONTEXT, CU, DEVICE, HOP
from collapipe_env.ground.errors import CheckpointError, ScenarioError

PARAMETERS = usual(GraphParameters, width=16, hidden=8)


def saved(path, tensors=None, parameters=PARAMETERS, **record):
    """Write a file of a fresh net, with other tensors (None: none) or another record, and return its path."""
    net = GraphNet(parameters)
    whole = {name: value.numpy() for name, value in net.state_dict().items()}
    whole = {name: value for name, value in (whole | (tensors or {})).items() if value is not None}
    agent = AgentFile(dataclasses.replace(told(parameters), **record), whole)
    write_agent_file(path, *agent)
    return path


def told(parameters=PARAMETERS):
    """Record of a net."""
    return graph_record(parameters, {"name": "some"}, 5, {"seconds": 1.0}, [])


def test_the_record_names_every_feature_and_decision():
    record, names = told(), features()
    groups = {"device": DEVICE.features, "cu": CU.features, "hop": HOP.features, "context": CONTEXT.features}
    assert list(names) == [f"{group}/{f.name}" for group, listed in groups.items() for f in listed]
    assert record.features == names
    assert {"blocks", "device_power", "cu_power", "micro_batches", "bandwidth"} == set(record.decisions)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scenarios": (), "most_clusters": 16}, "random systems of up to 16 clusters"),
        ({"scenarios": ("small", "boards"), "random_groups": 0}, "small, boards"),
        ({"scenarios": ("small",), "most_clusters": 5}, "small; random systems of up to 5 clusters"),
        ({"random_systems": "wild"}, "random systems like the tier Wild of up to 40 clusters"),
    ],
)
def test_the_record_says_on_what_the_net_was_trained(changes, words):
    parameters = dataclasses.replace(PARAMETERS, **changes)
    record = graph_record(parameters, training_range(parameters), 5, {}, [])
    assert record.trained_on.endswith(words)


def renamed(shapes, old, new):
    return {new if name == old else name: shape for name, shape in shapes.items()}


OTHER = "was trained with other features than this version has"
ODD = {"layers.2.gate.weight": np.zeros(1, np.float32)}
LESS = {name: shape for name, shape in features().items() if name != "cu/log_server_s"}


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("features", renamed(features(), "hop/log_hop_s", "hop/x"), f"{OTHER} (hop/x, hop/log_hop_s)"),
        ("features", LESS, f"{OTHER} (cu/log_server_s)"),
        ("features", dict(reversed(features().items())), f"{OTHER} (their order)"),
        ("features", {**features(), "device/heat": [1]}, f"{OTHER} (device/heat)"),
        ("decisions", {"clock": [1]}, "other decisions than this version has (clock)"),
        ("hyperparameters", {"width": 33}, "width = 33 is not a multiple of hyper-parameter heads = 4"),
        ("hyperparameters", {"width": "wide"}, "width = 'wide': it should be a valid integer"),
        ("hyperparameters", {"heads": True}, "heads = True: it should be a valid integer"),
        ("hyperparameters", {"layers": 99}, "layers = 99: it should be less than or equal to 16"),
        ("hyperparameters", {"depth": 2}, "hyper-parameter 'depth' is not known to this version"),
        ("hyperparameters", {"scenarios": "small"}, "scenarios = 'small': it should be a valid array"),
        ("hyperparameters", {"scenarios": [3]}, "scenarios = [3]: it should be a valid string"),
        ("tensors", ODD, "its hyper-parameters need other weights: layers.2.gate.weight is"),
        (
            "tensors",
            {"after.bias": None},
            "other weights: after.bias is float32 of shape (16,) there, none in",
        ),
    ],
)
def test_what_a_file_says_of_its_net_is_checked(tmp_path, part, value, message):
    if part in ("decisions", "hyperparameters"):
        value = {**getattr(told(), part), **value}
    path = saved(tmp_path / "net.safetensors", **{part: value})
    with pytest.raises(CheckpointError, match=rf"^{path}\b.*{re.escape(message)}"):
        load_agent(path, support.SMALL)


def test_hyper_parameters_go_through_plain_data():
    several = dataclasses.replace(PARAMETERS, scenarios=("large", "small"), without=("plan", "edges"))
    values = json.loads(json.dumps(dataclasses.asdict(several)))
    assert values["scenarios"] == ["large", "small"]
    assert graph_parameters_from_dict(values) == several
    del values["samples"]  # as in a file from before it was added
    usually = usual(GraphParameters).samples
    assert graph_parameters_from_dict(values) == dataclasses.replace(several, samples=usually)


def test_scenarios_to_train_on_are_looked_for_by_those_who_train_alone(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: small\nbudgets: {per: second}\n")
    for scenarios, message in (
        (("small", "smal"), r"^--graph\.scenarios: .*'smal'; did you mean 'small'\?"),
        ((str(mine),), r"^--graph\.scenarios: the graph net .* budgets\.per is 'second'"),
    ):
        with pytest.raises(ScenarioError, match=message):
            require_scenarios(dataclasses.replace(PARAMETERS, scenarios=scenarios), "--graph.")
    require_scenarios(PARAMETERS, "--graph.")
    # Those who play a net need not have the scenarios of their own that others trained it on.
    parameters = dataclasses.replace(PARAMETERS, scenarios=(str(mine),))
    path = saved(tmp_path / "net.safetensors", parameters=parameters)
    mine.unlink()
    load_agent(path, support.SMALL)
