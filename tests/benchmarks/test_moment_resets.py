"""The benchmark of lost moments."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import moment_resets


def test_a_slower_course_is_found_to_be_as_much_slower():
    rounds = np.arange(1, 101)

    def course(t):
        return 0.3 + 0.4 * np.exp(-t / 60)

    assert moment_resets.slowdown(course(rounds), course(0.6 * rounds)) == pytest.approx(0.4, abs=0.011)
    assert moment_resets.slowdown(course(rounds), course(rounds)) == pytest.approx(0.0, abs=0.005)


@pytest.mark.slow
def test_shares_are_trained_and_stored(tmp_path, capsys):
    path = tmp_path / "resets.json"
    few = ["--rounds", "3", "--seeds", "1", "--shares", "0", "1", "--output", str(path)]
    assert moment_resets.main(few) == 0
    rows = json.loads(path.read_text())["rows"]
    assert rows[0]["more"] == 0.0
    assert rows[1]["mean_loss"] != rows[0]["mean_loss"]
    assert "| 1 |" in capsys.readouterr().out
    assert moment_resets.main(["--shares", "2"]) == 2
