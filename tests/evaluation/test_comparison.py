"""Paired differences, ranks and interquartile means, against NumPy alone; and the notes below tables."""

import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from comparison_support import comparison
from rich.console import Console

from collapipe_env.evaluation import report
from collapipe_env.evaluation.comparison import notes, overall
from collapipe_env.evaluation.figures import pareto_front
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.report import constant_answer, write_report
from collapipe_env.evaluation.resampling import interquartile_mean, stratified_estimate
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.statistics import ranks, relative_differences
from collapipe_env.scenario import load_scenario

RNG = np.random.default_rng(5)
# What the episodes share is large against what tells the schedulers apart.
SHARED = RNG.uniform(5.0, 50.0, 6)
DELAYS = {
    "dssra": [[s, 1.1 * s, 0.9 * s] for s in SHARED],
    "random": [[1.2 * s * f] * 3 for s, f in zip(SHARED, RNG.uniform(0.95, 1.05, 6), strict=True)],
    "pipeline": [[1.1 * s * f] * 3 for s, f in zip(SHARED, RNG.uniform(0.9, 1.1, 6), strict=True)],
}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 10, 11])
def test_interquartile_mean_is_the_mean_of_the_sorted_middle(count: int) -> None:
    values = RNG.normal(size=count)
    cut = count // 4
    expected = np.mean(sorted(values)[cut : count - cut])
    assert interquartile_mean(values) == pytest.approx(expected, rel=1e-12)
    both = interquartile_mean(np.stack([values, 2.0 * values]), axis=-1)
    assert both == pytest.approx([expected, 2.0 * expected], rel=1e-12)


def test_paired_interval_matches_a_bootstrap_written_out_and_is_far_narrower_than_an_unpaired_one() -> None:
    done = comparison("one", DELAYS)
    (line,) = (s for s in done.summaries if s.scheduler == "random")
    means = {name: np.array([np.mean(rounds) for rounds in episodes]) for name, episodes in DELAYS.items()}
    paired = means["random"] / means["dssra"] - 1.0
    # Paired by the episode's number, not by its place.
    found = relative_differences(done.results["random"], done.results["dssra"][::-1])
    assert found == pytest.approx(paired[None], rel=1e-12)
    draws = np.random.default_rng(1).integers(0, 6, (40_000, 6))
    low, high = np.percentile(paired[draws].mean(axis=1), [2.5, 97.5])
    assert line.difference.mean == pytest.approx(paired.mean(), rel=1e-12)
    assert (line.difference.low, line.difference.high) == pytest.approx((low, high), abs=0.002)
    others = np.random.default_rng(2).integers(0, 6, (40_000, 6))
    unpaired = means["random"][draws].mean(axis=1) / means["dssra"][others].mean(axis=1) - 1.0
    assert high - low < 0.2 * np.ptp(np.percentile(unpaired, [2.5, 97.5]))


def test_ranks_are_counted_within_each_episode_and_ties_share_them() -> None:
    done = comparison("one", {"dssra": [[1.0], [4.0]], "random": [[2.0], [3.0]], "pipeline": [[2.0], [9.0]]})
    assert ranks(done.results) == {"dssra": [1.0, 2.0], "random": [2.5, 1.0], "pipeline": [2.5, 3.0]}
    by_name = {s.scheduler: s.rank.mean for s in done.summaries}
    assert by_name == {"dssra": 1.5, "random": 1.75, "pipeline": 2.75}
    assert [s.scheduler for s in done.summaries] == ["dssra", "random", "pipeline"]  # by priced delay


def test_overall_pools_episodes_and_resamples_each_scenario_by_itself() -> None:
    slow = [[2.0]] * 7 + [[50.0]]
    first = comparison("one", {"dssra": [[1.0]] * 8, "random": slow, "pipeline": [[1.5]] * 8})
    second = comparison("two", {"dssra": [[10.0]] * 8, "random": [[11.0]] * 8})
    lines = {line.scheduler: line for line in overall([first, second])}
    assert lines["dssra"].difference.mean == 0.0
    # +100 % seven times, one outlier and +10 % eight times: the middle half holds four of each, in nearly
    # every resample.
    random = lines["random"]
    assert random.difference.mean == pytest.approx(0.55)
    assert (random.difference.low, random.difference.high) == pytest.approx((0.55, 0.55))
    assert random.rank == pytest.approx((3.0 + 2.0) / 2)
    assert random.scenarios == ("one", "two")
    assert lines["pipeline"].scenarios == ("one",)


def test_overall_leaves_out_scenarios_without_the_reference() -> None:
    first = comparison("one", {"dssra": [[1.0]], "random": [[2.0]]})
    second = comparison("two", {"random": [[11.0]]}, impossible={"dssra": "too large"})
    assert {line.scheduler: line.scenarios for line in overall([first, second])} == {
        "dssra": ("one",),
        "random": ("one",),
    }
    assert overall([second]) == []


def test_strata_of_one_value_add_no_spread() -> None:
    found = stratified_estimate([[1.0, 3.0, 5.0], [100.0]])
    assert found.mean == pytest.approx(109.0 / 4)
    assert found.low == pytest.approx((3 * 1.0 + 100.0) / 4)
    assert found.high == pytest.approx((3 * 5.0 + 100.0) / 4)
    assert math.isnan(stratified_estimate([[1.0], [2.0]]).low)
    assert math.isnan(stratified_estimate([]).mean)


def test_pareto_front_is_what_nobody_beats() -> None:
    points = [tuple(pair) for pair in RNG.integers(0, 12, (40, 2)).astype(float).tolist()]

    def beaten(p: tuple[float, ...]) -> bool:
        return any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)

    front = pareto_front(points)
    assert sorted(front) == [i for i, p in enumerate(points) if not beaten(p)]
    assert [points[i] for i in front] == sorted(points[i] for i in front)
    assert pareto_front([]) == []


def test_tables_mark_those_that_use_the_server_and_say_so(tmp_path) -> None:
    one = comparison("one", DELAYS, server_blocks={"random": 3})
    two = comparison("two", DELAYS, agents=(tmp_path / "best.safetensors",))
    every = {line.scheduler: line for line in overall([one, two])}
    assert [every[name].label for name in ("random", "pipeline")] == ["RANDOM †", "PIPELINE"]
    assert every["random"].title == "RANDOM"
    out = io.StringIO()
    run = RunDirectory(tmp_path / "run")
    write_report([one, two], {}, run, whole=False, figures=False, console=Console(file=out, width=200))
    note = "† also trains encoder blocks on the edge server"
    for text in (" ".join(out.getvalue().split()), (run / "table.md").read_text()):
        first, second, last = re.split(r"two: 6 held-out|All scenarios, against", text)
        assert ["RANDOM †" in part for part in (first, second, last)] == [True, False, True]
        assert [note in part for part in (first, second, last)] == [True, False, True]
    found = json.loads((run / "summary.json").read_text())
    blocks = [line["server_blocks"] for line in found["scenarios"]["one"]["summary"]]
    assert sorted(blocks) == [0, 0, 3]
    for name in ("results.csv", "episodes.csv", "summary.json"):
        assert "†" not in (run / name).read_text()


def test_notes_say_where_the_agent_comes_from(tmp_path) -> None:
    played = {"dssra": [[1.0], [2.0]], "agent": [[2.0], [3.0]]}
    done = comparison("one", played, agents=(tmp_path / "best.safetensors",))
    assert notes([done]) == [f"AGENT: trained agent, from {tmp_path / 'best.safetensors'}"]
    other = comparison("two", played, agents=(tmp_path / "other.safetensors",))
    assert notes([done, other]) == [
        f"AGENT in one: trained agent, from {tmp_path / 'best.safetensors'}",
        f"AGENT in two: trained agent, from {tmp_path / 'other.safetensors'}",
    ]


class Closed(io.StringIO):
    """Where nothing can be written, as in a pipe that its reader has closed."""

    def write(self, text: str) -> int:
        raise OSError(f"cannot write {len(text)} characters")


def test_reports_are_written_even_if_they_cannot_be_printed(tmp_path) -> None:
    done = comparison("one", DELAYS)
    run = RunDirectory(tmp_path / "compared")
    with pytest.raises(OSError, match="cannot write"):
        write_report([done], {}, run, whole=False, figures=False, console=Console(file=Closed(), width=200))
    assert "PIPELINE" in (run / "table.md").read_text()
    assert {path.name for path in run.path.iterdir()} == {
        "table.md", "summary.json", "results.csv", "episodes.csv"
    }  # fmt: skip
    run = RunDirectory(tmp_path / "evaluated")
    with pytest.raises(OSError, match="cannot write"):
        write_report([done], {}, run, whole=True, figures=False, console=Console(file=Closed()))
    assert "PIPELINE" in (run / "table.md").read_text()
    assert set(json.loads((run / "results.json").read_text())["episodes"]) == set(DELAYS)


def plan(learner="real", task="classification", **changes):
    scenario = load_scenario("small").with_task(task).with_overrides(changes)
    return EvaluationPlan(
        scenario=scenario, schedulers=("pipeline",), agents=(), episodes=1, rounds=1, learner=learner,
        folder=Path("unused"),
    )  # fmt: skip


@pytest.mark.parametrize(("part", "share"), [("test", 293 / 475), ("dev", 153 / 245)])
def test_classification_is_held_against_its_most_frequent_class(part, share):
    (line,) = constant_answer(plan(**{"learning.evaluation_split": part}))
    assert f"right in {100 * share:.1f} % of the {part} part" in line


@pytest.mark.parametrize("other", [{"task": "ner"}, {"learning.dataset": "gone.tsv"}], ids=str)
def test_there_is_no_line_where_nothing_is_known_or_left(other):
    assert constant_answer(plan(**other)) == []


def test_there_is_no_line_where_nothing_is_trained_nor_is_the_task_imported(monkeypatch):
    monkeypatch.setattr(report, "get_task", lambda name: pytest.fail(f"{name} is imported"))
    assert constant_answer(plan(learner="surrogate")) == []
