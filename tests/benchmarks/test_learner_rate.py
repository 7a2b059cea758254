"""The benchmark of the learner runs, compares turn by turn and stores what it prints."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import learner_rate

TINY = """
base: small
workload: {blocks: 2, batch_size: 4}
cluster: {clusters: 2}
learning:
  proxy: {width: 8, feedforward: 8, heads: 2, sequence_length: 6, vocabulary: 100}
  evaluation_samples: 8
  evaluate_every: 2
  metric_every: 2
"""


def test_ratios_are_taken_turn_by_turn():
    times = {"a": np.array([1.0, 2.0, 4.0, 8.0, 16.0]), "b": np.array([2.0, 2.0, 2.0, 16.0, 4.0])}
    _, figure = learner_rate.figures_of("group", times, "a", {"b": 1.0}, rounds=2)
    assert (figure.name, figure.unit, figure.note) == ("group: b", "x a", "1000.00 ms")
    assert (figure.value, figure.low, figure.high, figure.verdict) == (1.0, 0.5, 2.0, "met")


@pytest.mark.slow
def test_runs_and_stores_its_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "tiny.yaml").write_text(TINY)
    out = tmp_path / "new" / "rates.json"
    before = torch.get_num_threads()
    arguments = ["--scenario", str(tmp_path / "tiny.yaml"), "--micro-batches", "2", "4", "--stages", "2"]
    try:
        assert learner_rate.main([*arguments, "--rounds", "2", "--output", str(out)]) == 0
    finally:
        torch.set_num_threads(before)
    stored = json.loads(out.read_text())
    printed = capsys.readouterr().out
    assert "GPU figures are skipped" in printed
    assert stored["gpu"].startswith("skipped")
    goals = [figure for figure in stored["figures"] if figure["goal"] is not None]
    assert [figure["name"] for figure in goals] == [
        f"classification, cpu, rounds of M = {m}: learner, same micro-batches" for m in (2, 4)
    ]
    assert all(figure["goal"] == pytest.approx(1.15) for figure in goals)
    for figure in stored["figures"]:
        assert figure["low"] <= figure["value"] <= figure["high"]
        assert figure["name"] in printed
        assert figure["note"] in printed


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--micro-batches", "0"], ["--output", "."]])
def test_bad_options_are_refused(arguments, capsys):
    assert learner_rate.main(arguments) == 2
    assert arguments[0] in capsys.readouterr().err
