"""Files of graph nets: read without executing anything, and refused by name if they are not such nets."""

import dataclasses
import json

import graph_net_support as support
import numpy as np
import pytest

from collapipe_env.agents.learned.agent_file import AgentFile, read_agent_file, write_agent_file
from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.agents.learned.graph.graph_files import (
    ADAM,
    LEARNING,
    features,
    graph_record,
    require_graph_net,
    systems_of,
)
from collapipe_env.agents.learned.graph.graph_parameters import (
    GraphParameters,
    check_graph_parameters,
    graph_parameters_from_dict,
    require_scenarios,
)
from collapipe_env.agents.learned.graph.net import GraphNet
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.envs.graph_features import CONTEXT, CU, DEVICE, HOP
from collapipe_env.ground.errors import CheckpointError, ScenarioError

PARAMETERS = usual(GraphParameters, width=16, hidden=8)


def content(parameters=PARAMETERS):
    """Record and weights of a fresh net."""
    record = graph_record(parameters, 5, {"seconds": 1.0}, [])
    net = GraphNet(parameters)
    return AgentFile(record, {name: value.numpy() for name, value in net.state_dict().items()})


def saved(path, agent):
    write_agent_file(path, agent.record, agent.tensors)
    return path


def with_record(agent, **changes):
    return agent._replace(record=dataclasses.replace(agent.record, **changes))


def test_weights_come_back_bit_for_bit_without_what_only_training_needs(tmp_path):
    agent = content()
    more = {f"{prefix}{name}": value for name, value in agent.tensors.items() for prefix in (ADAM, LEARNING)}
    path = saved(tmp_path / "net.safetensors", agent._replace(tensors={**agent.tensors, **more}))
    net = require_graph_net(read_agent_file(path), str(path))
    weights = net.state_dict()
    assert net.sizes == PARAMETERS
    assert weights.keys() == GraphNet(PARAMETERS).state_dict().keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value.numpy(), agent.tensors[name])
    part = read_agent_file(path).playing
    assert part.tensors.keys() == weights.keys()
    assert part.record == read_agent_file(path).record


def test_the_record_names_every_feature_and_decision():
    names = features()
    groups = {"device": DEVICE.features, "cu": CU.features, "hop": HOP.features, "context": CONTEXT.features}
    assert list(names) == [f"{group}/{f.name}" for group, listed in groups.items() for f in listed]
    record = content().record
    assert record.features == names
    assert {"blocks", "device_power", "cu_power", "micro_batches", "bandwidth"} == set(record.decisions)
    assert record.trained_on == systems_of(PARAMETERS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scenarios": (), "most_clusters": 16}, "random systems of up to 16 clusters"),
        ({"scenarios": ("small", "boards"), "random_groups": 0}, "small, boards"),
        (
            {"scenarios": ("small", "boards"), "most_clusters": 5},
            "small, boards; random systems of up to 5 clusters",
        ),
    ],
)
def test_the_record_says_on_what_the_net_was_trained(changes, words):
    assert content(dataclasses.replace(PARAMETERS, **changes)).record.trained_on == words


def renamed(shapes, old, new):
    return {new if name == old else name: shape for name, shape in shapes.items()}


def lacking(tensors):
    del tensors["layers.1.gate.weight"]


def foreign(tensors):
    tensors["layers.2.gate.weight"] = np.zeros(1, np.float32)


def reshaped(tensors):
    tensors["cu.weight"] = tensors["cu.weight"].T


def doubled(tensors):
    tensors["after.weight"] = tensors["after.weight"].astype(np.float64)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lacking, "layers.1.gate.weight"),
        (foreign, "layers.2.gate.weight"),
        (reshaped, "cu.weight"),
        (doubled, "after.weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(tmp_path, change, name):
    agent = content()
    change(agent.tensors)
    path = saved(tmp_path / "net.safetensors", agent)
    with pytest.raises(CheckpointError, match=rf"{path}: its hyper-parameters need other weights: {name} is"):
        load_agent(path, support.SMALL)


OTHER_FEATURES = "was trained with other features than this version has"


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (
            "features",
            renamed(features(), "hop/log_hop_s", "hop/log_hop_ms"),
            f"{OTHER_FEATURES} (hop/log_hop_ms, hop/log_hop_s)",
        ),
        (
            "features",
            {k: v for k, v in features().items() if k != "cu/log_server_s"},
            f"{OTHER_FEATURES} (cu/log_server_s)",
        ),
        ("features", dict(reversed(features().items())), f"{OTHER_FEATURES} (their order)"),
        ("features", {**features(), "device/heat": [1]}, f"{OTHER_FEATURES} (device/heat)"),
        ("decisions", {"clock": [1]}, "other decisions than this version has (clock)"),
        *(
            ("hyperparameters", changes, message)
            for changes, message in (
                ({"width": 33}, "width = 33 is not a multiple of hyper-parameter heads = 4"),
                ({"width": "wide"}, "hyper-parameter width = 'wide': it should be a valid integer"),
                ({"heads": True}, "hyper-parameter heads = True: it should be a valid integer"),
                ({"layers": 99}, "hyper-parameter layers = 99: it should be less than or equal to 16"),
                ({"depth": 2}, "hyper-parameter 'depth' is not known to this version"),
                ({"scenarios": "small"}, "hyper-parameter scenarios = 'small': it should be a valid array"),
                ({"scenarios": [3]}, "hyper-parameter scenarios = [3]: it should be a valid string"),
            )
        ),
    ],
)
def test_what_a_record_says_of_its_net_is_checked(tmp_path, part, changes, message):
    agent = content()
    values = changes if part == "features" else {**getattr(agent.record, part), **changes}
    path = saved(tmp_path / "net.safetensors", with_record(agent, **{part: values}))
    with pytest.raises(CheckpointError) as error:
        load_agent(path, support.SMALL)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_hyper_parameters_go_through_plain_data():
    assert graph_parameters_from_dict(dataclasses.asdict(PARAMETERS)) == PARAMETERS
    several = dataclasses.replace(PARAMETERS, scenarios=("large", "small"), without=("plan", "edges"))
    values = json.loads(json.dumps(dataclasses.asdict(several)))
    assert values["scenarios"] == ["large", "small"]
    assert graph_parameters_from_dict(values) == several
    values = dataclasses.asdict(PARAMETERS)
    del values["samples"]  # as in a file from before it was added
    assert graph_parameters_from_dict(values) == dataclasses.replace(
        PARAMETERS, samples=usual(GraphParameters).samples
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 1}, "--graph.samples = 1: it should be greater than or equal to 2"),
        ({"most_clusters": 1}, "--graph.most-clusters = 1: it should be greater than or equal to 2"),
        ({"learning_rate": float("nan")}, "--graph.learning-rate = nan: it should be"),
        (
            {"final_learning_rate": -1.0},
            "--graph.final-learning-rate = -1.0: it should be greater",
        ),
        ({"heads": 5}, "--graph.width = 48 is not a multiple of --graph.heads = 5"),
        (
            {"scenarios": (), "random_groups": 0},
            "--graph.scenarios is empty, without random groups: nothing to train on is left",
        ),
        ({"random_systems": "wide"}, "--graph.random-systems = 'wide': it should be 'ladder' or 'wild'"),
        ({"fading_draws": 0}, "--graph.fading-draws = 0: it should be greater than or equal to 1"),
        ({"longest_backlog": 0.5}, "--graph.longest-backlog = 0.5: it should be greater than or equal to 1"),
        (
            {"without": ("plan", "pools")},
            "--graph.without = ('plan', 'pools'): it should be 'edges', 'pool",
        ),
        (
            {"final_learning_rate": 0.5},
            "--graph.learning-rate = 0.002 is below the final one, 0.5",
        ),
    ],
)
def test_hyper_parameters_of_the_command_line_are_checked(changes, message):
    with pytest.raises(ScenarioError) as error:
        check_graph_parameters(usual(GraphParameters, **changes), "--graph.")
    assert message in str(error.value)
    check_graph_parameters(usual(GraphParameters), "--graph.")


def test_scenarios_to_train_on_are_looked_for_by_those_who_train_alone(tmp_path):
    parameters = dataclasses.replace(PARAMETERS, scenarios=("small", "smal", "mine.yaml"))
    with pytest.raises(ScenarioError, match=r"^--graph\.scenarios: .*'smal'; did you mean 'small'\?"):
        require_scenarios(parameters, "--graph.")
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: small\nbudgets: {per: second}\n")
    with pytest.raises(
        ScenarioError, match=r"^--graph\.scenarios: the graph net .* budgets\.per is 'second'"
    ):
        require_scenarios(dataclasses.replace(PARAMETERS, scenarios=(str(mine),)), "--graph.")
    require_scenarios(PARAMETERS, "--graph.")
    # Those who play a net need not have the scenarios of their own that others trained it on.
    path = saved(tmp_path / "net.safetensors", content(parameters))
    load_agent(path, support.SMALL)
