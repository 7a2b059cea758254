"""Paths as people type them."""

import os
from pathlib import Path

import pytest

from collapipe_env.ground.errors import DataError
from collapipe_env.ground.typed_paths import given_path
from collapipe_env.models.architecture import Architecture
from collapipe_env.tasks import TaskSpec, get_task

TASKS = [("classification", 0, 2), ("language-modelling", 0, 300), ("ner", 0, 9), ("translation", 1, 64)]


def test_home_is_expanded_and_nothing_need_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert given_path("~/absent.tsv") == tmp_path / "absent.tsv"
    assert given_path("some/where") == Path("some/where")


@pytest.mark.parametrize("typed", ["~nobody-has-this-name/d.tsv", "d" * 300])
@pytest.mark.parametrize(("task", "decoder_blocks", "outputs"), TASKS)
def test_no_task_trips_over_a_path(task, decoder_blocks, outputs, typed):
    spec = TaskSpec(Architecture(2, 8, 16, 2, 16, 300, causal=True), outputs, decoder_blocks, typed)
    with pytest.raises(DataError, match=r"cannot be looked up \(.*\); check the path"):
        get_task(task).load(spec)


def test_folders_that_cannot_be_listed(monkeypatch, tmp_path):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"looked up \(Permission denied\); .* permissions"):
        given_path(str(tmp_path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(("task", "decoder_blocks", "outputs"), TASKS)
def test_what_is_there_but_no_file_is_not_called_missing(task, decoder_blocks, outputs, tmp_path):
    os.mkfifo(tmp_path / "pipe.tsv")
    (tmp_path / "device.tsv").symlink_to("/dev/null")
    (tmp_path / "loop.tsv").symlink_to(tmp_path / "loop.tsv")
    for name, reason in (
        ("pipe.tsv", "it is a pipe, a device or a socket"),
        ("device.tsv", "it is a pipe, a device or a socket"),
        ("loop.tsv", "symbolic links"),
        ("absent.tsv", "no such file or folder"),
        ("a\0b.tsv", "null"),
    ):
        spec = TaskSpec(
            Architecture(2, 8, 16, 2, 16, 300, causal=True), outputs, decoder_blocks, str(tmp_path / name)
        )
        with pytest.raises(DataError, match=reason) as refusal:
            get_task(task).load(spec)
        assert ("no such file" in str(refusal.value)) == (name == "absent.tsv")
