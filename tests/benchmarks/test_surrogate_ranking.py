"""The benchmark of rank correlations: targets, censoring, coefficients, and what it stores."""

import json

import numpy as np
import pytest
import surrogate_ranking as ranking

TINY = """
base: small
workload: {blocks: 3, batch_size: 8}
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
    same = ranking.correlation("x", times, np.exp(times))
    assert (same.value, same.name) == (1.0, "x (12)")
    assert same.low > 0.99
    assert ranking.correlation("x", times, -times).value == pytest.approx(-1.0)
    unrelated = ranking.correlation("x", times, rng.permutation(times))
    assert unrelated.low < unrelated.value < unrelated.high
    assert unrelated.high - unrelated.low > 0.3
    assert np.isnan(ranking.correlation("x", times, np.ones_like(times)).value)


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
    assert [figure["name"] for figure in stored["figures"]] == [
        "seconds, modelled schedulers (3)", "rounds, modelled schedulers (3)",
        "seconds, all schedulers (5)", "rounds, all schedulers (5)",
    ]  # fmt: skip
    met = stored["figures"][0]["value"] >= 0.9
    assert stored["goal_met"] is met
    assert f"at least 0.9: {'met' if met else 'missed'}" in printed
    assert stored["options"]["task"] == "classification"
    assert printed.count("(not modelled)") == 2
    # Nothing is played twice, and the same comes out.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "episodes").rglob("*.npz")}
    assert len(before) == 10
    assert ranking.main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    again = json.loads((tmp_path / "ranking.json").read_text())
    assert json.dumps(again["figures"]) == json.dumps(stored["figures"])  # NaN is not itself
    seconds = [np.mean(entry["figures"], axis=1)[0, 0] for entry in stored["schedulers"]]
    assert seconds == sorted(seconds)


def test_schedulers_are_ranked_by_what_they_need_under_both_learners():
    def rows(*surrogate):
        return [
            ranking.Ranked.of(
                name, True, {"real": [course([1.0, 0.1], s)], "surrogate": [course([0.1], t)]}, 0.5
            )
            for name, s, t in zip("abc", (5.0, 7.0, 9.0), surrogate, strict=True)
        ]

    same = rows(10.0, 14.0, 18.0)
    assert same[1].figures.tolist() == [[[14.0, 2.0, 1.0]], [[14.0, 1.0, 1.0]]]
    seconds, rounds, *_ = ranking.correlations(same)
    assert seconds.value == 1.0
    assert np.isnan(rounds.value)  # all need the same
    assert ranking.correlations(rows(3.0, 2.0, 1.0))[0].value == -1.0
    assert "7.0" not in ranking.table(same)
    assert "14.0" in ranking.table(same)
