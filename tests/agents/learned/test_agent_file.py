"""Files of agents: what is written is read back, and nothing else is believed."""

import dataclasses
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from damage_support import damaged
from safetensors import safe_open

from collapipe_env.agents.learned import agent_file
from collapipe_env.agents.learned.agent_file import (
    ENTRY,
    LARGEST_HEADER,
    AgentFile,
    AgentRecord,
    read_agent_file,
    require_tensors,
    write_agent_file,
)
from collapipe_env.ground.errors import CheckpointError

RECORD = AgentRecord(
    algorithm="ppo",
    hyperparameters={"hidden_units": [8], "gamma": 0.9},
    scenario={"name": "small"},
    systems={},
    features={"device_backlog": [2, 3], "round": []},
    decisions={"segments": [2, 3]},
    steps=48,
    training={"command": "collapipe train", "seed": 3, "seconds": 1.5},
    history=[{"steps": 16, "mean_delay": 9.0}],
    package_version="0.1.0",
)
TENSORS = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a.scale": np.array(2.5),
    "counts": np.array([1, 2], dtype=np.int64),
    "empty": np.zeros((0, 3), dtype=np.float32),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.safetensors"
    write_agent_file(path, RECORD, TENSORS)
    return path


def record_of(file: Path) -> dict[str, Any]:
    with safe_open(file, "numpy") as opened:
        return json.loads(opened.metadata()[ENTRY])


def refusal(file: Path, content: bytes | None = None) -> str:
    """The one line with which a file, of this content, is refused."""
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_agent_file(file)
    message = str(caught.value)
    assert str(file) in message
    assert len(message) < 2000
    assert "\n" not in message
    return message


def packed(header: Any, data: bytes = b"") -> bytes:
    """A file with a header of one's own."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_content_is_read_back_by_us_and_any_reader_of_the_format(file: Path, tmp_path: Path) -> None:
    record, tensors = read_agent_file(file)
    assert record == RECORD
    assert list(record.features) == ["device_backlog", "round"]
    assert record.trained_on == "small"
    assert tensors.keys() == TENSORS.keys()
    loaded = safetensors.numpy.load_file(file)
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        assert np.array_equal(tensors[name], value)
        assert np.array_equal(loaded[name], value)
    with safe_open(file, "numpy") as opened:
        assert set(opened.metadata()) == {ENTRY}
    # The same content gives the same bytes.
    again = tmp_path / "again.safetensors"
    write_agent_file(again, RECORD, dict(reversed(TENSORS.items())))
    assert again.read_bytes() == file.read_bytes()


def test_what_only_training_needs_is_told_by_its_name() -> None:
    tensors = {"training.value": np.ones(1), "weight": np.ones(2), "trainings": np.ones(3)}
    assert AgentFile(RECORD, tensors).playing.tensors.keys() == {"weight", "trainings"}


def test_damage_of_any_kind_is_refused(file: Path) -> None:
    whole, chance = file.read_bytes(), random.Random(5)
    for _ in range(400):
        content = damaged(whole, chance)
        if content != whole:
            refusal(file, content)
    message = refusal(file, whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "damaged: its content does not have the SHA-256 that it names" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "else"}, "is not an agent"),
        ({"format_version": 2}, "has format version 2; this collapipe-env reads 1"),
        ({"sha256": "0"}, "is damaged"),
    ],
)
def test_other_formats_are_named(file: Path, change: dict, message: str) -> None:
    text = json.dumps({**record_of(file), **change})
    assert message in refusal(file, safetensors.numpy.save(TENSORS, {ENTRY: text}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": "48"}, "record.steps is '48': it should be a valid integer"),
        ({"steps": True}, "record.steps is True"),
        ({"features": {"round": 3}}, "record.features.round is 3: it should be a valid list"),
        ({"features": {"round": [-1]}}, "record.features.round[0] is -1: it should be greater than or equal"),
        ({"features": {"round": [1] * 9}}, "at most 8 items"),
        ({"decisions": [1]}, "record.decisions is [1]"),
        ({"history": [1]}, "record.history[0] is 1"),
        ({"hyperparameters": None}, "record.hyperparameters is None"),
        ({"systems": {"name": "any"}}, "names a scenario and a range of systems"),
        ({"scenario": {}}, "names a scenario and a range of systems"),
    ],
)
def test_records_of_the_wrong_form_are_named(file: Path, change: dict, message: str, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(AgentRecord, "__post_init__", lambda _: None)
        write_agent_file(file, dataclasses.replace(RECORD, **change), TENSORS)
    assert message in refusal(file)
    assert "this is not a saved agent" in refusal(file)


def test_an_agent_for_several_systems_needs_no_scenario(file: Path) -> None:
    systems = {"name": "2 to 16 clusters", "clusters": [2, 16]}
    write_agent_file(file, dataclasses.replace(RECORD, scenario={}, systems=systems), TENSORS)
    assert read_agent_file(file).record.trained_on == "2 to 16 clusters"


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_neither_written_nor_read(tmp_path: Path, monkeypatch, odd) -> None:
    file, weights = tmp_path / "agent.safetensors", {"w": np.array([1.0, odd])}
    with pytest.raises(CheckpointError, match="weights w are not finite"):
        write_agent_file(file, RECORD, weights)
    assert not file.exists()
    with monkeypatch.context() as patch:
        patch.setattr(agent_file, "_require_finite", lambda *_: None)
        write_agent_file(file, RECORD, weights)
    assert "weights w are not finite" in refusal(file)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("w", None, r"w is float32 of shape \(2, 3\) there, none in the file"),
        ("w", np.zeros((3, 2), np.float32), r"w is .* \(2, 3\) there, float32 of shape \(3, 2\)"),
        ("w", np.zeros((2, 3)), r"w is float32 of shape \(2, 3\) there, float64 of shape"),
        ("more", np.zeros(1, np.float32), r"more is none there, float32 of shape \(1,\)"),
    ],
)
def test_the_first_tensor_of_another_net_is_named(name: str, value, said: str) -> None:
    held = {"w": np.zeros((2, 3), np.float32)}
    require_tensors(held, {"w": (2, 3)}, "place")
    found = {key: array for key, array in {**held, name: value}.items() if array is not None}
    with pytest.raises(CheckpointError, match=f"^place: its hyper-parameters need other weights: {said}"):
        require_tensors(found, {"w": (2, 3)}, "place")


FOREIGN = "is not an agent that collapipe train or collapipe zoo export wrote"


def test_files_of_other_programs_and_none(tmp_path: Path) -> None:
    file = tmp_path / "odd.safetensors"
    for content in (
        b"",
        b"hello, this is a text",
        safetensors.numpy.save(TENSORS),
    ):
        assert FOREIGN in refusal(file, content)
    file.unlink()
    assert "does not exist" in refusal(file)
    file.mkdir()
    assert "cannot read" in refusal(file)


def test_headers_that_cannot_be_trusted_are_refused(file: Path) -> None:
    whole = file.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    assert FOREIGN in refusal(file, packed(whole[8:end].ljust(LARGEST_HEADER + 1), whole[end:]))
    file.write_bytes(whole)
    told = {"__metadata__": {ENTRY: json.dumps(record_of(file))}}
    for text, reason in (
        (b'{"a": ' * 500 + b"1" + b"}" * 500, "nested deeper than 64 levels"),
        (b'{"a": ' + b"9" * 2000 + b"}", "an integer of"),
        (b'{"a": ', "header is damaged"),
    ):
        for header in (text, {"__metadata__": {ENTRY: text.decode()}}):
            assert reason in refusal(file, packed(header))
    for header in ({"__metadata__": {ENTRY: 3}}, {"__metadata__": 3}):
        assert "header is damaged" in refusal(file, packed(header))
    for entry in (
        3,
        {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2]},
    ):
        assert "is damaged" in refusal(file, packed({**told, "w": entry}, bytes(8)))
