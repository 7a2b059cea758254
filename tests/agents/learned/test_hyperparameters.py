"""Hyper-parameters of all algorithms: their ranges, their file, and what follows from them."""

import dataclasses
import json
import re

import pytest

from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters, check_graph_parameters
from collapipe_env.agents.learned.hyperparameters import (
    PARAMETERS,
    VALUES,
    PPOParameters,
    check_parameters,
    fitting_minibatch,
    initial_learning_rate,
    linear_schedule,
    usual,
)
from collapipe_env.ground.errors import ScenarioError

KINDS = {**PARAMETERS, "graph": GraphParameters}


@pytest.mark.parametrize(
    ("algorithm", "change", "message"),
    [
        ("ppo", {"learning_rate": 0.0}, "learning-rate = 0.0: it should be greater than 0"),
        ("ppo", {"gamma": 1.5}, "gamma = 1.5: it should be less than or equal to 1"),
        ("ppo", {"clip_range": float("nan")}, "clip-range = nan: it should be"),
        ("ppo", {"target_kl": -1.0}, "target-kl"),
        ("ppo", {"hidden_units": ()}, "hidden-units = ()"),
        ("ppo", {"policy": "cnn"}, "policy = 'cnn': it should be 'clusters' or 'mlp'"),
        ("ppo", {"credit": "node"}, "credit = 'node': it should be 'clusters' or 'round'"),
        ("ppo", {"epochs": 0}, "epochs = 0: it should be greater than or equal to 1"),
        ("sac", {"tau": -0.1}, "tau"),
        ("sac", {"learning_starts": -1}, "learning-starts"),
        ("graph", {"samples": 1}, "samples = 1: it should be greater than or equal to 2"),
        ("graph", {"most_clusters": 1}, "most-clusters = 1: it should be greater than or equal to 2"),
        ("graph", {"learning_rate": float("nan")}, "learning-rate = nan: it should be"),
        ("graph", {"final_learning_rate": -1.0}, "final-learning-rate = -1.0: it should be greater"),
        ("graph", {"final_learning_rate": 0.5}, "learning-rate = 0.002 is below the final one, 0.5"),
        ("graph", {"heads": 5}, "width = 48 is not a multiple of --graph.heads = 5"),
        ("graph", {"scenarios": (), "random_groups": 0}, "scenarios is empty, without random groups"),
        ("graph", {"random_systems": "wide"}, "random-systems = 'wide': it should be 'ladder' or 'wild'"),
        ("graph", {"fading_draws": 0}, "fading-draws = 0: it should be greater than or equal to 1"),
        ("graph", {"longest_backlog": 0.5}, "longest-backlog = 0.5: it should be greater than or equal"),
        ("graph", {"without": ("plan", "pools")}, "without = ('plan', 'pools'): it should be 'edges', 'pool"),
    ],
)
def test_values_out_of_range_are_named_with_their_option(algorithm: str, change: dict, message: str) -> None:
    check = check_graph_parameters if algorithm == "graph" else check_parameters
    prefix, values = f"--{algorithm}.", usual(KINDS[algorithm])
    with pytest.raises(ScenarioError, match=re.escape(prefix + message)):
        check(dataclasses.replace(values, **change), prefix)
    check(values, prefix)


@pytest.mark.parametrize("kind", KINDS.values())
def test_the_file_names_every_hyper_parameter_once(kind: type) -> None:
    values = VALUES[kind.algorithm]
    assert list(values) == [field.name for field in dataclasses.fields(kind)]
    assert json.loads(json.dumps(dataclasses.asdict(usual(kind)))) == values


def test_schedule_and_minibatch() -> None:
    mlp = usual(PPOParameters, policy="mlp")
    assert initial_learning_rate(mlp, 52, 4) == 1e-3
    assert initial_learning_rate(mlp, 304, 16) == pytest.approx(3e-4, rel=0.02)
    rates = [initial_learning_rate(usual(PPOParameters), 52, clusters) for clusters in (2, 4, 8, 16)]
    assert rates == pytest.approx([1e-3, 2e-3, 2e-3, 1e-3])
    assert initial_learning_rate(usual(PPOParameters, learning_rate=0.5), 304, 16) == 0.5
    rate = linear_schedule(1e-3, 1e-4)
    assert [rate(x) for x in (1.0, 0.5, 0.0, -0.1)] == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])
    fits = {(512, 2048): 512, (512, 96): 96, (100, 96): 96, (7, 12): 6, (5, 7): 1}
    assert {given: fitting_minibatch(*given) for given in fits} == fits
