"""The page about the server: its example, its table of terms, and the tool that writes the other one."""

import re
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.server_section import TERMS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from tables import server as tool  # noqa: E402

PAGE = (ROOT / "docs/server.md").read_text()


def test_the_example_is_a_scenario() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    scenario = load_scenario(YAML(typ="safe").load(block))
    assert (scenario.server.terms, scenario.server.energy_budget_j) == ("metered", 30.0)


@pytest.mark.parametrize("name", TERMS)
def test_the_page_says_the_terms(name) -> None:
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", PAGE, re.MULTILINE)
    tenants, speed, memory, budget = row.split(" | ")
    values = TERMS[name]
    assert values.tenants == 0.0
    assert tenants == ("come and go: .2, .6 or .9 of it" if values.chain else "none")
    assert speed == ("`cluster.server_flops`" if values.flops is None else f"{values.flops / 1e12:g} TFLOP/s")
    assert memory == ("no limit" if values.memory_bytes is None else f"{values.memory_bytes / 1e9:g} GB")
    j = values.energy_budget_j
    assert budget == ("none" if j is None else f"{j:g} J a round")


def test_the_table_of_a_few_rounds(monkeypatch) -> None:
    monkeypatch.setattr(tool, "ROUNDS", 2)
    monkeypatch.setattr(tool, "NAMES", ("pipar",))
    head, _, *rows = tool.table().splitlines()
    assert head == "| terms | PiPar |"
    assert len(rows) == len(tool.TERMS)
    for row, terms in zip(rows, tool.TERMS, strict=True):
        # 11 blocks for 4 clusters of 64 samples, three passes of 104.9 MFLOP each at 49 pJ/FLOP.
        assert f"{11 * 4 * 64 * 3 * 104.8576e6 * 49e-12:.1f} J" in row
        assert ("no budget" in row) == (terms == "free")
        assert ("**217% of budget**" in row) == (terms != "free")
    for line in re.findall(r"^\| [a-z, ]+ \| .* J in all \|$", PAGE, re.MULTILINE):
        assert line.split(" | ")[0].removeprefix("| ") in tool.TERMS
