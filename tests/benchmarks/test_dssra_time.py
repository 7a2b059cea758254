"""The benchmark of decision times runs, checks its options and stores what it prints."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import dssra_time


def test_runs_and_stores_its_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dssra_time, "LADDER", ("small", "medium"))
    path = tmp_path / "new" / "times.json"
    assert dssra_time.main(["--rounds", "2", "--batch", "3", "--output", str(path)]) == 0
    printed = capsys.readouterr().out
    figures = {figure["name"]: figure for figure in json.loads(path.read_text())["figures"]}
    assert list(figures) == [
        "small, 6 devices, batch of 1",
        "medium, 20 devices, batch of 1",
        "medium, 20 devices, batch of 3",
    ]
    for name, figure in figures.items():
        assert 0.0 < figure["low"] <= figure["value"] <= figure["high"]
        assert name in printed
        assert "ms of processor time" in figure["note"]
    assert [figure["goal"] for figure in figures.values()] == [None, 5.0, None]


def test_time_is_that_of_one_environment(monkeypatch):
    """Every call takes 6 s by the clock and 12 s of processor time, for 3 environments."""
    clocks = {"perf_counter": 0.0, "process_time": 0.0}

    def ticking(name, step):
        def read():
            clocks[name] += step
            return clocks[name]

        return read

    monkeypatch.setattr(dssra_time.time, "perf_counter", ticking("perf_counter", 6.0))
    monkeypatch.setattr(dssra_time.time, "process_time", ticking("process_time", 12.0))
    found = dssra_time.measure("small", 3, 2, 1, 0)
    assert (found.low, found.value, found.high) == pytest.approx((2000.0, 2000.0, 2000.0))
    assert found.note.startswith("4000.000 ms")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rounds", "0"], "--rounds: 0"),
        (["--batch", "0"], "--batch: 0"),
        (["--threads", "0"], "--threads: 0"),
        (["--output", "."], "--output"),
    ],
)
def test_bad_options_are_refused(arguments, named, capsys):
    assert dssra_time.main(arguments) == 2
    assert named in capsys.readouterr().err
