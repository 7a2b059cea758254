"""Submissions to the leaderboard: what is read, and every kind that is refused."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from collapipe_env.evaluation.leaderboard import submission
from collapipe_env.evaluation.leaderboard.season import CELLS
from collapipe_env.evaluation.leaderboard.submission import read_submission
from collapipe_env.ground.errors import DataError

FIELDS = {
    "name": "Half power",
    "authors": ["A. Author"],
    "track": "model-based",
    "cells": ["large-wild", "small"],
    "licence": "MIT",
}
EXPLODES = "raise SystemExit('nothing of a submission runs when it is read')\n"


def submitted(folder: Path, leave_out: str = "", code: str = EXPLODES, **fields) -> Path:
    """A submission's folder with some fields changed."""
    folder.mkdir(exist_ok=True)
    if code:
        (folder / "scheduler.py").write_text(code)
    data = {key: value for key, value in {**FIELDS, **fields}.items() if key != leave_out}
    (folder / "submission.json").write_text(json.dumps(data))
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "mine"


def test_code_is_not_run_when_it_is_read(folder) -> None:
    player = read_submission(submitted(folder, track="observation-only"))
    assert (player.name, player.scheduler) == ("Half power", f"{folder}/scheduler.py:make")
    assert player.blind
    assert player.runs_code
    assert player.cells == (CELLS["small"], CELLS["large-wild"])
    digests = {player.digest}
    for text in ("a", "b"):  # of one length
        (folder / "helper.py").write_text(text)
        digests.add(read_submission(folder).digest)
    assert len(digests) == 3


def test_weights_are_training_runs(folder) -> None:
    names = ["a.safetensors", "b.safetensors"]
    submitted(folder, code="", weights=names)
    for name in names:
        safetensors.numpy.save_file({"w": np.ones(3)}, folder / name)
    read = read_submission(folder)
    assert read.scheduler == "agent"
    assert not read.runs_code
    assert [file.name for file in read.agents] == names


@pytest.mark.parametrize(
    "name", ["DSSRA+", "dssra +", "Pipe Line", "DSSRA-Plus", "GRAPH", "zoo:graph", "agent", "Even split"]
)
def test_no_submission_is_named_as_a_scheduler_of_the_package(folder, name) -> None:
    with pytest.raises(DataError, match="a scheduler of the package has this name: choose another"):
        read_submission(submitted(folder, name=name))


@pytest.mark.parametrize("name", ["ｄｓｓｒａ", "DSSR\u0410+", "DSSR\u00c1+", "Mine (sees the truth)"])
def test_names_do_not_look_like_others(folder, name) -> None:
    with pytest.raises(DataError, match="use plain letters, which look like no others"):
        read_submission(submitted(folder, name=name))


def test_code_outside_the_digest_is_refused(folder) -> None:
    submitted(folder)
    (folder / ".git").mkdir()
    (folder / ".git" / "hidden.py").write_text("")
    with pytest.raises(DataError, match=r"'\.git': a submission holds"):
        read_submission(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"leave_out": "licence"}, "lacks the field 'licence'"),
        ({"track": "both"}, "track is 'both'"),
        ({"cells": []}, r"cells is \[\]"),
        ({"cells": ["small-target"]}, r"cells\[0\] is 'small-target'"),
        ({"authors": "me"}, "authors is 'me'"),
        ({"name": "two\nlines"}, "use one line"),
        ({"name": "x" * 61}, "name is 'xxx"),
        ({"agent": "x"}, "agent is 'x'"),
        ({"code": ""}, r"either scheduler.py with make\(scenario\), or weights"),
        ({"weights": ["w.safetensors"]}, "either scheduler.py"),
        ({"code": "", "weights": ["missing.safetensors"]}, "'missing.safetensors': name each agent once"),
        ({"code": "", "weights": ["../mine/w.safetensors"]}, "name each agent once"),
        ({"code": "", "weights": ["plain.txt"]}, "collapipe zoo export"),
        ({"code": "", "weights": ["w.safetensors"] * 2}, "name each agent once"),
    ],
)
def test_bad_fields_are_named(folder, fields, message) -> None:
    folder.mkdir()
    safetensors.numpy.save_file({"w": np.ones(3)}, folder / "w.safetensors")
    (folder / "plain.txt").write_text("")
    with pytest.raises(DataError, match=message) as error:
        read_submission(submitted(folder, **fields))
    assert "\n" not in str(error.value)


class Boom:
    """Would run code where it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was read",))


def test_pickles_compiled_files_links_and_large_folders_are_refused(folder, monkeypatch) -> None:
    submitted(folder)
    for name in ("w.pkl", "w.pt", "w.npz", "w.zip", "w.bin", "helper.pyc", "helper.so", "part.yaml"):
        (folder / name).write_bytes(pickle.dumps(Boom()))
        with pytest.raises(DataError, match=f"{name}: a submission holds regular files"):
            read_submission(folder)
        (folder / name).unlink()
    (folder / "w.safetensors").write_bytes(pickle.dumps(Boom()))
    with pytest.raises(DataError, match=r"w.safetensors: no plain weights .*without pickle"):
        read_submission(folder)
    (folder / "w.safetensors").unlink()
    (folder / "part" / "__pycache__").mkdir(parents=True)
    with pytest.raises(DataError, match="no links, no compiled files"):
        read_submission(folder)
    (folder / "part" / "__pycache__").rmdir()
    (folder / "link.txt").symlink_to(folder.parent)
    with pytest.raises(DataError, match="no links, no compiled files"):
        read_submission(folder)
    (folder / "link.txt").unlink()
    read_submission(folder)
    monkeypatch.setattr(submission, "FOLDER_BYTES", 100)
    with pytest.raises(DataError, match="make it smaller"):
        read_submission(folder)


@pytest.mark.parametrize("name", [b"\xff.txt", b"a\nb.txt", b"a\x1b[2J.txt"])
def test_names_that_no_message_can_show_are_refused(folder, name) -> None:
    submitted(folder)
    try:
        with open(os.path.join(os.fsencode(folder), name), "wb"):
            pass
    except OSError:
        pytest.skip("this file system takes no such names")
    with pytest.raises(DataError, match="names in plain text") as error:
        read_submission(folder)
    assert str(error.value).isprintable()


def test_a_submission_is_a_folder(folder) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        read_submission(folder)
    folder.mkdir()
    with pytest.raises(DataError, match=r"a submission is a folder with submission.json"):
        read_submission(folder)
