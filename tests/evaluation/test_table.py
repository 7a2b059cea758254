"""Content of the table, on wide and narrow terminals and in Markdown, and the forms of its metrics."""

import io
import math

import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from variants_support import mostly_slow

from collapipe_env.evaluation.columns import TASK_FORMS, lower_is_better_note, task_column
from collapipe_env.evaluation.gate import Gate
from collapipe_env.evaluation.report import summary_page
from collapipe_env.evaluation.resampling import Estimate
from collapipe_env.evaluation.statistics import Summary
from collapipe_env.scenario.task_registry import task_names
from collapipe_env.tasks import get_task

SUMMARY = Summary(
    scheduler="dssra",
    title="DSSRA",
    delay_mean=Estimate(10.234, 10.111, 10.378),
    seconds_per_progress=Estimate(math.nan),
    priced_delay=Estimate(10.5, 10.4, 10.6),
    return_per_round=Estimate(-0.875, -0.9, -0.85),
    difference=Estimate(-0.125, -0.25, 0.0),
    improvement=Estimate(0.75, 0.5, 0.875),
    rank=Estimate(1.5, 1.0, 2.0),
    delay_p95=Estimate(11.5),
    time_to_target={"reached": 5, "episodes": 5, "seconds": Estimate(812.4, 800.0, 820.0)},
    energy_excess=Estimate(0.0121, -0.004, 0.031),
    backlog_slope=Estimate(0.0012, -0.0007, 0.0031),
    final_backlog=Estimate(3.25, 3.0, 4.0),
    peak_memory_bytes=Estimate(413e6, 400e6, 420e6),
    final_loss=Estimate(0.51234, 0.5, 0.52),
    metric=Estimate(math.nan),
    metrics={},
    decision_s=Estimate(0.0016, 0.0015, 0.0018),
    gate=Gate(0.0121, 0.0012, "too short"),
    runs=1,
    server_blocks=0,
)
NEVER = {"reached": 3, "episodes": 5, "seconds": Estimate(math.nan)}
LATE = Summary(SUMMARY, title="Random", time_to_target=NEVER)


PARSER = MarkdownIt("commonmark").enable("table")


def printed(width: int) -> str:
    out = io.StringIO()
    summary_page([SUMMARY, LATE], "medium [x]", ["caption"]).print(Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("width", [70, 230])
def test_every_figure_is_printed_whole_at_any_width(width: int) -> None:
    text = printed(width)
    for expected in (
        "10.50", "10.40…10.60", "10.23", "10.11…10.38", "11.50", "812", "3/5 reached", "+1.2", "-0.4…+3.1",
        "413", "0.512", "1.60", "-12.5", "-25.0…+0.0", "1.0…2.0", "-0.875",
        "–", "medium [x]", "caption",
    ):  # fmt: skip
        assert expected in text
    assert max(map(len, text.splitlines())) <= width


def test_schedulers_are_rows_where_there_is_room_and_columns_where_not() -> None:
    assert any("priced delay" in line and "decision" in line for line in printed(230).splitlines())
    assert any("DSSRA" in line and "Random" in line for line in printed(70).splitlines())


def test_markdown_has_one_row_a_scheduler_and_a_column_a_figure() -> None:
    lines = summary_page([SUMMARY, LATE], "medium", ["caption"]).markdown().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert [row.count("|") for row in rows] == [17] * 4
    assert (
        "| DSSRA | 10.50 (10.40…10.60) | -12.5 (-25.0…+0.0) | 75 (50…88) | 1.5 (1.0…2.0) | "
        "10.23 (10.11…10.38) | 11.50 | +1.2 (-0.4…+3.1) | -0.875 (-0.900…-0.850) | 812 (800…820) | "
        "+0.12 (-0.07…+0.31) |"
    ) in rows[2]
    assert "| 3/5 reached |" in rows[3]


def test_each_of_the_tasks_metrics_has_a_column_under_its_name() -> None:
    metrics = {"bleu": Estimate(0.123, 0.1, 0.15), "chrf": Estimate(0.456)}
    translated = Summary(SUMMARY, metrics=metrics)
    lines = summary_page([translated, LATE], "medium", ["caption"]).markdown().splitlines()
    header, rows = lines[2], lines[4:6]
    names = [name.strip() for name in header.split("|")]
    assert names[names.index("BLEU (%)") + 1] == "chrF (%)"
    assert "task metric (%)" not in names
    assert rows[0].split("|")[names.index("BLEU (%)")].strip() == "12.3 (10.0…15.0)"
    assert rows[0].split("|")[names.index("chrF (%)")].strip() == "45.6"
    assert rows[1].split("|")[names.index("BLEU (%)")].strip() == ""
    out = io.StringIO()
    many = [Summary(translated, title=f"Scheduler {i:02}") for i in range(8)]
    summary_page(many, "medium", ["caption"]).print(Console(file=out, width=100))
    assert "BLEU" in out.getvalue()


@pytest.mark.parametrize(
    "odd", ["<script>alert(1)</script>", "a|b", "a\\|b", "[x](y) ![x](y)", "&lt;", "`|`"]
)
def test_markdown_shows_names_as_they_are(odd: str) -> None:
    """In the title, in headings, in cells and below, read by the parser that Rich uses."""
    named = Summary(SUMMARY, title=odd, metrics={odd: Estimate(0.123)})
    page = summary_page([named], f"{odd}\nsmall", [odd]).markdown()
    texts = ["".join(part.content for part in token.children or []) for token in PARSER.parse(page)]
    assert [texts.count(text) for text in (f"{odd} small", odd, f"{odd} (%)")] == [1, 2, 1]
    kinds = {part.type for token in PARSER.parse(page) for part in token.children or []}
    assert kinds <= {"text", "text_special"}
    assert not any(token.type.startswith("html") for token in PARSER.parse(page))


@pytest.mark.parametrize("width", mostly_slow([60, 80, 120], [1, 2]))
def test_many_schedulers_keep_their_rows_and_what_is_left_out_is_said(width: int) -> None:
    out = io.StringIO()
    many = [Summary(SUMMARY, title=f"Scheduler {i:02}") for i in range(18)]
    summary_page(many, "medium", ["caption"]).print(Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert all(sum(f"Scheduler {i:02}" in line for line in lines) == 1 for i in range(18))
    assert all("10.50" in line for line in lines if "Scheduler " in line)
    text = " ".join(out.getvalue().split())
    assert "too narrow for: " in text
    assert text.endswith("caption")


def test_only_perplexity_and_bits_fall():
    names = {name for task in task_names() for name in get_task(task).metrics}
    assert {name for name in names if task_column(name).better == "low"} == {"perplexity", "bits_per_byte"}
    assert set(TASK_FORMS) <= names


def test_shares_are_shown_in_percent():
    column = task_column("token_accuracy")
    assert (column.heading, column.scale, column.better) == ("token accuracy (%)", 100.0, "high")
    assert task_column("perplexity").parts({"metrics.perplexity": 2.5}) == ("2.50", "")


def test_the_note_names_each_once():
    assert lower_is_better_note(["bleu", "mcc"]) == []
    assert lower_is_better_note(["perplexity", "bleu", "bits_per_byte", "perplexity"]) == [
        "Of perplexity and bits per byte, less is better."
    ]
