"""The benchmark of the graph net plays it beside DSSRA, stores what it found, and refuses other agents."""

import json
import sys
from pathlib import Path

import pytest

from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_run import GraphFiles, GraphPlan
from collapipe_env.agents.learned.graph.graph_training import GraphTraining
from collapipe_env.scenario import load_scenario

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import graph_net


def trained(folder, seed):
    files = GraphFiles(folder)
    parameters = GraphParameters(
        clusters=8, most_clusters=3, random_groups=0, scenarios=("small",), samples=2, width=8, hidden=8
    )
    GraphTraining(GraphPlan(load_scenario("small"), parameters, 2, seed, 2), files).run(lambda _: None)
    return files.best


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("net"), 0)


@pytest.mark.slow
def test_delays_are_paired_and_times_are_those_of_single_and_batched_decisions(agent, tmp_path, capsys):
    output = tmp_path / "found.json"
    arguments = ["--agent", str(agent), "--scenarios", "small", "--rounds", "4", "--episodes", "3"]
    assert graph_net.main([*arguments, "--batch", "2", "--output", str(output)]) == 0
    (row,) = json.loads(output.read_text())["rows"]
    assert row["scenario"] == "small"
    for title in ("reference", "net", "own shares"):
        assert len(row[title]["priced_s"]) == 3
        assert row[title]["single_ms"] > 0.0
        assert row[title]["batch_ms"] > 0.0
        assert row[title]["worst_energy"] > 0.0
    printed = capsys.readouterr().out
    changes = [
        100.0 * (a / b - 1.0)
        for a, b in zip(row["net"]["priced_s"], row["reference"]["priced_s"], strict=True)
    ]
    assert f"{sum(changes) / 3:+.2f} %" in printed
    assert row["net"]["priced_s"] != row["own shares"]["priced_s"]


def test_several_runs_have_a_line_each_and_one_over_all(agent, tmp_path, capsys):
    output, other = tmp_path / "found.json", trained(tmp_path / "other", 1)
    arguments = ["--agent", str(agent), str(other), "--scenarios", "small", "--rounds", "4"]
    arguments += ["--episodes", "2", "--batch", "2", "--output", str(output)]
    assert graph_net.main(arguments) == 0
    rows = json.loads(output.read_text())["rows"]
    assert [row["run"] for row in rows] == [0, 1]
    assert rows[0]["reference"] == rows[1]["reference"]
    mean = sum(
        100.0 * (a / b - 1.0)
        for row in rows
        for a, b in zip(row["net"]["priced_s"], row["reference"]["priced_s"], strict=True)
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `small`")]
    assert len(lines) == 3
    assert f"| all | {sum(rows[0]['reference']['priced_s']) / 2:.3f} | {mean / 4:+.2f} % (sd " in lines[2]


def test_what_is_no_graph_net_is_refused(tmp_path, capsys):
    assert graph_net.main(["--agent", str(tmp_path / "none.safetensors"), "--scenarios", "small"]) != 0
    assert "does not exist" in capsys.readouterr().err
    assert graph_net.main(["--episodes", "1"]) != 0
    assert "--episodes" in capsys.readouterr().err
