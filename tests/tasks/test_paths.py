"""Paths as people type them."""

import os
from pathlib import Path

import pytest

from collapipe_env.errors import DataError
from collapipe_env.learners.architecture import Architecture
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.paths import given_path


def test_home_is_expanded_and_nothing_need_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert given_path("~/absent.tsv") == tmp_path / "absent.tsv"
    assert given_path("some/where") == Path("some/where")


@pytest.mark.parametrize("typed", ["~nobody-has-this-name/d.tsv", "d" * 300])
@pytest.mark.parametrize(
    ("task", "decoder_blocks", "outputs"),
    [("classification", 0, 2), ("ner", 0, 9), ("translation", 1, 64)],
)
def test_no_task_trips_over_a_path(task, decoder_blocks, outputs, typed):
    spec = TaskSpec(Architecture(2, 8, 16, 2, 16, 64), outputs, decoder_blocks, typed)
    with pytest.raises(DataError, match=r"cannot be looked up \(.*\); check the path"):
        get_task(task).load(spec)


def test_folders_that_cannot_be_listed(monkeypatch, tmp_path):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"looked up \(Permission denied\); .* permissions"):
        given_path(str(tmp_path))
