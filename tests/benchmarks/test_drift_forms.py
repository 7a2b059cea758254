"""The benchmark of the two forms of the drift."""

import json
import sys
from pathlib import Path

from collapipe_env.scenario import load_scenario

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import drift_forms


def test_both_forms_play_the_same_episodes(tmp_path, capsys):
    path = tmp_path / "forms.json"
    arguments = ["--scenarios", "small", "--rounds", "6", "--episodes", "2", "--output", str(path)]
    assert drift_forms.main(arguments) == 0
    row = json.loads(path.read_text())["rows"][0]
    assert "| `small` |" in capsys.readouterr().out
    assert 0.9 < row["exact"]["delay_s"] / row["bound"]["delay_s"] < 1.1
    assert row["exact"]["milliseconds"] > 0.0


def test_episodes_may_be_longer_than_the_scenarios(tmp_path):
    path = tmp_path / "forms.json"
    rounds = load_scenario("small").dynamics.rounds + 1
    arguments = ["--scenarios", "small", "--rounds", str(rounds), "--episodes", "1", "--output", str(path)]
    assert drift_forms.main(arguments) == 0
    row = json.loads(path.read_text())["rows"][0]
    # DSSRA uses up the budget of the worst node, in long episodes too.
    assert 0.9 < row["exact"]["worst_energy"] < 1.2


def test_budgets_per_second_are_held_by_slower_rounds(tmp_path):
    rows = {}
    for per in ("round", "second"):
        path = tmp_path / f"{per}.json"
        options = ["--rounds", "40", "--episodes", "1", "--per", per, "--output", str(path)]
        assert drift_forms.main(["--scenarios", "medium", *options]) == 0
        rows[per] = json.loads(path.read_text())["rows"][0]["exact"]
    assert rows["second"]["delay_s"] > 1.05 * rows["round"]["delay_s"]
    assert rows["second"]["worst_energy"] < 1.1


def test_bad_options_are_refused(capsys):
    assert drift_forms.main(["--per", "hour"]) == 2
    assert "budgets.per" in capsys.readouterr().err
    assert drift_forms.main(["--rounds", "0"]) == 2
    assert "--rounds: 0 is not within 1" in capsys.readouterr().err
    assert drift_forms.main(["--scenarios", "smal"]) == 2
    assert "did you mean 'small'" in capsys.readouterr().err
