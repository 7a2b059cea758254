"""The page about the views: its snippets run as they stand there, its table is right."""

import importlib.util
import re
from pathlib import Path

import pytest

from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay

PAGE = Path(__file__).parents[3] / "docs" / "views.md"
TEXT = PAGE.read_text(encoding="utf-8")


def snippet(heading: str) -> str:
    """The Python code under a heading."""
    (body,) = re.findall(rf"^##+ {heading}[^\n]*\n(.*?)(?=^## |^### |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    (code,) = re.findall(r"^```python\n(.*?)^```", body, re.DOTALL | re.MULTILINE)
    return code


def test_one_agent_a_cluster(capsys):
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")
    names: dict = {}
    exec(snippet("One agent per cluster"), names)
    assert names["truncations"] == {"cluster_0": True, "cluster_1": True}
    assert "uplink_gain" in capsys.readouterr().out
    assert names["env"].state_space.contains(names["whole"])


def test_three_objectives(capsys):
    pytest.importorskip("mo_gymnasium", reason="MO-Gymnasium is not installed")
    names: dict = {}
    exec(snippet("Three objectives"), names)
    weighted, vector = names["weighted"], names["vector"]
    weighted.reset(seed=0)
    *_, info = weighted.step(weighted.action_space.sample())
    assert info["vector_reward"].shape == (3,)
    vector.reset(seed=0)
    assert vector.step(vector.action_space.sample())[1].shape == (64, 3)
    assert "Box" in capsys.readouterr().out


def test_the_cost_apart():
    names: dict = {}
    exec(snippet("A separate cost"), names)
    assert names["cost"] == names["info"]["cost"]
    assert names["costs"].shape == (8,)


# OmniSafe and what it imports warn of much that is not ours to mend.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(importlib.util.find_spec("omnisafe") is None, reason="OmniSafe is not installed")
def test_omnisafe(monkeypatch, tmp_path, capsys):
    code = snippet("OmniSafe").replace("20_000", "200").replace("2_000", "100")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert list(tmp_path.rglob("progress.csv"))


def test_the_front_names_both_scenarios_and_their_reference_delays():
    table = TEXT.partition("<!-- generated: front -->")[2].partition("<!-- end of generated")[0]
    for name in ("small", "medium"):
        assert f"`{name}`:" in table
        assert f"{reference_delay(load_scenario(name)):.2f} s on `{name}`" in " ".join(TEXT.split())
    assert table.count("| DSSRA, ") == 18
