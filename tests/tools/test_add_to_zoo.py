"""The tool that adds an agent to the zoo: file, card and entry agree, and nothing is left half-written."""

import hashlib
import shutil
from pathlib import Path

import add_to_zoo
import numpy as np
import pytest
from zoo_card import best_of
from zoo_support import COMMAND, SCENARIO, trained_agent, use_zoo

from collapipe_env.agents.learned.agent_file import AgentRecord, read_agent_file, write_agent_file
from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.cli.main import main as collapipe
from collapipe_env.zoo import shipped_agents as zoo


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> TrainingFiles:
    return trained_agent(tmp_path_factory.mktemp("trained"), "ppo")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    return use_zoo(tmp_path / "zoo", monkeypatch)


def add(checkpoint: Path, name: str, *more: str) -> int:
    return add_to_zoo.main([str(checkpoint), name, "--description", "An  example,\nin one line.", *more])


def refusal(capsys, *arguments: object) -> str:
    capsys.readouterr()
    assert add(*arguments) == 2  # type: ignore[arg-type]
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_file_card_and_entry_are_written(folder: Path, trained: TrainingFiles, capsys) -> None:
    assert add(trained.best, "tiny-ppo") == 0
    assert {path.name for path in folder.iterdir()} == {"index.json", "tiny-ppo.safetensors", "tiny-ppo.md"}
    (entry,) = zoo.shipped_agents().values()
    content = (folder / "tiny-ppo.safetensors").read_bytes()
    assert entry.sha256 == hashlib.sha256(content).hexdigest()
    assert entry.sha256 in capsys.readouterr().out
    assert (entry.size, entry.algorithm, entry.trained_on) == (len(content), "ppo", "tiny")
    assert entry.description == "An example, in one line."
    assert entry.command == COMMAND
    best = read_agent_file(trained.best).record.history[-1]
    energy = 100.0 * (best["energy_ratio"] - 1.0)
    assert entry.figures == (
        f"round delay {best['mean_delay']:.2f} s, worst node's energy {energy:+.1f} % against its budget "
        "(2 validation episodes of 4 rounds)"
    )
    card = (folder / "tiny-ppo.md").read_text()
    for text in (entry.description, entry.sha256, entry.figures, COMMAND, "| seed | 0 |", "`tiny`"):
        assert text in card
    assert "| reads | `device_backlog` | (2, 3) |" in card
    assert "| decides | `segments` | (2, 3) |" in card
    assert load_agent("zoo:tiny-ppo", SCENARIO).name == "PPO"
    assert collapipe(["zoo", "show", "tiny-ppo"]) == 0


def test_the_card_has_the_whole_curve(folder: Path, trained: TrainingFiles, tmp_path: Path) -> None:
    whole = read_agent_file(trained.latest).record.history
    # The best version is from the middle of the training, and knows nothing of what came later.
    assert len(read_agent_file(trained.best).record.history) < len(whole)
    middle = tmp_path / "run" / "best.safetensors"
    middle.parent.mkdir()
    objectives = [entry["objective"] for entry in whole]
    shutil.copy(trained.best, middle)
    shutil.copy(trained.latest, middle.with_name("latest.safetensors"))
    assert add(middle, "tiny-ppo") == 0
    record, tensors = read_agent_file(folder / "tiny-ppo.safetensors")
    assert record.history == whole
    assert record.steps == whole[objectives.index(min(objectives))]["steps"]
    assert record.training["seconds"] == read_agent_file(trained.latest).record.training["seconds"]
    weights = read_agent_file(trained.best).tensors
    assert all(np.array_equal(tensors[name], weights[name]) for name in tensors)
    card = (folder / "tiny-ppo.md").read_text()
    rows = [line for line in card.splitlines() if line.startswith(tuple(f"| {e['steps']} | " for e in whole))]
    assert len(rows) == len(whole)
    assert all(f" {entry['mean_delay']:.4g} |" in row for entry, row in zip(whole, rows, strict=True))
    header = next(line for line in card.splitlines() if line.startswith("| steps | seconds |"))
    assert header.count("|") == rows[0].count("|")


def test_latest_of_another_training_is_refused(
    folder: Path, trained: TrainingFiles, tmp_path: Path, capsys
) -> None:
    other = trained_agent(tmp_path / "other", "ppo", seed=5)
    shutil.copy(trained.best, other.best)
    assert "is not of the training that" in refusal(capsys, other.best, "tiny-ppo")
    assert {path.name for path in folder.iterdir()} == {"index.json"}


def test_several_agents_are_listed_by_name_and_each_name_is_taken_once(
    folder: Path, trained: TrainingFiles, capsys
) -> None:
    for name in ("c", "a", "b"):
        assert add(trained.best, name, "--figures", f"figures of {name}", "--command", "make it") == 0
    found = zoo.shipped_agents()
    assert list(found) == ["a", "b", "c"]
    assert [agent.figures for agent in found.values()] == ["figures of a", "figures of b", "figures of c"]
    assert read_agent_file(folder / "a.safetensors").record.training["command"] == "make it"
    assert "has an agent 'a' already" in refusal(capsys, trained.best, "a")
    assert "name 'Tiny/..'" in refusal(capsys, trained.best, "Tiny/..")


@pytest.mark.parametrize("breaking", ["write_bytes", "write_text"])
@pytest.mark.parametrize("name", ["new", "old"])
def test_an_interrupted_run_leaves_no_agent_half_written(
    folder: Path, trained: TrainingFiles, monkeypatch, breaking: str, name: str
) -> None:
    assert add(trained.best, "old") == 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(add_to_zoo, breaking, interrupt)
    assert add(trained.latest, name, "--replace", "--command", "another command") == 130
    # What the index lists is whole; the agent that was to be written is not listed.
    assert list(zoo.shipped_agents()) == (["old"] if name == "new" else [])
    for listed in zoo.shipped_agents():
        load_agent(f"zoo:{listed}", SCENARIO)


def test_what_the_record_lacks_is_asked_for(folder: Path, tmp_path: Path, capsys) -> None:
    record = AgentRecord(
        algorithm="ppo",
        hyperparameters={},
        scenario={},
        systems={"name": "2 to 16 clusters", "clusters": [2, 16]},
        features={"device_backlog": []},
        decisions={"segments": []},
        steps=10,
        training={},
        history=[{"steps": 10, "loss": 1.0}],
        package_version="0.1.0",
    )
    file = tmp_path / "agent.safetensors"
    write_agent_file(file, record, {"w": np.ones(3, dtype=np.float32)})
    assert "does not record what --command is to say" in refusal(capsys, file, "any-size")
    command = ("--command", "collapipe train --algo graph")
    assert "does not record what --figures is to say" in refusal(capsys, file, "any-size", *command)
    assert add(file, "any-size", *command, "--figures", "as good as DSSRA") == 0
    card = (folder / "any-size.md").read_text()
    assert '"clusters": [' in card
    assert "It was trained on 2 to 16 clusters" in card
    assert zoo.shipped_agents()["any-size"].trained_on == "2 to 16 clusters"


def test_the_best_validation_is_the_first_with_the_smallest_objective() -> None:
    history = [{"objective": value, "steps": i} for i, value in enumerate((3.0, 1.0, None, 1.0, 2.0))]
    assert best_of(history) == history[1]
    assert best_of([{"steps": 3}]) is None
