"""``collapipe evaluate`` from end to end, on the smallest system."""

import io
import json
import sys
from pathlib import Path

import pytest
from zoo_support import saved_agent

from collapipe_env import evaluate
from collapipe_env.cli.early_end import run_process
from collapipe_env.cli.main import main
from collapipe_env.scenario import load_scenario

SMALL = ["--episodes", "2", "--rounds", "3", "--processes", "1", "--no-figures"]


@pytest.fixture
def scenario(tmp_path: Path) -> list[str]:
    path = tmp_path / "tiny.yaml"
    path.write_text("name: tiny\nbase: small\ndynamics: {rounds: 4}\n")
    return ["--scenario", str(path), "--out", str(tmp_path / "out")]


def run(*arguments: object) -> int:
    words = (a for part in arguments for a in (part if isinstance(part, list) else [part]))
    return main(["evaluate", *map(str, words)])


def test_table_and_numbers_without_any_training(scenario, tmp_path: Path, capsys) -> None:
    assert run(scenario, SMALL) == 0
    out = tmp_path / "out"
    assert capsys.readouterr().out.strip().splitlines()[-1] == f"everything is in {out}/"
    results = json.loads((out / "results.json").read_text())
    assert [s["scheduler"] for s in results["summary"]] == ["dssra", "pipeline", "random"]
    assert results["reference"] == "dssra"
    assert results["command"].startswith("collapipe evaluate --scenario ")
    assert not (out / "checkpoints").exists()
    one, other = (results["episodes"][name] for name in ("pipeline", "dssra"))
    expected = sum(sum(a["reward"]) / sum(b["reward"]) - 1.0 for a, b in zip(one, other, strict=True)) / 2
    assert results["summary"][1]["difference"]["mean"] == pytest.approx(expected)


def test_several_agents_are_the_runs_of_one_row_beside_the_usual_schedulers(scenario, tmp_path: Path) -> None:
    system = load_scenario(scenario[1])
    agents = [saved_agent(system, tmp_path / f"{seed}.safetensors", seed) for seed in range(2)]
    assert run(scenario, SMALL, "--rounds", 1, "--agent", *agents) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    rows = {s["scheduler"]: s["runs"] for s in results["summary"]}
    assert rows == {"agent": 2, "dssra": 1, "pipeline": 1, "random": 1}
    assert results["options"]["agent"] == list(map(str, agents))
    played = [(e["run"], e["episode"]) for e in results["episodes"]["agent"]]
    assert played == [(0, 0), (0, 1), (1, 0), (1, 1)]
    found = evaluate("agent", system, seeds=1, rounds=1, agent=agents)
    assert found["agent"].runs == 2
    assert [e.delay for e in found.episodes["agent"]] == [
        e["delay"] for e in results["episodes"]["agent"] if e["episode"] == 0
    ]


def test_a_terminal_of_few_characters_still_gets_the_table(scenario, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(path.read_text().replace("name: tiny", "name: tiny-\u2014"))
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii"))
    assert run_process(lambda: run(scenario, SMALL, "--schedulers", "pipeline", "random")) == 0
    text = shown.getvalue().decode("ascii")
    assert "tiny-?: 2 held-out episodes of 3 rounds" in text
    assert "PipeLine" in text
    assert text.rstrip().endswith(f"everything is in {tmp_path / 'out'}/")
    assert "tiny-\u2014" in (tmp_path / "out" / "table.md").read_text()
