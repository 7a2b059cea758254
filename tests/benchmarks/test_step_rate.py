"""The step-rate benchmark runs, checks its options and stores what it prints."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import step_rate
from side_by_side import Timing

NAME = "CollaPipeSurrogate-Small-Classification-v0"
TRANSLATION = "CollaPipeSurrogate-Small-Translation-v0"


def test_runs_and_stores_its_table(tmp_path, capsys):
    path = tmp_path / "new" / "rates.json"
    arguments = ["--ids", NAME, "--num-envs", "4", "--slice-seconds", "0.01", "--repeats", "2"]
    step_rate.main([*arguments, "--output", str(path)])
    printed = capsys.readouterr().out
    content = json.loads(path.read_text())
    results = {r["name"]: r for r in content["figures"]}
    assert list(results) == ["CartPole-v1", "Pendulum-v1", "small, single", "small, 4 in a vector"]
    assert list(path.parent.iterdir()) == [path]
    assert content["options"] == {"ids": [NAME], "num_envs": [4], "slice_seconds": 0.01, "repeats": 2}
    for name, result in results.items():
        assert name in printed
        assert result["low"] <= result["value"] <= result["high"]
        assert "steps/s" in result["note"]
    yardstick = results["CartPole-v1"]
    assert yardstick["value"] == yardstick["low"] == yardstick["high"] == 1.0


@pytest.fixture
def timed(monkeypatch):
    """Every contestant is there, but its seconds are made up: 1 us for each letter of its row."""

    def take_turns(contestants, seconds, repeats):
        return {c.name: Timing(c.name, c.units, (1e-6 * len(c.name),) * repeats) for c in contestants}

    monkeypatch.setattr(step_rate, "take_turns", take_turns)


def test_figures_carry_the_goals(timed):
    found = {(f.name, f.unit): f for f in step_rate.figures(num_envs=(2, 256))}
    cartpole = f"x {step_rate.YARDSTICK}"
    goals = {key: f.goal for key, f in found.items() if f.goal is not None}
    assert goals == {
        ("small, single", cartpole): 20.0,
        ("medium, single", cartpole): 30.0,
        ("medium, 256 in a vector", cartpole): 0.5,
        ("xlarge over medium, 256 in a vector", "x medium, 256 in a vector"): 60.0,
    }
    assert ("xlarge over medium, 2 in a vector", "x medium, 2 in a vector") in found
    for (name, unit), figure in found.items():
        row = name.replace(" over medium", "")
        assert figure.value == pytest.approx(len(row) / len(unit.removeprefix("x ")))


def test_an_id_outside_the_ladder_keeps_its_name_and_has_no_goal(timed):
    found = {f.name: f for f in step_rate.figures([TRANSLATION], num_envs=())}
    assert list(found) == ["CartPole-v1", "Pendulum-v1", f"{TRANSLATION}, single"]
    assert all(f.goal is None for f in found.values())


def test_a_vector_call_counts_every_environment():
    contestant = step_rate.vector("row", NAME, 5)
    assert (contestant.name, contestant.units) == ("row", 5)
    assert step_rate.single("row", NAME).units == 1


def test_default_covers_the_ladder():
    options = step_rate.Options()
    assert [name.split("-")[1] for name in options.ids] == ["Small", "Medium", "Large", "Xlarge"]
    assert options.num_envs == (64, 256)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--ids", "CollaPipe-Tiny-v0"],
        ["--num-envs", "0"],
        ["--slice-seconds", "0"],
        ["--slice-seconds", "nan"],
        ["--repeats", "0"],
        ["--output", "."],
    ],
)
def test_bad_options_are_refused(arguments, capsys):
    assert step_rate.main(arguments) == 2
    assert arguments[0] in capsys.readouterr().err
