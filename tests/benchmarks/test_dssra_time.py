"""The benchmark of decision times runs, checks its options and stores what it prints."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import dssra_time


def result(clusters, milliseconds):
    return dssra_time.Result("x", clusters, 5 * clusters, 1, 3, 9.0, 9.0, 9.0, milliseconds, None)


def test_runs_and_stores_its_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dssra_time, "LADDER", ("small", "medium"))
    path = tmp_path / "new" / "times.json"
    arguments = ["--rounds", "2", "--batch", "3", "--clusters", "2", "3", "--output", str(path)]
    assert dssra_time.main(arguments) == 0
    printed = capsys.readouterr().out
    stored = json.loads(path.read_text())
    assert [(r["scenario"], r["environments"]) for r in stored["ladder"]] == [
        ("small", 1),
        ("medium", 1),
        ("medium", 3),
    ]
    assert [(r["clusters"], r["devices"]) for r in stored["growth"]] == [(2, 10), (3, 15)]
    for r in stored["ladder"] + stored["growth"]:
        assert 0.0 < r["fastest_ms"] <= r["median_ms"] <= r["percentile_95_ms"]
        assert f"{r['median_ms']:.3f}" in printed
    assert stored["ladder"][1]["goal_ms"] == 5.0
    assert stored["ladder"][2]["goal_ms"] is None


def test_exponent_and_verdicts():
    growth = [result(n, 0.5 * n**1.5) for n in (4, 8, 32)]
    assert dssra_time.exponent(growth) == pytest.approx(1.5)
    assert "N^1.50, goal at most N^1 missed" in dssra_time.report([], growth)
    goal = dssra_time.Result("medium", 4, 20, 64, 3, 0.4, 0.6, 0.3, 0.7, 0.5)
    assert "0.5 met" in dssra_time.report([goal], [result(n, np.sqrt(n)) for n in (4, 8)])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rounds", "0"], "--rounds: 0"),
        (["--batch", "0"], "--batch: 0"),
        (["--threads", "0"], "--threads: 0"),
        (["--clusters", "4", "4"], "--clusters"),
        (["--clusters", "4", "129"], "--clusters: 129"),
        (["--output", "."], "--output"),
    ],
)
def test_bad_options_are_refused(arguments, named, capsys):
    assert dssra_time.main(arguments) == 2
    assert named in capsys.readouterr().err
