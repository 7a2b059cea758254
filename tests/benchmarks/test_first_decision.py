"""The benchmark of first decisions: medians of fresh processes, cold and warm, beside the goal."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import first_decision


def test_cold_and_warm_take_turns_and_medians_are_stored(monkeypatch, tmp_path, capsys):
    folders = []

    def measure(folder):
        folders.append(folder)
        number = len(folders)
        return {"first step": float(number), "first decision": 10.0 * number}

    monkeypatch.setattr(first_decision, "_first_decision", measure)
    path = tmp_path / "first.json"
    first_decision.main(["--processes", "3", "--output", str(path)])
    # A warm process has the folder of the cold one before it.
    assert folders[0] == folders[1] != folders[2] == folders[3]
    found = {f["name"]: f for f in json.loads(path.read_text())["figures"]}
    assert found["cold, first decision"]["value"] == 30.0
    assert found["cold, first decision"]["verdict"] == "missed by 3.00 x"
    assert found["warm, first step"]["value"] == 4.0
    assert "warm, first decision" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--processes", "0"], ["--output", "."]])
def test_bad_options_are_refused(arguments, capsys):
    assert first_decision.main(arguments) == 2
    assert arguments[0] in capsys.readouterr().err
