"""The tool that writes the tables of the open space."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from tables import decisions as tool  # noqa: E402


def test_tables_of_a_few_rounds(monkeypatch) -> None:
    monkeypatch.setattr(tool, "ROUNDS", 3)
    monkeypatch.setattr(tool, "BASES", ("small",))
    monkeypatch.setattr(tool, "SPLIT", ("pipar",))
    head, _, *rows = tool.openings_table().splitlines()
    assert head == "| open | `small` |"
    assert len(rows) == len(tool.OPENINGS)
    head, _, *rows = tool.devices_table(("best_single_device",), "small").splitlines()
    assert head == "| system | delay (s) | device energy | CU energy |"
    assert rows.index("| *over a budget* |  |  |  |") < [
        row.startswith("| Best device") for row in rows
    ].index(True)
    head, _, *rows = tool.server_table("metered", "small").splitlines()
    assert head.endswith("| server energy |")
    assert sum("DSSRA" in row for row in rows) == 3
    assert any(row.startswith("| PiPar") for row in rows)


def test_a_line_divides_those_that_keep_to_budgets_from_those_that_do_not() -> None:
    nan = float("nan")
    table = tool.ranked(
        {
            "fast": tool.Figures(1.0, 2.0, 1.0, nan, 1.0),
            "slow": tool.Figures(3.0, 1.0, 1.04, nan, 1.0),
            "middle": tool.Figures(2.0, 0.5, 0.5, nan, 1.0),
        }
    )
    names = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    assert names == ["middle", "slow", "*over a budget*", "fast"]
    assert not tool.Figures(1.0, 0.5, 0.5, 1.2, 1.0).within
