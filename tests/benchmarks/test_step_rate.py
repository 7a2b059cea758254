"""The step-rate benchmark runs, checks its options and stores what it prints."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import step_rate

NAME = "CollaPipeSurrogate-Small-Classification-v0"


def test_runs_and_stores_its_table(tmp_path, capsys):
    path = tmp_path / "new" / "rates.json"
    arguments = ["--ids", NAME, "--num-envs", "4", "--slice-seconds", "0.01", "--repeats", "2"]
    step_rate.main([*arguments, "--output", str(path)])
    printed = capsys.readouterr().out
    results = {r["name"]: r for r in json.loads(path.read_text())["results"]}
    assert list(results) == ["CartPole-v1", "Pendulum-v1", NAME, f"{NAME} x 4"]
    assert list(path.parent.iterdir()) == [path]
    for name, result in results.items():
        assert name in printed
        assert result["slowest_slice"] <= result["steps_per_second"] <= result["fastest_slice"]
        ratio = result["steps_per_second"] / results["CartPole-v1"]["steps_per_second"]
        assert result["ratio_to_cartpole"] == pytest.approx(ratio)


def test_a_vector_call_counts_every_environment():
    calls = []
    contestant = step_rate.Contestant("x", 50, calls.append)
    assert step_rate.slice_rate(contestant, 10) > 50 * 10
    assert calls == [10]


def test_default_covers_the_ladder():
    options = step_rate.parse_arguments([])
    assert [name.split("-")[1] for name in options.ids] == ["Small", "Medium", "Large", "Xlarge"]
    assert options.num_envs == [64, 256]


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
    with pytest.raises(SystemExit) as stop:
        step_rate.parse_arguments(arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err
