"""What holds for every file that a run reads again: what is no such file is one line, and nothing else."""

import json
import os
from pathlib import Path

import pytest
from readers_support import HOSTILE, READERS

from collapipe_env.ground.errors import CollaPipeError

LARGE = ("zip bomb", "zip bomb in JSON", "zip of many")
"""Take seconds to make; every reader gets them in ``tests/hardening/test_hostile_files.py``."""


def refused(folder: Path, reader: str, content: bytes) -> str:
    """The error of a reader."""
    path, (read, remedy) = folder / reader, READERS[reader]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(CollaPipeError) as raised:
        read(path)
    told = str(raised.value)
    assert told.isprintable()
    assert len(told) < 1000 + 2 * len(str(path))
    assert remedy in told
    assert [file for file in folder.rglob("*") if file.is_file()] == [path]
    return told


@pytest.mark.parametrize("reader", READERS)
def test_a_file_made_to_harm_is_one_line_and_does_nothing(reader: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, build in HOSTILE.items():
        if name not in LARGE:
            assert Path(reader).name in refused(tmp_path, reader, build()), name


FOREIGN = [{}, {"kind": "thesis"}, {"kind": 3, "format": 3, "sessions": 3, "scenarios": 3, "report": 3}]
"""Objects of other programs, and of other versions."""
ODD = {
    "run.json": [{"scenario": 3, "algo": "ppo"}, {"mine": 1}],
    "versions.json": [{"sessions": [3]}],
    "summary.json": [{"scenarios": {"x": {}}}, {"scenarios": {"x": {"summary": [3]}}}],
    "results.json": [{"scenario": {"base": "small"}, "summary": [3]}, {"options": 3}],
    "played/round-1.json": [{"digest": "0" * 64, "report": {}}],
    "submission.json": [{"name": "Mine"}],
    "index.json": [
        {"format": "collapipe-env zoo", "format_version": 2, "agents": []},
        {"format": "collapipe-env zoo", "format_version": 1, "agents": [{"name": "../x"}]},
    ],
}


@pytest.mark.parametrize("reader", [name for name in READERS if name.endswith(".json")])
def test_an_object_of_something_else_is_one_line(reader: str, tmp_path: Path) -> None:
    for content in FOREIGN + ODD.get(reader, []):
        refused(tmp_path, reader, json.dumps(content).encode())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(reader: str, tmp_path: Path) -> None:
    path, (read, _) = tmp_path / reader, READERS[reader]
    for make in (os.mkfifo, os.mkdir):
        path.parent.mkdir(exist_ok=True)
        make(path)
        with pytest.raises(CollaPipeError) as raised:
            read(path)
        assert str(raised.value).isprintable()
        path.unlink() if make is os.mkfifo else path.rmdir()
