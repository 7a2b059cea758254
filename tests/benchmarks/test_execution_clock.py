"""The benchmark of the wall clock: figures of cells, the goal, and cells that cannot be planned."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import execution_clock

from collapipe_env.execution.price_comparison import ComparedCluster, ComparedPhase, ComparedRound
from collapipe_env.ground.errors import ScenarioError


def compared(number, steps, delay_s):
    """A round that is priced at 2 s a step and 10 s in all; measured steps of its clusters."""
    clusters = tuple(
        ComparedCluster(
            round=number, cluster=n, schedule="1f1b", micro_batches=4, step_priced_s=2.0,
            step_measured_s=step,
            delay_priced_s=9.0, delay_measured_s=9.0, late_mean_s=1e-3 * (n + 1), late_most_s=4e-3 * (n + 1),
            begun_late_mean_s=2e-3, begun_late_most_s=7e-3, overruns=3 * n, lost=(), recovery_s=0.0,
            phases=(),
        )
        for n, step in enumerate(steps)
    )  # fmt: skip
    return ComparedRound(number, clusters, 10.0, delay_s, None, {}, ComparedPhase("broadcast", 1.0, 1.0))


def cell(schedule="1f1b", error=0.0):
    rounds = [compared(1, (2.0, 2.0 * (1.0 + error)), 10.0), compared(2, (2.0, 2.0), 10.5)]
    return execution_clock.cell_of(rounds, schedule, 4, 1.5, 0.7)


def test_a_cell_has_means_and_the_largest_errors_with_their_signs():
    found = cell(error=-0.04)
    assert found.step_s == 2.0
    assert found.step_error == pytest.approx(-0.01)
    assert found.step_error_most == pytest.approx(-0.04)
    assert found.round_error == pytest.approx(0.025)
    assert found.round_error_most == pytest.approx(0.05)
    assert found.late_ms == pytest.approx(1.5)
    assert found.late_most_ms == pytest.approx(8.0)
    assert found.begun_late_most_ms == pytest.approx(7.0)
    assert found.overruns == pytest.approx(1.5)


def test_cells_that_cannot_be_planned_are_left_out_and_the_goal_is_counted(tmp_path, monkeypatch, capsys):
    def measured(options, schedule, micro_batches):
        if schedule == "interleaved":
            raise ScenarioError("no such plan")
        return cell(schedule, 0.03 if schedule == "zb-h1" else 0.01)

    monkeypatch.setattr(execution_clock, "measured", measured)
    path = tmp_path / "clock.json"
    assert execution_clock.main(["--micro-batches", "4", "--output", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "left out: no such plan" in printed
    assert "largest error of T_step at most 2 %: 2 of 3 cells" in printed
    content = json.loads(path.read_text())
    assert [one["schedule"] for one in content["cells"]] == ["gpipe", "1f1b", "zb-h1"]
    assert content["left_out"] == ["interleaved, M = 4: no such plan"]
    figures = execution_clock.figures(("gpipe", "zb-h1"), (4,))
    assert [one.verdict for one in figures] == ["met", "missed by 1.50 x"]
    assert figures[0].note == "load average 0.7"


def test_rounds_out_of_range_are_one_clear_error(tmp_path, capsys):
    assert execution_clock.main(["--rounds", "0", "--output", str(tmp_path / "x.json")]) == 2
    assert "--rounds: 0 is not within 1 to 100" in capsys.readouterr().err
