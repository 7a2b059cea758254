"""The tool that writes tables: which there are, and that pages have all of them."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import make_tables as tool


def test_every_part_is_in_its_page_with_its_command() -> None:
    for name, part in tool.chosen([]):
        page = (tool.DOCS / import_module(f"tables.{name}").PAGE).read_text(encoding="utf-8")
        text = page.partition(f"<!-- generated: {part} -->")[2].partition("<!-- end")[0]
        assert text.count("|") > 10
        assert (
            f"`python tools/make_tables.py {name}` {import_module(f'tables.{name}').PARTS[part][1]}" in text
        )


def test_parts_are_chosen_by_name() -> None:
    assert tool.chosen(["mobility", "decisions/openings"]) == [
        ("mobility", "memory"), ("mobility", "departures"), ("decisions", "openings"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["head", "decisions/opening", ""])
def test_unknown_tables_are_refused(capsys, name: str) -> None:
    with pytest.raises(SystemExit):
        tool.main([name])
    assert f"there is no table {name!r}" in capsys.readouterr().err
