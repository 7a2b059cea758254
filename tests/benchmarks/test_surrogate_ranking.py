"""The benchmark of rank correlations: targets, censoring, coefficients, and what it stores."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import surrogate_ranking as ranking

TINY = """
base: small
learning:
  evaluation_samples: 16
  proxy: {width: 8, feedforward: 8, sequence_length: 8, vocabulary: 128}
"""


def course(losses, delay=2.0):
    return ranking.Course(np.full(len(losses), delay), np.array(losses))


def test_target_is_what_the_median_episode_reached_after_60_percent():
    courses = [course(np.linspace(1.0, 0.1, 10)), course(np.linspace(1.0, 0.55, 10))]
    # Round 6 of 10: 0.5 and 0.75.
    assert ranking.default_target(courses) == pytest.approx(0.625)


def test_episodes_that_never_reach_it_count_whole():
    falling = course([0.9, 0.7, 0.5, 0.6], delay=3.0)
    assert falling.to_target(0.7) == (6.0, 2, True)
    assert falling.to_target(0.4) == (12.0, 4, False)


def test_coefficient_and_interval():
    rng = np.random.default_rng(0)
    times = np.arange(1.0, 13.0)[:, None] + 0.01 * rng.random((12, 3))
    same = ranking.correlation(times, np.exp(times))
    assert (same.rho, same.schedulers) == (1.0, 12)
    assert same.low > 0.99
    assert ranking.correlation(times, -times).rho == pytest.approx(-1.0)
    unrelated = ranking.correlation(times, rng.permutation(times))
    assert unrelated.low < unrelated.rho < unrelated.high
    assert unrelated.high - unrelated.low > 0.3
    assert np.isnan(ranking.correlation(times, np.ones_like(times)).rho)


def test_schedulers_that_the_surrogate_does_not_model_are_told_apart(tmp_path, capsys):
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(TINY)
    arguments = ["--scenario", str(scenario), "--episodes", "1", "--rounds", "5", "--processes", "1"]
    arguments += ["--schedulers", "pipeline", "random", "titanic", "splitfed_v1", "xpipe"]
    arguments += ["--folder", str(tmp_path / "episodes"), "--output", str(tmp_path / "ranking.json")]
    assert ranking.main(arguments) == 0
    printed = capsys.readouterr().out
    stored = json.loads((tmp_path / "ranking.json").read_text())
    found = {entry["scheduler"]: entry for entry in stored["schedulers"]}
    assert {name for name, entry in found.items() if not entry["modelled"]} == {"splitfed_v1", "xpipe"}
    assert stored["correlations"]["modelled_seconds"]["schedulers"] == 3
    assert stored["correlations"]["all_seconds"]["schedulers"] == 5
    assert stored["options"]["task"] == "classification"
    assert printed.count("(not modelled)") == 2
    # Nothing is played twice, and the same comes out.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "episodes").rglob("*.npz")}
    assert len(before) == 5
    assert ranking.main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    again = json.loads((tmp_path / "ranking.json").read_text())
    assert again["correlations"] == stored["correlations"]
    seconds = [np.mean(entry["seconds"]["real"]) for entry in stored["schedulers"]]
    assert seconds == sorted(seconds)


def test_the_goal_is_of_the_schedulers_that_are_modelled():
    rows = [
        ranking.Ranked.of(name, True, {"real": [course([0.1], s)], "surrogate": [course([0.1], 2 * s)]}, 0.5)
        for name, s in (("a", 5.0), ("b", 7.0), ("c", 9.0))
    ]
    figures = ranking.correlations(rows)
    assert figures["modelled_seconds"].rho == 1.0
    assert "goal at least 0.9 met" in ranking.report(rows, figures, 0.5)
    swapped = [replace(row, seconds=row.seconds | {"surrogate": [-row.seconds["real"][0]]}) for row in rows]
    assert "goal at least 0.9 missed" in ranking.report(swapped, ranking.correlations(swapped), 0.5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--episodes", "0"], "--episodes: 0"),
        (["--rounds", "4"], "--rounds: 4"),
        (["--target", "-1"], "--target: -1"),
        (["--schedulers", "dssra", "random"], "name at least 3"),
        (["--schedulers", "dsra", "random", "xpipe"], "did you mean 'dssra'"),
        (["--scenario", "smal"], "did you mean 'small'"),
        (["--output", "."], "--output"),
    ],
)
def test_bad_options_are_refused(arguments, named, capsys):
    assert ranking.main(arguments) == 2
    assert named in capsys.readouterr().err
