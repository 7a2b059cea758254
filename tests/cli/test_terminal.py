"""Output on a terminal of 80 columns: help, progress bars, and warnings of one line."""

import contextlib
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import numpy as np
import pytest
from variants_support import mostly_slow

from collapipe_env.agents.learned.callbacks import ProgressBar
from collapipe_env.cli.early_end import Call, guarded
from collapipe_env.cli.main import main
from collapipe_env.ground.progress import progress_bar

fcntl, pty, struct, termios = (pytest.importorskip(n) for n in ("fcntl", "pty", "struct", "termios"))

HOPELESS = "name: hopeless\nbase: small\nbudgets: {device_energy_j: 1.0e-9}\n"


class Terminal:
    """A pseudo-terminal of 80 columns, to put in the place of standard error."""

    def __init__(self) -> None:
        self._here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.file = os.fdopen(there, "w", encoding="utf-8")

    def frames(self) -> list[str]:
        """The lines and overwritten lines written so far."""
        self.file.write("\rend\r")  # the system hands on what was written bit by bit
        self.file.flush()
        text = b""
        while not text.endswith(b"\rend\r"):
            text += os.read(self._here, 65536)
        return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode()))[:-2]

    def close(self) -> None:
        self.file.close()
        os.close(self._here)


@contextlib.contextmanager
def unread() -> Iterator[TextIO]:
    """The end of a pipe that nobody reads."""
    here, there = os.pipe()
    os.close(here)
    stream = os.fdopen(there, "w", encoding="utf-8")
    try:
        yield stream
    finally:
        with contextlib.suppress(BrokenPipeError):
            stream.close()


@pytest.fixture
def terminal(monkeypatch) -> Iterator[Terminal]:
    opened = Terminal()
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    yield opened
    opened.close()


@pytest.mark.parametrize("columns", ["0", "1", "2", "39", "-5"])
def test_help_and_tables_are_there_in_very_narrow_terminals(columns: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as end:
        main(["evaluate", "--help"])
    assert end.value.code == 0
    assert "held-out" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["zoo", "list"]) == 0
    assert "graph" in capsys.readouterr().out


def test_a_check_fits_80_columns(tmp_path: Path, capsys) -> None:
    file = tmp_path / "file.yaml"
    ample = "base: small\nbudgets: {device_energy_j: 40, cu_energy_j: 40}\ncluster: {layout: per_episode}\n"
    for text, over in ((ample, "0"), (HOPELESS, "64")):
        file.write_text(text)
        assert main(["scenario", "check", str(file)]) in (0, 1)
        text = capsys.readouterr().out
        assert [line for line in text.splitlines() if len(line) > 80] == []
        (row,) = (line.split() for line in text.splitlines() if line.startswith("  1         device "))
        assert row[-1] == over


def half_a_bar(frame: str) -> None:
    """Checks a frame of something that is half done and has hours to go."""
    assert len(frame) <= 80
    title, bar, figures = frame.split("|")
    assert title.endswith(" 50%")
    assert len(bar) >= 8
    assert bar.count("\u2588") / len(bar) == pytest.approx(0.5, abs=0.15)
    assert re.search(r"\d+:\d\d:\d\d left", figures)


def test_the_bar_of_an_evaluation_shows_a_bar(terminal, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.file)
    with progress_bar(99_999, "evaluating", "rounds") as bar:
        bar.start_t -= 100_000.0
        bar.update(50_000)
        bar.refresh()
        half_a_bar(terminal.frames()[-1])


def test_the_bar_of_a_training_shows_a_bar(terminal, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.file)
    env = SimpleNamespace(last_info={"delay": np.array([1234.56])})
    bar = ProgressBar(600_000, "training PPO", env, 200_000)  # type: ignore[arg-type]
    bar._bar.start_t -= 40_000.0
    bar.num_timesteps = 300_000
    bar._on_step()
    bar._bar.refresh()
    frame = terminal.frames()[-1]
    bar.close()
    half_a_bar(frame)
    assert "300k/600k steps" in frame
    assert "delay 1234.56 s" in frame


def test_warnings_are_lines_without_source_and_said_once(tmp_path: Path, capsys) -> None:
    file = tmp_path / "hopeless.yaml"
    file.write_text(HOPELESS)
    command = [
        *("evaluate", "--scenario", str(file), "--schedulers", "pipeline", "random", "--episodes", "2"),
        *("--rounds", "1", "--processes", "1", "--no-figures", "--out", str(tmp_path / "out")),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(command) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: scenario 'hopeless'")
    assert "EnergyBudgetWarning" not in line


def test_a_warning_keeps_to_one_line_and_the_former_way_comes_back(capsys, recwarn) -> None:
    def job() -> None:
        for _ in range(2):
            warnings.showwarning(UserWarning("one\n  two"), UserWarning, "file.py", 3)

    before = warnings.showwarning
    assert guarded(job, Call("collapipe", ())) == 0
    assert capsys.readouterr().err == "warning: one two\n"
    assert warnings.showwarning is before


def test_output_that_nobody_reads_ends_a_command_quietly(tmp_path: Path, monkeypatch, capsys) -> None:
    """As after ``| head``: what is done is kept, and the same command continues from there."""
    out = tmp_path / "out"
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text("name: tiny\nbase: small\ndynamics: {rounds: 2}\n")
    play = ["evaluate", "--scenario", str(scenario), "--schedulers", "pipeline", "--episodes", "1"]
    play += ["--processes", "1", "--no-figures", "--out", str(out)]
    for command in (["scenario", "show", "xlarge"], ["scenario", "check", "small"], play):
        with unread() as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            assert main(command) == 141
        assert "Error" not in capsys.readouterr().err
    finished = (out / "evaluation" / "surrogate-2" / "pipeline-0.npz").stat().st_mtime_ns
    assert "## tiny" in (out / "table.md").read_text()
    assert main(play) == 0
    assert (out / "evaluation" / "surrogate-2" / "pipeline-0.npz").stat().st_mtime_ns == finished


@pytest.mark.parametrize(
    "command",
    mostly_slow(
        [
            *(["--version"], ["evaluate", "--help"]),
            *(["scenario", "show", "xlarge"], ["scenario", "check", "small"]),
        ]
    ),
)
def test_a_process_whose_output_nobody_reads_leaves_no_complaint(command: list[str]) -> None:
    with unread() as stream:
        ended = subprocess.run(
            [sys.executable, "-m", "collapipe_env", *command],
            stdout=stream,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("closed", mostly_slow([">&- 2>&-", ">&-"]))
def test_a_process_without_output_does_its_work(closed: str, tmp_path: Path) -> None:
    """What it opens first must not get the number of the output that libraries and workers print to."""
    (tmp_path / "own.py").write_text(
        "import os\nfrom collapipe_env.scenario import load_scenario\n"
        "def make():\n"
        "    with open('mine', 'w'):\n"
        "        os.write(1, b'noise')\n"
        "    return load_scenario('small')\n"
    )
    command = f"{sys.executable} -m collapipe_env scenario show own.py:make {closed}"
    ended = subprocess.run(
        ["sh", "-c", command],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "mine").read_text() == ""
