"""Energy over budget: slopes against NumPy, verdicts, and the line in tables."""

import dataclasses
import io
import json
import math

import numpy as np
import pytest
from comparison_support import comparison
from rich.console import Console

from collapipe_env.evaluation.comparison import ScenarioComparison, overall, summarise_scenario
from collapipe_env.evaluation.gate import is_whole, judge, late_slope
from collapipe_env.evaluation.report import markdown_report, write_report
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.runner import Outcome

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
    ("whole", "excess", "slope", "verdict"),
    [
        (True, 0.021, 0.021, "failed"),
        (True, 0.02, 0.5, "passed"),
        (True, 0.07, 0.02, "passed"),  # the queues have filled, and stay
        (True, -0.3, 0.1, "passed"),
        (False, 0.5, 0.5, "too short"),
    ],
)
def test_verdicts(whole: bool, excess: float, slope: float, verdict: str) -> None:
    gate = judge(whole, [excess], [slope])
    assert (gate.verdict, gate.failed) == (verdict, verdict == "failed")


def test_episodes_are_averaged_and_one_bad_run_decides() -> None:
    assert judge(True, [[0.03, 0.0]], [[0.05, 0.05]]).verdict == "passed"
    assert judge(True, [[0.03, 0.0], [0.03, 0.02]], [[0.0, 0.0], [0.05, 0.0]]).verdict == "failed"
    assert judge(True, [[0.1, 0.1], [0.0, 0.0]], [[0.0, 0.0], [0.1, 0.1]]).verdict == "passed"
    gate = judge(True, [[0.01, 0.0], [0.0, 0.0]], [[0.0, 0.001], [0.004, 0.002]])
    assert (gate.energy_excess, gate.backlog_slope) == pytest.approx((0.005, 0.003))


OWN = 100
"""Rounds of the scenario that comparisons are made up on."""


def whole_comparison(rounds: int = OWN) -> ScenarioComparison:
    """``greedy`` is the fastest and overdraws; the queue of ``filled`` has grown as much, and then stays."""
    delays = {"dssra": 2.0, "greedy": 1.0, "filled": 1.5, "slow": 3.0}
    done = comparison(
        "one",
        {name: [[delay] * rounds, [delay + 0.1] * rounds] for name, delay in delays.items()},
        energy={"greedy": 1.05, "filled": 1.05},
    )
    steady = np.minimum(np.linspace(0.0, 0.1 * rounds, rounds), 0.05 * rounds).tolist()
    results = {
        name: [dataclasses.replace(e, largest_backlog=steady) if name == "filled" else e for e in episodes]
        for name, episodes in done.results.items()
    }
    return summarise_scenario(dataclasses.replace(done.plan, rounds=rounds), Outcome(results, {}), "dssra")


def test_who_is_over_budget_comes_last_without_a_rank_and_takes_no_other_s() -> None:
    summaries = whole_comparison().summaries
    assert [s.scheduler for s in summaries] == ["filled", "dssra", "slow", "greedy"]
    assert [s.rank.mean for s in summaries[:3]] == [1.0, 2.0, 3.0]
    greedy = summaries[-1]
    assert math.isnan(greedy.rank.mean)
    assert [s.gate.verdict for s in summaries] == [*["passed"] * 3, "failed"]
    assert greedy.backlog_slope.mean == pytest.approx(0.05)
    assert greedy.difference.mean == pytest.approx((1.0 / 2.0 + 1.1 / 2.1) / 2 - 1.0)


def test_shorter_episodes_than_the_scenario_s_are_ordered_but_not_marked() -> None:
    done = whole_comparison(OWN - 1)
    assert [s.scheduler for s in done.summaries] == ["greedy", "filled", "dssra", "slow"]
    text = markdown_report([done], overall([done]))
    assert LINE not in text
    assert "Episodes have 99 rounds, and energy queues are still filling: only from 100 rounds on" in text


def test_no_scenario_is_so_short_that_filling_its_queues_breaks_a_budget() -> None:
    assert [is_whole(*pair) for pair in ((30, 30), (99, 20), (100, 20), (149, 150), (150, 150))] == [
        False, False, True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("width", [60, 90, 250])
def test_tables_have_a_line(tmp_path, width: int) -> None:
    one, two = whole_comparison(), comparison("two", {"dssra": [[1.0]], "greedy": [[2.0]], "slow": [[3.0]]})
    out = io.StringIO()
    run = RunDirectory(tmp_path / "run")
    write_report([one, two], {}, run, whole=False, figures=False, console=Console(file=out, width=width))
    rows = [line for line in (run / "table.md").read_text().splitlines() if line.startswith("|")]
    names = [row.split("|")[1].strip() for row in rows]
    assert names[2:7] == ["FILLED", "DSSRA", "SLOW", f"*{LINE}*", "GREEDY"]
    assert len({row.count("|") for row in rows[:7]}) == 1
    # The last table, over both: in one of them is enough.
    assert names[-5:] == ["FILLED", "DSSRA", "SLOW", f"*{LINE}*", "GREEDY"]
    tables = out.getvalue().partition("table: ")[0]
    assert max(map(len, tables.splitlines())) <= width
    printed = " ".join(out.getvalue().split())
    assert printed.index("SLOW") < printed.index("below the line:") < printed.index("GREEDY")
    found = json.loads((run / "summary.json").read_text())
    (greedy,) = (s for s in found["scenarios"]["one"]["summary"] if s["scheduler"] == "greedy")
    assert greedy["gate"]["verdict"] == "failed"
    assert greedy["gate"]["energy_excess"] == pytest.approx(0.05)
    assert [line["failed"] for line in found["overall"]] == [False] * 3 + [True]
