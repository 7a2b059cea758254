"""Disks that are full, files that may not grow, read-only folders: one error, and a rerun goes on."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import COMMAND, environment, run
from run_files_support import figures, partials, require_readable
from test_kills import COMPARE, TRAIN

from collapipe_env.cli.main import main

resource = pytest.importorskip("resource", reason="Windows has no limits of processes")

QUICK = [
    *("compare", "--scenarios", "small", "--schedulers", "pipeline", "random", "--episodes", "2"),
    *("--rounds", "2", "--processes", "1", "--no-figures"),
]


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may become larger [byte]."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def only_line(error: str) -> str:
    """The one line of an error, which names a place and what to do."""
    (line,) = [line for line in error.splitlines() if line]
    assert line.startswith("error: cannot write ")
    assert "free some space" in line
    return line


def test_files_that_may_not_grow_end_a_comparison_with_one_line(tmp_path: Path, capsys) -> None:
    out, named = tmp_path / "run", set()
    assert main([*QUICK, "--out", str(tmp_path / "whole")]) == 0
    capsys.readouterr()
    for size in (0, 100, 400, 1000, 1500, 2000, 3000):
        with largest_file(size):
            status = main([*QUICK, "--out", str(out)])
        captured = capsys.readouterr()
        if status == 0:
            break
        assert status == 2
        line = only_line(captured.err)
        assert "File too large" in line
        assert str(out) in line
        named.add(line.split()[3])
        require_readable(out)
        assert not partials(out)
    assert len(named) >= 3  # it came further with each
    assert main([*QUICK, "--out", str(out)]) == 0
    assert figures(out) == figures(tmp_path / "whole")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_an_output_that_is_full_is_named() -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [*COMMAND, "scenario", "show", "small"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    assert process.returncode == 2
    assert process.stderr == (
        "error: cannot write the output (No space left on device): free some space, or write it elsewhere; "
        "all finished work is kept\n"
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, of which tests change the size."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting needs root on Linux")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", disk], check=False).returncode:
        pytest.skip("mounting is not permitted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


EXECUTE = ["execute", "--scenario", "small", "--scheduler", "pipeline", "--rounds", "2", "--clock", "virtual"]
COMMANDS = {"compare": COMPARE, "train": TRAIN, "execute": EXECUTE}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_command_on_a_full_disk_goes_on_when_there_is_space(
    name: str, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said, out = [], small_disk / "run"
    ballast = small_disk / "ballast"
    for free_kb in (8, 48, 160):
        ballast.write_bytes(bytes((1024 - free_kb) * 1024))
        status, output = run([*COMMANDS[name], "--out", str(out)])
        ballast.unlink()
        assert "Traceback" not in output, output
        require_readable(out)
        assert not partials(out)
        if status == 0:
            break
        assert status == 2, output
        line = output.strip().splitlines()[-1]
        only_line(line)
        assert str(small_disk) in line
        said.append(line)
    assert said
    remount(small_disk, "size=64m")
    status, output = run([*COMMANDS[name], "--out", str(out)])
    assert status == 0, output
    require_readable(out)
    with capsys.disabled():
        print(f"\n{name}: {len(said)} refusals, then finished; the first: {said[0]}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pages_and_exports_on_full_and_read_only_disks(small_disk: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    assert run([*TRAIN, "--no-figures", "--out", str(done)])[0] == 0
    agent = str(done / "checkpoints" / "best.safetensors")
    commands = [
        ["view", str(done), "--out", str(small_disk / "page.html")],
        ["zoo", "export", agent, str(small_disk / "graph.safetensors")],
    ]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1016 * 1024))
    for command in commands:
        status, output = run(command)
        assert status == 2, output
        assert "Traceback" not in output
        assert str(small_disk) in only_line(output.strip().splitlines()[-1])
        assert [path.name for path in small_disk.iterdir()] == ["ballast"]
    ballast.unlink()
    remount(small_disk, "ro")
    for command in [*commands, [*QUICK, "--out", str(small_disk / "run")]]:
        status, output = run(command)
        assert status == 2, output
        assert "Traceback" not in output
        assert "Read-only file system" in output
    remount(small_disk, "rw,size=64m")
    for command in commands:
        status, output = run(command)
        assert status == 0, output
