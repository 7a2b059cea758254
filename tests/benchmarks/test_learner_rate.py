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
    _, row = learner_rate.rows_of(("task", "cpu", "group"), times, "a", {"b": 1.0}, rounds=2)
    assert (row.milliseconds, row.ratio, row.quartiles) == (1000.0, 1.0, (0.5, 2.0))
    assert "goal <= 1.0 met" in learner_rate.line(row)


def test_runs_and_stores_its_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "tiny.yaml").write_text(TINY)
    out = tmp_path / "new" / "rates.json"
    before = torch.get_num_threads()
    try:
        learner_rate.main(
            learner_rate.Arguments(
                out=out, scenario=str(tmp_path / "tiny.yaml"), micro_batches=(2, 4), stages=2, rounds=2
            )
        )
    finally:
        torch.set_num_threads(before)
    stored = json.loads(out.read_text())
    printed = capsys.readouterr().out
    assert "GPU figures are skipped" in printed
    assert stored["gpu"].startswith("skipped")
    goals = [row for row in stored["rows"] if row["goal"] is not None]
    assert [row["group"] for row in goals] == ["rounds of M = 2", "rounds of M = 4"]
    assert all(row["goal"] == pytest.approx(1.15) for row in goals)
    for row in stored["rows"]:
        assert row["quartiles"][0] <= row["ratio"] <= row["quartiles"][1]
        assert f"{row['milliseconds']:.2f} ms" in printed
