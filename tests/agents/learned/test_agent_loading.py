"""A further algorithm is one entry: loading, exporting and playing ask nothing else of it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import collapipe_env
from collapipe_env.agents.learned.agent_file import (
    AgentFile,
    AgentRecord,
    read_agent_file,
    write_agent_file,
)
from collapipe_env.agents.learned.agent_loading import ALGORITHMS, load_agent
from collapipe_env.cli.main import main
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import action_codec

RECORD = AgentRecord(
    algorithm="level",
    hyperparameters={},
    scenario={},
    systems={"name": "systems of any size", "clusters": [2, 64]},
    features={},
    decisions={"segments": []},
    steps=1,
    training={},
    history=[{"steps": 1, "seconds": 0.5, "mean_delay": 2.0}],
    package_version="0.1.0",
)
TENSORS = {"level": np.array([0.25], dtype=np.float32), "training.moment": np.zeros(3, dtype=np.float32)}


class Level:
    """Every entry of the action at one level, for systems of any size."""

    name = "level"

    def __init__(self, agent: AgentFile, scenario: Scenario, place: str) -> None:
        if scenario.clusters > agent.record.systems["clusters"][1]:
            raise CheckpointError(f"{place} is for at most 64 clusters")
        self._size, self._level = action_codec(scenario).action_size, float(agent.tensors["level"][0])

    def reset(self, seed: int | None = None) -> None:
        """Nothing to forget."""

    def act(self, observation, state) -> np.ndarray:  # noqa: ARG002 - part of the interface
        return np.full((len(observation), self._size), self._level, dtype=np.float32)


@pytest.fixture
def file(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setitem(ALGORITHMS._added, "level", Level)
    path = tmp_path / "latest.safetensors"
    write_agent_file(path, RECORD, TENSORS)
    return path


@pytest.mark.parametrize("size", ["small", "medium"])
def test_an_entry_is_enough_to_load_and_to_play(file: Path, tmp_path: Path, size: str, capsys) -> None:
    out = tmp_path / "level.safetensors"
    assert main(["zoo", "export", str(file), str(out)]) == 0
    assert "level trained on systems of any size, 1 weights" in capsys.readouterr().out
    assert read_agent_file(out).tensors.keys() == {"level"}
    assert read_agent_file(out).record == RECORD
    entries = action_codec(load_scenario(size)).action_size
    for source in (file, out):
        actions = load_agent(source, size).act(np.zeros((2, 3)), None)  # type: ignore[arg-type]
        assert np.array_equal(actions, np.full((2, entries), 0.25))
    one, other = (
        collapipe_env.evaluate("random", size, seeds=1, rounds=2, agent=source) for source in (file, out)
    )
    assert one.episodes["agent"][0].delay == other.episodes["agent"][0].delay


def test_an_algorithm_that_is_not_known_is_named(file: Path) -> None:
    write_agent_file(file, dataclasses.replace(RECORD, algorithm="levl"), TENSORS)
    with pytest.raises(CheckpointError, match=r"latest\.safetensors: algorithm 'levl' is not known: did you"):
        load_agent(file, "small")
