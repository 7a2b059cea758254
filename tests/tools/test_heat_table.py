"""The page about heat: its example, its table of numbers, and the tool that writes the other one."""

import re
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from collapipe_env.dynamics.heat_spec import PROFILES, HeatSpec, heat_numbers
from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from tables import heat as tool  # noqa: E402

PAGE = (ROOT / "docs/heat.md").read_text()


def test_the_example_is_a_scenario() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    scenario = load_scenario(YAML(typ="safe").load(block))
    assert dict(scenario.dynamics.processes)["heat"] == HeatSpec()
    assert scenario.budgets.device_energy_j == 1e4


def test_the_page_says_the_numbers() -> None:
    table = PAGE.partition("## Numbers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE)
    found = {names: cells.split(" | ") for names, cells in rows}
    for column, profile in enumerate(PROFILES):
        numbers = heat_numbers(HeatSpec(profile=profile))._asdict()  # type: ignore[arg-type]
        seen = set()
        for names, cells in found.items():
            fields = re.findall(r"`(\w+)`", names)
            said = [float(value) for value in cells[column].split(", ")]
            own = numbers[fields[0]] if fields == ["levels"] else [numbers[name] for name in fields]
            assert said == pytest.approx(list(own), abs=0.04 if "sustainable_w" in fields else 0.0)
            seen |= set(fields)
        assert seen == set(numbers)


def test_the_table_of_a_few_rounds(monkeypatch) -> None:
    monkeypatch.setattr(tool, "ROUNDS", 2)
    monkeypatch.setattr(tool, "EPISODES", 1)
    monkeypatch.setattr(tool, "LOADS", dict(list(tool.LOADS.items())[:1]))
    head, _, *rows = tool.table().splitlines()
    assert head == "| governor | as shipped |"
    delays = {re.findall(r"([\d.]+) s", row)[0] for row in rows}
    assert len(rows) == len(delays) + 3 == 4  # nobody is hot after two rounds, whatever the governor
    assert all("0% slowed" in row for row in rows[1:])
    assert "slowed" not in rows[0]
