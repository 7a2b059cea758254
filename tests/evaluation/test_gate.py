"""The energy gate: slopes against NumPy, verdicts, and the line in tables."""

import dataclasses
import io
import json
import math

import numpy as np
import pytest
from comparison_support import comparison, episode
from rich.console import Console

from collapipe_env.evaluation.comparison import ScenarioComparison, overall, summarise_scenario
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.gate import judge, late_slope
from collapipe_env.evaluation.report import markdown_report, write_report
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.runner import Outcome
from collapipe_env.evaluation.statistics import gate_of, summarise_all
from collapipe_env.files import without_nan

LINE = "below the line: over its energy budget"


@pytest.mark.parametrize("rounds", [3, 4, 11, 500])
def test_slope_is_the_fitted_line_s_over_the_last_half(rounds: int) -> None:
    values = np.random.default_rng(rounds).normal(size=rounds).cumsum()
    late = values[rounds // 2 :]
    expected = np.polyfit(np.arange(late.size), late, 1)[0]
    assert late_slope(values.tolist()) == pytest.approx(expected, rel=1e-9)
    # What happened before says nothing.
    assert late_slope([*(values[: rounds // 2] + 100.0), *late]) == pytest.approx(expected, rel=1e-9)


def test_slope_of_too_few_rounds_or_of_unknown_ones_is_not_known() -> None:
    assert math.isnan(late_slope([1.0]))
    assert math.isnan(late_slope([1.0, 2.0]))
    assert math.isnan(late_slope([0.0, 0.0, math.nan, 1.0]))
    assert late_slope([math.nan, math.nan, 1.0, 3.0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("rounds", "excess", "slope", "verdict"),
    [
        (500, 0.02, 0.005, "passed"),
        (500, 0.021, -0.1, "failed"),
        (500, -0.3, 0.0051, "failed"),
        (500, 0.0, math.nan, "not known"),
        (500, 0.05, math.nan, "failed"),
        (499, 0.05, 0.1, "too short"),
        (2000, 0.0, 0.0, "passed"),
    ],
)
def test_verdicts(rounds: int, excess: float, slope: float, verdict: str) -> None:
    gate = judge(rounds, [excess], [slope])
    assert (gate.verdict, gate.failed) == (verdict, verdict == "failed")


def test_episodes_are_averaged_and_the_worst_run_decides() -> None:
    assert judge(500, [[0.03, 0.0]], [[0.009, 0.0]]).verdict == "passed"
    assert judge(500, [[0.03, 0.0], [0.03, 0.02]], [[0.0, 0.0]] * 2).verdict == "failed"
    gate = judge(500, [[0.01, 0.0], [0.0, 0.0]], [[0.0, 0.001], [0.004, 0.002]])
    assert (gate.energy_excess, gate.backlog_slope) == pytest.approx((0.005, 0.003))


def long_comparison(rounds: int = 500) -> ScenarioComparison:
    """``greedy`` is the fastest and overdraws; ``growing`` keeps 2 %, but its queue grows; ``old`` is old."""
    delays = {"dssra": 2.0, "greedy": 1.0, "growing": 1.5, "slow": 3.0, "old": 4.0}
    done = comparison(
        "one",
        {name: [[delay] * rounds, [delay + 0.1] * rounds] for name, delay in delays.items()},
        energy={"greedy": 1.05, "growing": 1.01},
    )
    trends = {"growing": np.linspace(0.0, 0.01 * rounds, rounds).tolist(), "old": [math.nan] * rounds}
    results = {
        name: [dataclasses.replace(e, largest_backlog=trends.get(name, e.largest_backlog)) for e in episodes]
        for name, episodes in done.results.items()
    }
    return summarise_scenario(dataclasses.replace(done.plan, rounds=rounds), Outcome(results, {}), "dssra")


def test_who_fails_comes_last_without_a_rank_and_takes_no_other_s() -> None:
    summaries = long_comparison().summaries
    assert [s.scheduler for s in summaries] == ["dssra", "slow", "old", "greedy", "growing"]
    assert [s.rank.mean for s in summaries[:3]] == [1.0, 2.0, 3.0]
    assert all(math.isnan(s.rank.mean) for s in summaries[3:])
    assert [s.gate.verdict for s in summaries] == ["passed", "passed", "not known", "failed", "failed"]
    growing = summaries[-1]
    assert growing.backlog_slope.mean == pytest.approx(0.01 * 500 / 499)
    assert growing.difference.mean == pytest.approx((1.5 / 2.0 + 1.6 / 2.1) / 2 - 1.0)


def test_short_episodes_are_not_judged() -> None:
    done = long_comparison(499)
    assert [s.scheduler for s in done.summaries] == ["greedy", "growing", "dssra", "slow", "old"]
    text = markdown_report([done], overall([done]))
    assert LINE not in text
    assert "not applied to 499 rounds, only from 500 on." in text


@pytest.mark.parametrize("width", [60, 90, 250])
def test_tables_have_a_line(tmp_path, width: int) -> None:
    one, two = long_comparison(), comparison("two", {"dssra": [[1.0]], "greedy": [[2.0]], "slow": [[3.0]]})
    out = io.StringIO()
    run = RunDirectory(tmp_path / "run")
    write_report([one, two], {}, run, whole=False, figures=False, console=Console(file=out, width=width))
    rows = [line for line in run.table.read_text().splitlines() if line.startswith("|")]
    names = [row.split("|")[1].strip() for row in rows]
    assert names[2:8] == ["DSSRA", "SLOW", "OLD", f"*{LINE}*", "GREEDY", "GROWING"]
    assert len({row.count("|") for row in rows[:8]}) == 1
    # The last table, over both: in one of them is enough.
    assert names[-5:] == ["OLD", "SLOW", f"*{LINE}*", "GROWING", "GREEDY"]
    tables = out.getvalue().partition("table: ")[0]
    assert max(map(len, tables.splitlines())) <= width
    printed = " ".join(out.getvalue().split())
    assert printed.index("SLOW") < printed.index("below the line:") < printed.index("GREEDY")
    assert "Energy gate not known for OLD: their episodes were played by an earlier version" in printed
    found = json.loads(run.summary.read_text())
    (greedy,) = (s for s in found["scenarios"]["one"]["summary"] if s["scheduler"] == "greedy")
    assert greedy["gate"]["verdict"] == "failed"
    assert greedy["gate"]["energy_excess"] == pytest.approx(0.05)
    assert [line["failed"] for line in found["overall"]] == [False] * 3 + [True] * 2


def test_files_of_earlier_versions_are_read_and_their_gate_is_not_known() -> None:
    stored = without_nan(episode("dssra", 0, [1.0] * 500).to_dict())
    del stored["largest_backlog"], stored["run"]
    read = EpisodeResult.from_dict(stored, "x.json")
    assert read.run == 0
    assert len(read.largest_backlog) == 500
    assert gate_of([read]).verdict == "not known"
    (summary,) = summarise_all({"dssra": [read]}, 0.5, "dssra")
    assert math.isnan(summary.backlog_slope.mean)
    assert summary.rank.mean == 1.0
