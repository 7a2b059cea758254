"""Benchmark of the tiers: twins without processes, rows, and the name of the slowest process."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import tiers

from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.process_registry import active_processes


@pytest.mark.parametrize("tier", tiers.TIERS)
def test_a_twin_differs_in_what_moves_alone(tier):
    scenario = load_scenario(f"small-{tier}")
    twin = tiers.static_twin(scenario)
    assert {p.name for p in active_processes(twin)} <= {"shadowing", "fading"}
    assert {p.name for p in active_processes(scenario)} > {p.name for p in active_processes(twin)}
    for section in ("workload", "cluster", "radio", "budgets", "devices", "overheads"):
        assert getattr(twin, section) == getattr(scenario, section)


def test_rows_and_the_slowest(tmp_path):
    path = tmp_path / "tiers.json"
    arguments = ["--sizes", "small", "--num-envs", "2", "--slice-seconds", "0.002", "--repeats", "1"]
    assert tiers.main([*arguments, "--output", str(path)]) == 0
    found = {row["name"]: row["value"] for row in json.loads(path.read_text())["figures"]}
    own = {f"small-{tier}, 2 in a vector" for tier in tiers.TIERS}
    (last,) = set(found) - own
    assert last.startswith("slowest, 2 in a vector: ")
    assert found[last] == max(found[name] for name in own)


def test_unknown_sizes_are_named(capsys):
    assert tiers.main(["--sizes", "xlarge"]) != 0
    assert "--sizes: 'xlarge' has no tiers: did you mean 'large'?" in capsys.readouterr().err
