"""A further algorithm is one entry: loading, exporting and playing ask nothing else of it."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import collapipe_env
from collapipe_env.agents.learned.agent_file import AgentFile, AgentRecord, read_agent_file
from collapipe_env.agents.learned.agent_loading import agent_history, load_agent, playing_part
from collapipe_env.agents.learned.algorithms import ALGORITHMS, AgentAlgorithm
from collapipe_env.agents.learned.checkpoint import read_metadata, write_checkpoint
from collapipe_env.cli.main import main
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import action_codec

SYSTEMS = {"name": "systems of any size", "clusters": [2, 64]}
HISTORY = [{"steps": 1, "seconds": 0.5, "mean_delay": 2.0}]


class Level:
    """Every entry of the action at one level, for systems of any size."""

    name = "level"

    def __init__(self, scenario: Scenario, level: float) -> None:
        self._size, self._level = action_codec(scenario).action_size, level

    def reset(self, seed: int | None = None) -> None:
        """Nothing to forget."""

    def act(self, observation, state) -> np.ndarray:  # noqa: ARG002 - part of the interface
        return np.full((len(observation), self._size), self._level, dtype=np.float32)


class Levels:
    """The algorithm of such agents."""

    def playing_part(self, checkpoint: Path) -> AgentFile:
        metadata = read_metadata(checkpoint)
        record = AgentRecord(
            algorithm="level",
            hyperparameters={},
            scenario={},
            systems=metadata["systems"],
            features={},
            decisions={"segments": []},
            steps=1,
            training={},
            history=metadata["history"],
            package_version="0.1.0",
        )
        return AgentFile(record, {"level": np.array([metadata["level"]], dtype=np.float32)})

    def from_checkpoint(self, checkpoint: Path, scenario: Scenario) -> Level:
        return Level(scenario, read_metadata(checkpoint)["level"])

    def without_training(self, agent):
        return agent

    def from_agent_file(self, agent: AgentFile, scenario: Scenario, place: str) -> Level:
        if scenario.clusters > agent.record.systems["clusters"][1]:
            raise CheckpointError(f"{place} is for at most 64 clusters")
        return Level(scenario, float(agent.tensors["level"][0]))


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch) -> Path:
    entry: AgentAlgorithm = Levels()
    monkeypatch.setitem(ALGORITHMS._added, "level", entry)
    path = tmp_path / "level.zip"
    metadata = {"algorithm": "level", "history": HISTORY, "systems": SYSTEMS, "level": 0.25}
    write_checkpoint(path, metadata, {"w": torch.zeros(1)}, {})
    return path


@pytest.mark.parametrize("size", ["small", "medium"])
def test_an_entry_is_enough_to_load_and_to_play(checkpoint: Path, tmp_path: Path, size: str, capsys) -> None:
    out = tmp_path / "level.safetensors"
    assert main(["zoo", "export", str(checkpoint), str(out)]) == 0
    assert "level trained on systems of any size, 1 weights" in capsys.readouterr().out
    assert read_agent_file(out).record == playing_part(checkpoint).record
    entries = action_codec(load_scenario(size)).action_size
    for source in (checkpoint, out):
        assert agent_history(source) == HISTORY
        actions = load_agent(source, size).act(np.zeros((2, 3)), None)  # type: ignore[arg-type]
        assert np.array_equal(actions, np.full((2, entries), 0.25))
    one, other = (
        collapipe_env.evaluate("random", size, seeds=1, rounds=2, agent=source)
        for source in (checkpoint, out)
    )
    assert one.episodes["agent"][0].delay == other.episodes["agent"][0].delay


def test_an_algorithm_that_is_not_known_is_named(checkpoint: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.zip"
    with zipfile.ZipFile(checkpoint) as old, zipfile.ZipFile(odd, "w") as new:
        described = {**json.loads(old.read("metadata.json")), "algorithm": "levl"}
        new.writestr("metadata.json", json.dumps(described))
    for act in (lambda: load_agent(odd, "small"), lambda: playing_part(odd)):
        with pytest.raises(CheckpointError, match=r"odd\.zip: algorithm 'levl' is not known: did you mean"):
            act()
    assert agent_history(odd) == HISTORY
