"""The page about channel knowledge: its examples, its fields, and the tool that writes its tables."""

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from collapipe_env.dynamics.channel_knowledge import ChannelKnowledgeSpec
from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from tables import channel as tool  # noqa: E402

PAGE = (ROOT / "docs/channel_knowledge.md").read_text()


def test_the_example_is_a_scenario_with_the_defaults() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    scenario = load_scenario(YAML(typ="safe").load(block))
    assert dict(scenario.dynamics.processes)["channel_knowledge"] == ChannelKnowledgeSpec()


def test_the_code_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "page", "exec"), names)
    assert names["env"].last_round is not None  # type: ignore[attr-defined]


def test_the_table_of_fields_says_all_of_them_with_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S.*?) \|", PAGE, re.MULTILINE))
    spec = ChannelKnowledgeSpec()
    for field in fields(spec):
        value = getattr(spec, field.name)
        said = rows[field.name].strip("`").removesuffix(" dB")
        expected = f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value).removesuffix(".0")
        assert said == expected


def few(monkeypatch) -> None:
    monkeypatch.setattr(tool, "ROUNDS", 3)
    monkeypatch.setattr(tool, "EPISODES", 2)
    monkeypatch.setattr(tool, "KNOWN", {name: tool.KNOWN[name] for name in ("the truth", "noisy, 6 dB")})
    monkeypatch.setattr(tool, "NOISES_DB", (1.0,))
    monkeypatch.setattr(tool, "FILTERED_DB", (0.0, 6.0))


def test_the_tables_of_a_few_rounds(monkeypatch) -> None:
    few(monkeypatch)
    truth, noisy, even = tool.knowledge_table().splitlines()[2:]
    delays = [float(re.findall(r"([\d.]+) s", row)[0]) for row in (truth, noisy, even)]
    assert delays[0] < delays[1] < delays[2]
    assert "(+0.0 %)" in truth
    without, with_noise = (re.findall(r"([\d.]+) dB", row) for row in tool.filter_table().splitlines()[2:])
    assert without == ["0", "0.00", "0.00", "0.00", "0.00"]
    assert float(with_noise[1]) == pytest.approx(6.0, abs=0.5)
    assert float(with_noise[2]) < float(with_noise[1])


def test_the_page_has_its_tables() -> None:
    for name in ("knowledge", "filter"):
        table = PAGE.partition(f"<!-- generated: {name} -->")[2].partition("<!-- end")[0]
        assert table.count("|") > 20
        assert "make_tables.py channel" in table
