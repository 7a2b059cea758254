"""Submissions to the leaderboard: what is read, and every kind that is refused."""

import os
import pickle
from importlib.machinery import all_suffixes
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from ruamel.yaml import YAML

from collapipe_env.evaluation.leaderboard import submission
from collapipe_env.evaluation.leaderboard.season import Cell
from collapipe_env.evaluation.leaderboard.submission import read_submission, require_trust
from collapipe_env.ground.errors import CollaPipeError, DataError, SchedulerError

FIELDS = {
    "name": "Half power",
    "authors": ["A. Author"],
    "track": "model-based",
    "zero_shot": True,
    "tiers": ["wild", "static"],
    "sizes": ["medium", "small"],
    "training_transitions": 0,
    "cpu_hours": 0.5,
    "licence": "MIT",
    "commit": "0123abc",
}
EXPLODES = "raise SystemExit('nothing of a submission runs when it is read')\n"


def submitted(folder: Path, leave_out: str = "", **fields) -> Path:
    """A submission's folder with some fields changed."""
    data = {key: value for key, value in {**FIELDS, **fields}.items() if key != leave_out}
    folder.mkdir(exist_ok=True)
    with (folder / "submission.yaml").open("w") as file:
        YAML(typ="safe").dump(data, file)
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "mine"


def test_a_scheduler_that_is_named(folder) -> None:
    player = read_submission(submitted(folder, scheduler="graph"))
    assert (player.name, player.scheduler, player.blind) == ("Half power", "zoo:graph", False)
    assert player.cells == tuple(Cell(t, s) for s in ("small", "medium") for t in ("static", "wild"))
    require_trust(player, False, folder)


def test_code_is_not_run_when_it_is_read_and_asks_for_trust(folder) -> None:
    (submitted(folder, track="observation-only") / "scheduler.py").write_text(EXPLODES)
    player = read_submission(folder)
    assert player.scheduler == f"{folder}/scheduler.py:make"
    assert player.blind
    with pytest.raises(SchedulerError, match="--trust-code"):
        require_trust(player, False, folder)
    require_trust(player, True, folder)


def test_weights_are_training_runs_of_each_size(folder) -> None:
    submitted(folder)
    for name in ("a", "b", "c"):
        safetensors.numpy.save_file({"w": np.ones(3)}, folder / f"{name}.safetensors")
    read = read_submission(submitted(folder, weights=["a.safetensors", "b.safetensors"]))
    assert read.scheduler == "agent"
    assert [file.name for file in read.agents_of(Cell("wild", "small"))] == ["a.safetensors", "b.safetensors"]
    by_size = {"small": "a.safetensors", "medium": ["c.safetensors"]}
    with pytest.raises(DataError, match="zero_shot = True: the sizes have different weights"):
        read_submission(submitted(folder, weights=by_size))
    read = read_submission(submitted(folder, weights=by_size, zero_shot=False))
    assert [file.name for file in read.agents_of(Cell("wild", "medium"))] == ["c.safetensors"]


def test_all_missing_fields_are_named_at_once(tmp_path):
    (tmp_path / "submission.yaml").write_text("scheduler: dssra\n")
    with pytest.raises(DataError, match=f"submission.yaml: {', '.join(FIELDS)} are missing: add them"):
        read_submission(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"track": "both"}, "track = 'both'"),
        ({"zero_shot": "yes"}, "zero_shot = 'yes'"),
        ({"tiers": []}, r"tiers = \[\]"),
        ({"tiers": ["wild", "wild"]}, "name each once"),
        ({"sizes": ["xlarge"]}, "sizes.0 = 'xlarge'"),
        ({"authors": "me"}, "authors = 'me'"),
        ({"training_transitions": -1}, "training_transitions = -1"),
        ({"cpu_hours": float("inf")}, "cpu_hours"),
        ({"commit": "main"}, "commit = 'main'"),
        ({"commit": 1234567}, "commit = 1234567: .*: YAML reads it as a number: put it in quotes"),
        ({"name": "two\nlines"}, "use one line"),
        ({"agent": "x"}, "'agent' is not a field"),
        ({"scheduler": "dsra"}, "submission.yaml: scheduler: .*dsra.*dssra"),
        ({"scheduler": "mine.py:Mine"}, "put code of your own into scheduler.py"),
        ({"scheduler": None}, "the scheduler is given by nothing"),
        ({"weights": "w.safetensors"}, "the field scheduler .* and the field weights"),
    ],
)
def test_bad_fields_are_named(folder, fields, message) -> None:
    with pytest.raises(CollaPipeError, match=message):
        read_submission(submitted(folder, **{"scheduler": "dssra", **fields}))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("missing.safetensors", "name a file of the submission"),
        ("../w.safetensors", "name a file of the submission"),
        ("plain.npz", "collapipe zoo export"),
        (["w.safetensors", "w.safetensors"], "each training run has a file of its own"),
        ({"small": "w.safetensors"}, "name the sizes small, medium|name the sizes medium, small"),
        ({"small": 1, "medium": 2}, "weights.(small = 1|medium = 2)"),
    ],
)
def test_bad_weights_are_named(folder, weights, message) -> None:
    submitted(folder)
    safetensors.numpy.save_file({"w": np.ones(3)}, folder / "w.safetensors")
    np.savez(folder / "plain.npz", w=np.ones(3))
    with pytest.raises(DataError, match=message):
        read_submission(submitted(folder, weights=weights))


class Boom:
    """Would run code where it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was read",))


def test_pickles_and_large_folders_are_refused(folder, monkeypatch) -> None:
    (submitted(folder) / "scheduler.py").write_text(EXPLODES)
    for name in ("w.pkl", "w.pt", "w.zip", "w.bin"):
        (folder / name).write_bytes(pickle.dumps(Boom()))
        with pytest.raises(DataError, match=f"{name}: a submission holds regular files"):
            read_submission(folder)
        (folder / name).unlink()
    np.savez(folder / "w.npz", w=np.array([Boom()], dtype=object))
    with pytest.raises(DataError, match=r"w.npz: no plain weights .*without pickle"):
        read_submission(folder)
    (folder / "w.npz").write_bytes(pickle.dumps(Boom()))
    with pytest.raises(DataError, match=r"w.npz: no plain weights"):
        read_submission(folder)
    (folder / "w.npz").rename(folder / "w.safetensors")
    with pytest.raises(DataError, match=r"w.safetensors: no plain weights"):
        read_submission(folder)
    (folder / "w.safetensors").unlink()
    read_submission(folder)
    monkeypatch.setattr(submission, "FOLDER_BYTES", 100)
    with pytest.raises(DataError, match="make it smaller"):
        read_submission(folder)


def test_a_quick_look_changes_no_digest(folder) -> None:
    (submitted(folder) / "scheduler.py").write_text(EXPLODES)
    first = read_submission(folder).digest
    for name in ("results", "results-1x5", "results-allx5", "results-20xall"):
        (folder / name / "evaluation").mkdir(parents=True)
        (folder / name / "evaluation" / "0.json").write_text("{}")
    assert read_submission(folder).digest == first
    for name in ("results-1x5.py", "results-mine", "results-1x5x"):
        (folder / name).mkdir()
        (folder / name / "more.txt").write_text("")
        assert read_submission(folder).digest != first
        (folder / name / "more.txt").unlink()


@pytest.mark.parametrize("place", ["results", "results-1x5", "results/evaluation/run-1"])
@pytest.mark.parametrize("name", [f"helper{suffix}" for suffix in sorted({*all_suffixes(), ".PY"})])
def test_results_hold_no_code(folder, place, name) -> None:
    (submitted(folder, scheduler="dssra") / place).mkdir(parents=True)
    read_submission(folder)
    (folder / place / name).write_text("")
    with pytest.raises(DataError, match=r"holds the results of a run, and no code"):
        read_submission(folder)


@pytest.mark.parametrize("name", ["link.txt", "results", "results-1x5", "results/evaluation"])
def test_nothing_may_be_a_link(folder, tmp_path, name) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (submitted(folder, scheduler="dssra") / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(DataError, match="is a link"):
        read_submission(folder)


def test_compiled_files_are_refused(folder) -> None:
    """They may hold other code than the source that people read and the digest covers."""
    (submitted(folder) / "scheduler.py").write_text(EXPLODES)
    (folder / "part").mkdir()
    for place in ("__pycache__", "part/__pycache__"):
        (folder / place).mkdir()
        with pytest.raises(DataError, match=f"{place} may hold other code than .*: remove it"):
            read_submission(folder)
        (folder / place).rmdir()
    for name in ("helper.pyc", "helper.so", "helper.cpython-311.pyc"):
        (folder / name).write_bytes(b"")
        with pytest.raises(DataError, match=f"{name}: a submission holds regular files"):
            read_submission(folder)
        (folder / name).unlink()


@pytest.mark.parametrize("name", [b"\xff.txt", b"a\nb.txt", b"a\x1b[2J.txt", b"results/\x07"])
def test_names_that_no_message_can_show_are_refused(folder, name) -> None:
    submitted(folder, scheduler="dssra")
    (folder / "results").mkdir()
    try:
        with open(os.path.join(os.fsencode(folder), name), "wb"):
            pass
    except OSError:
        pytest.skip("this file system takes no such names")
    with pytest.raises(DataError, match="rename it") as error:
        read_submission(folder)
    assert str(error.value).isprintable()
    assert str(error.value).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "None where fields"),
        ("name: a\nname: b\n", "line 2"),
        ("name: !!python/object:os.system x\n", "plain YAML"),
        ("a: &a [x]\nb: [*a, *b]\n", "plain YAML"),
        ("- " * 8000, "nested more than 8 deep"),
        ("x" * 20_000, "16,384"),
    ],
)
def test_bad_yaml_is_one_clear_error(folder, text, message) -> None:
    folder.mkdir()
    (folder / "submission.yaml").write_text(text)
    with pytest.raises(DataError, match=message) as error:
        read_submission(folder)
    assert "\n" not in str(error.value)


def test_no_folder_and_no_text(folder) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        read_submission(folder)
    folder.mkdir()
    with pytest.raises(DataError, match=r"a submission is a folder with submission.yaml"):
        read_submission(folder)
    (folder / "submission.yaml").write_bytes(b"\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        read_submission(folder)
