"""The lock of a run's folder, held by a real process that goes on, ends, or is killed."""

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collapipe_env.evaluation.run_directory import HOLDER, LOCK, RunDirectory
from collapipe_env.ground.errors import DataError

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
def test_a_killed_process_locks_nobody_out(holder, tmp_path: Path) -> None:
    holder.send_signal(signal.SIGKILL)
    assert holder.wait() == -signal.SIGKILL
    assert json.loads((tmp_path / "run" / HOLDER).read_text())["pid"] == holder.pid
    with RunDirectory(tmp_path / "run").locked("collapipe train"):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 3000, b"\xff", b'{"pid": 1}', b"[1]"])
def test_a_lock_that_names_nobody_holds_all_the_same(tmp_path: Path, content: bytes) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.locked("one"):
        (run / HOLDER).write_bytes(content)
        with pytest.raises(DataError, match="in use by another process"), run.locked("two"):
            pass


def test_a_lock_file_alone_is_no_run(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.locked("one"):
        assert run.open({"kind": "comparison"}, fresh=False) is False


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
