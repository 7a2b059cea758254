"""The command that solves the miniatures: kept results, tables, and the page that it writes."""

import json
import re
from pathlib import Path

import pytest

from research.miniatures import __main__ as tool
from research.miniatures.cases import failing_miniatures, miniatures
from research.miniatures.results import QUICK, Effort

PAGE = (Path(__file__).parents[2] / "docs/evidence.md").read_text()


@pytest.mark.parametrize("name", ["boards-2-5mhz", pytest.param("phones-8-move", marks=pytest.mark.slow)])
def test_a_short_run_prints_a_row(name, capsys) -> None:
    tool.main(["--quick", "--only", name])
    first, second, third = capsys.readouterr().out.strip().split("\n\n")
    for table in (first, second, third):
        head, _, row = table.splitlines()
        assert head in PAGE or "*Not yet measured" in PAGE
        assert head.count("|") == row.count("|")
    delays = [float(value) for value in re.findall(r"([\d.]+) s\b", first)]
    assert min(delays[1:]) > 1.0
    assert delays[-1] == max(delays)  # random plans are the slowest
    assert f"`{name}`" in third


def test_results_are_kept(monkeypatch, tmp_path) -> None:
    mini, calls = miniatures()[0], []

    def result(mini, effort, names):
        calls.append(names)
        return {
            "digest": tool.scenario_digest(mini.scenario),
            "effort": vars(effort),
            "intervals": mini.intervals,
            "schedulers": dict.fromkeys(names),
        }

    monkeypatch.setattr(tool, "result", result)
    first = tool.kept_result(mini, QUICK, tmp_path)
    assert tool.kept_result(mini, QUICK, tmp_path) == first
    assert json.loads((tmp_path / f"{mini.name}.json").read_text()) == first
    assert calls == [("dssra", "pipeline", "random")]
    tool.kept_result(mini, Effort(), tmp_path)
    assert len(calls) == 2


def test_miniatures_are_named_once_and_the_page_has_them_all() -> None:
    every = (*miniatures(), *failing_miniatures())
    names = [mini.name for mini in every]
    assert len(set(names)) == len(names)
    for tier in tool.TIERS:
        part = PAGE.partition(f"<!-- generated: {tier} -->")[2].partition("<!-- end")[0]
        if "*Not yet measured" in part:
            continue
        rows = re.findall(r"^\| ([^|]*?) \|", part, re.MULTILINE)[1:]
        assert rows == [mini.title for mini in every if mini.tier == tier]
