"""A run's folder: made, continued, refused, cleared, and locked, also by a process that is killed."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import collapipe_env
from collapipe_env.evaluation.run_directory import CONTENT, HOLDER, LOCK, RunDirectory
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import read_json, remove_partials, write_bytes, write_json

SCENARIO = {"name": "mine"}
ASKED = {"scenario": SCENARIO, "algo": "ppo", "steps": 5, "ppo": {"hidden": (2, 3), "clip": float("nan")}}


def test_same_options_continue_and_others_are_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    assert run.open(ASKED, fresh=False) is False
    assert run.open({**ASKED, "seed": 1}, fresh=False) is False  # nothing has been made of the first yet
    assert run.open(ASKED, fresh=False) is False
    (run / "checkpoints").mkdir()
    assert run.open(ASKED, fresh=False) is True
    with pytest.raises(DataError, match=r"ppo\.hidden was \[2, 3\], now \[9\].*--out.*--fresh"):
        run.open({**ASKED, "ppo": {**ASKED["ppo"], "hidden": [9]}}, fresh=False)
    with pytest.raises(DataError, match=r"ppo was \{.*, now \['xxx.* \.\.\. x*'\]\)") as refusal:
        run.open({**ASKED, "ppo": ["x" * 9999]}, fresh=False)
    assert len(str(refusal.value)) < 500
    with pytest.raises(DataError, match="seed was None, now 1"):
        run.open({**ASKED, "seed": 1}, fresh=False)
    for asked in ({"steps": 4}, {"steps": 6, "seed": 2}, {"steps": None}):  # what may grow may not shrink
        with pytest.raises(DataError, match="was made with other options"):
            run.open({**ASKED, **asked}, fresh=False, growing="steps")
    with pytest.raises(DataError, match="steps was 5, now 6"):
        run.open({**ASKED, "steps": 6}, fresh=False)
    assert run.open({**ASKED, "steps": 6}, fresh=False, growing="steps") is True
    assert json.loads((run / "run.json").read_text())["steps"] == 6


def test_fresh_removes_the_run_and_nothing_else(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.open(ASKED, fresh=False)
    made = [
        "evaluation/a.json",
        "checkpoints/best",
        "tensorboard/x",
        "figures/a.png",
        "scenarios/a.yaml",
    ]
    made += ["results.json", "results.csv", "episodes.csv", "summary.json", "table.md", "versions.json"]
    for name in (*made, "scenario.yaml", "notes.txt", "mine/figures/a.png"):
        write_bytes(tmp_path / name, b"{}")
    assert run.open({**ASKED, "steps": 6}, fresh=True) is False
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "notes.txt", "mine"}
    assert (tmp_path / "mine" / "figures" / "a.png").exists()


def test_starting_over_knows_every_name_that_commands_write() -> None:
    package = Path(collapipe_env.__file__).parent
    text = "\n".join(path.read_text() for path in package.rglob("*.py"))
    names = set(re.findall(r"""\brun / ["']([^"'/]+)["']""", text))
    assert len(names) > 20
    assert names <= set(CONTENT)


def test_writing_replaces_whole_files_and_leaves_no_scraps(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write_json(path, {"x": [1.5, float("inf")], "y": {"z": float("nan")}})
    write_json(path, {"x": (1.5, float("inf"))})
    assert read_json(path, "remedy") == {"x": [1.5, None]}
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]
    with pytest.raises(DataError, match=r"cannot write .*choose another place with --out$"):
        write_bytes(path / "below-a-file", b"")
    with pytest.raises(DataError, match=r"choose another place with --video$"):
        write_bytes(path / "below-a-file", b"", "--video")


@pytest.mark.parametrize("content", [None, '{"kind": "thesis"}', '{"scenario": 3, "algo": "ppo"}', "{"])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, content: str | None, fresh: bool) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    write_bytes(tmp_path / "figures" / "thesis.tex", b"years of work")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    for use in (
        lambda: RunDirectory(tmp_path).open(ASKED, fresh=fresh),
        lambda: RunDirectory(tmp_path).locked("mine").__enter__(),
    ):
        with pytest.raises(DataError, match=r"run\.json.*: choose another place with --out$"):
            use()
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert RunDirectory(Path("~/x")) / "results.json" == tmp_path / "x" / "results.json"
    with pytest.raises(DataError, match="--out '~nobody-has-this-name/x'"):
        RunDirectory(Path("~nobody-has-this-name/x"))


def test_folders_that_cannot_be_made_are_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent" / "x")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for name, message in (
        ("nowhere", r"as a folder \(File exists\)"),
        ("round", r"as a folder \("),
        ("a\0b", r"a\\x00b': use a name without line breaks"),
        ("x" * 5000, "File name too long"),
    ):
        with pytest.raises(DataError, match=message) as told, RunDirectory(tmp_path / name).locked("one"):
            pass
        assert "\n" not in str(told.value)
        assert len(str(told.value)) < 300 + len(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"nowhere", "round"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_folder_without_permission_is_refused(mode: int, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode)
    try:
        for out in (closed, closed / "run"):
            with pytest.raises(DataError, match="Permission denied"), RunDirectory(out).locked("one"):
                pass
    finally:
        closed.chmod(0o700)


AT_WORK = """
import sys
from pathlib import Path
from collapipe_env.evaluation.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).locked("collapipe train\\n--seed 7"):
    print("locked", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that works in the folder ``run``."""
    with subprocess.Popen(
        [sys.executable, "-c", AT_WORK, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_the_process_at_work_is_named_in_one_line(holder, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(DataError) as refusal, run.locked("collapipe evaluate"):
        pass
    text = str(refusal.value)
    assert f"{run.path} is in use by process {holder.pid} on {platform.node()} since 20" in text
    assert "(collapipe train --seed 7): wait until it is done" in text
    assert "choose another place with --out" in text
    assert "\n" not in text
    holder.communicate("\n")
    with run.locked("collapipe evaluate"):
        assert json.loads((run / HOLDER).read_text())["pid"] == os.getpid()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
def test_a_killed_process_locks_nobody_out_and_its_leftovers_go(holder, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    holder.send_signal(signal.SIGKILL)
    assert holder.wait() == -signal.SIGKILL
    assert json.loads((run / HOLDER).read_text())["pid"] == holder.pid
    write_json(run / "run.json", {"kind": "comparison"})
    below = run / "evaluation"
    below.mkdir()
    gone = [below / f".dssra-0.npz.{holder.pid}.partial", run / f".a\nb.{os.getpid()}.partial"]
    thesis = tmp_path / "thesis.tex"
    kept = [
        below / f".dssra-1.npz.{os.getppid()}.partial",  # a process that may still write
        below / "mine.partial",
        below / ".mine.partial",
        below / f"dssra-0.npz.{holder.pid}.partial",
        thesis,
    ]
    for path in (*gone, *kept):
        path.write_text("half")
    link = below / f".link.{holder.pid}.partial"
    link.symlink_to(thesis)
    with run.locked("collapipe train"):
        pass
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in (*kept, link))
    long_ago = time.time() - 7200.0
    os.utime(kept[0], (long_ago, long_ago))
    remove_partials(run.path)
    assert not kept[0].exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 3000, b"\xff", b'{"pid": 1}', b"[1]"])
def test_a_lock_that_names_nobody_holds_all_the_same(tmp_path: Path, content: bytes) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.locked("one"):
        (run / HOLDER).write_bytes(content)
        with pytest.raises(DataError, match="in use by another process"), run.locked("two"):
            pass


def test_a_file_system_without_locks_warns_and_goes_on(tmp_path: Path, monkeypatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", no_locks)
    with (
        pytest.warns(UserWarning, match="has no locks"),
        RunDirectory(tmp_path / "run").locked("one"),
    ):
        pass


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="needs links that are not followed")
@pytest.mark.parametrize("kind", ["link", "dangling", "folder"])
def test_a_lock_that_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    folder = tmp_path / "run"
    folder.mkdir()
    lock = folder / LOCK
    if kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(thesis if kind == "link" else tmp_path / "absent")
    with (
        pytest.raises(DataError, match=r"choose another place with --out"),
        RunDirectory(folder).locked("one"),
    ):
        pass
    assert thesis.read_text() == "years of work"
    assert not (tmp_path / "absent").exists()
