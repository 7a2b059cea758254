"""``collapipe evaluate`` from end to end, on the smallest system."""

import io
import json
import sys
from pathlib import Path

import pytest
from variants_support import mostly_slow

from collapipe_env import evaluate
from collapipe_env.agents.learned.agent_file import write_agent_file
from collapipe_env.agents.learned.hyperparameters import PPOParameters, usual
from collapipe_env.agents.learned.sb3_models import build_model, saved_model
from collapipe_env.cli.early_end import run_process
from collapipe_env.cli.main import main
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario

SMALL = ["--episodes", "2", "--rounds", "3", "--processes", "1", "--no-figures"]


@pytest.fixture
def scenario(tmp_path: Path) -> list[str]:
    path = tmp_path / "tiny.yaml"
    path.write_text("name: tiny\nbase: small\ndynamics: {rounds: 4}\n")
    return ["--scenario", str(path), "--out", str(tmp_path / "out")]


def run(*arguments: object) -> int:
    return main(
        [
            "evaluate",
            *(str(a) for part in arguments for a in (part if isinstance(part, list) else [part])),
        ]
    )


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


def test_several_saved_agents_share_a_row(scenario, tmp_path: Path) -> None:
    agents = [tmp_path / f"{seed}.safetensors" for seed in range(2)]
    system = load_scenario(scenario[1])
    env = CollaPipeVecEnv(CollaPipeVectorEnv(2, system, "surrogate", autoreset_mode="SameStep"))
    parameters = usual(PPOParameters, hidden_units=(8,))
    for seed, path in enumerate(agents):
        saved = saved_model(build_model(parameters, env, seed), "ppo", parameters, system, {}, [])
        write_agent_file(path, *saved.playing)
    assert run(scenario, SMALL, "--schedulers", "agent", "pipeline", "--agent", *agents) == 0
    out = tmp_path / "out"
    results = json.loads((out / "results.json").read_text())
    assert [(s["scheduler"], s["runs"]) for s in results["summary"]] == [("agent", 2), ("pipeline", 1)]
    played = [(e["run"], e["episode"]) for e in results["episodes"]["agent"]]
    assert played == [(0, 0), (0, 1), (1, 0), (1, 1)]
    found = evaluate("pipeline", system, seeds=2, rounds=3, agent=agents)
    assert found["agent"].runs == 2
    assert [e.delay for e in found.episodes["agent"]] == [e["delay"] for e in results["episodes"]["agent"]]
    one = tmp_path / "one"
    assert run(scenario[:2], SMALL, "--agent", agents[0], "--out", one) == 0
    results = json.loads((one / "results.json").read_text())
    assert [s["scheduler"] for s in results["summary"]] == ["agent", "dssra", "pipeline", "random"]
    assert results["options"]["agent"] == [str(agents[0])]


def test_more_rounds_than_the_scenario_has_play_longer(scenario, tmp_path: Path) -> None:
    options = [*SMALL, "--schedulers", "pipeline", "--episodes", "1"]
    assert run(scenario, options, "--rounds", 6) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (longer,) = results["episodes"]["pipeline"]
    assert len(longer["delay"]) == 6
    assert load_scenario(tmp_path / "out" / "scenario.yaml").dynamics.rounds == 6
    # The same channels as in the scenario's own four rounds, in the same folder.
    assert run(scenario, options, "--rounds", 4) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["episodes"]["pipeline"][0]["delay"] == longer["delay"][:4]


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


@pytest.mark.parametrize("name", mostly_slow(["command", "python"], [1]))
def test_other_rounds_and_learners_leave_finished_episodes_alone(name: str, tmp_path: Path, played) -> None:
    out = tmp_path / "run"

    def play(rounds: int, learner: str) -> None:
        if name == "python":
            evaluate("pipeline", "small", seeds=1, rounds=rounds, learner=learner, out=out)
            return
        options = ["--rounds", rounds, "--learner", learner, "--episodes", 1, "--out", out]
        assert run("--scenario", "small", "--schedulers", "pipeline", SMALL, options) == 0

    asked = [(1, "real"), (1, "surrogate"), (2, "surrogate"), (250, "surrogate")]  # small has 200 rounds
    for rounds, learner in asked:
        play(rounds, learner)
    assert {path.name for path in (out / "evaluation").iterdir()} == {
        "real-1", "surrogate-1", "surrogate-2", "surrogate-250"
    }  # fmt: skip
    played.clear()
    for rounds, learner in asked:
        play(rounds, learner)
    assert played == []
