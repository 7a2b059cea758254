"""Commands as processes of their own: one a folder, and SIGTERM keeps the work as Ctrl-C does."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "execution"))
from twin_support import descendants, wait_until_gone
from variants_support import mostly_slow

from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.cli.early_end import INTERRUPTED, Call, Terminated, guarded, terminable
from collapipe_env.cli.main import main
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.interrupts import SIGNALS
from collapipe_env.kernels.queues import queue_rows

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes without a signal")


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """Signals end processes here, whatever has started the tests (``nohup`` ignores SIGHUP, for instance)."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


TRAINING = [
    *("--envs", "2", "--steps", "1000000", "--episodes", "1", "--rounds", "1", "--no-figures"),
    *("--ppo.rollout-steps", "4", "--ppo.minibatch", "8", "--ppo.epochs", "1", "--ppo.hidden-units", "8"),
    *("--schedulers", "agent", "--learner", "surrogate", "--processes", "1"),
]


@contextlib.contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command that is at work."""
    with subprocess.Popen(
        [sys.executable, "-m", "collapipe_env.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200.0
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def scenario(tmp_path: Path) -> list[str]:
    path = tmp_path / "tiny.yaml"
    path.write_text("name: tiny\nbase: small\ndynamics: {rounds: 4}\n")
    return ["--scenario", str(path), "--out", str(tmp_path / "run")]


def test_sigterm_keeps_the_training(scenario, tmp_path: Path, capsys, monkeypatch) -> None:
    steps, step = [], CollaPipeVectorEnv.step

    def ended(env, action):
        steps.append(step(env, action))
        if len(steps) == 30:
            signal.raise_signal(signal.SIGTERM)
        return steps[-1]

    monkeypatch.setattr(CollaPipeVectorEnv, "step", ended)
    assert main(["train", *scenario, *TRAINING]) == 143
    errors = capsys.readouterr().err
    assert "terminated; all finished work is kept" in errors
    assert "run again:\n  collapipe train --scenario" in errors
    kept = read_agent_file(tmp_path / "run" / "checkpoints" / "latest.safetensors").record
    # The first validation is due after 50,000 steps: nothing but the signal can have led to this file.
    assert kept.history == []
    assert 0 < kept.steps <= 60
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_a_signal_while_numba_hands_over_an_array_is_no_system_error() -> None:
    called = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "_numba_unpickle" and not called:
            called.append(frame)
            signal.raise_signal(signal.SIGTERM)

    backlog, delay, plays = np.ones((1, 1, 2)), np.ones(1), np.ones((1, 1), dtype=np.bool_)

    def play() -> None:
        sys.setprofile(profile)
        try:
            queue_rows(backlog, backlog, delay, 0.0, plays, plays[..., None])
        finally:
            sys.setprofile(None)
        assert called
        time.sleep(20.0)

    with pytest.raises(Terminated), terminable():
        play()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize(("number", "status"), mostly_slow([(signal.SIGTERM, 143), (signal.SIGHUP, 129)]))
def test_signals_end_an_evaluation_with_its_workers(
    number: signal.Signals, status: int, scenario, tmp_path: Path
) -> None:
    command = ["evaluate", *scenario, "--schedulers", "pipeline", "random", "--no-figures"]
    command += ["--processes", "2", "--episodes", "3", "--rounds", "100000"]
    with started(command) as process:
        # Two workers and Python's own tracker of their resources.
        wait_for(process, lambda: len(descendants(process.pid)) >= 3)
        workers = descendants(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == status, errors
    assert "run again:\n  collapipe evaluate --scenario" in errors
    assert "Traceback" not in errors
    wait_until_gone(workers, 20.0)


@pytest.mark.parametrize(
    ("script", "sent"),
    [
        *[
            (script, "{}")
            for script in ("-m collapipe_env train", "-m collapipe_env.cli.main train", "train_agent.py")
        ],
        # As dataclasses are made; Python would end by the signal after that.
        ("-m collapipe_env train", "exec({!r})"),
    ],
)
def test_ctrl_c_while_modules_are_imported_is_one_line(script: str, sent: str, tmp_path: Path) -> None:
    # Sent by the import of a module that every command needs.
    (tmp_path / "tyro.py").write_text(
        "import os, signal, time\n"
        # Whatever started the tests may ignore the signal, and its children would, too.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        + sent.format("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n")
    )
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, *script.split(), "--scenario", "small", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])},
    )
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr.startswith("\ninterrupted; all finished work is kept. To resume, run again:\n  ")
    assert f" --scenario small --out {tmp_path / 'run'}\n" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_heard_once_and_ignored_ones_stay_ignored(number: signal.Signals) -> None:
    def work() -> None:
        with terminable():
            try:
                signal.raise_signal(number)
            finally:
                for each in SIGNALS:
                    signal.raise_signal(each)

    before = {each: signal.getsignal(each) for each in SIGNALS}
    with pytest.raises(Terminated) as stop:
        work()
    assert stop.value.status == 128 + number
    assert {each: signal.getsignal(each) for each in SIGNALS} == before
    signal.signal(number, signal.SIG_IGN)
    try:
        with terminable():
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before[number])


PATIENT = """
import atexit, os, signal, sys, time

def make():
    atexit.register(signal.raise_signal, signal.SIGINT)
    try:
        print("at work", file=sys.stderr, flush=True)
        time.sleep(100)
    finally:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        open("saved", "w").close()
"""
"""A scenario that takes long, during the end of which Ctrl-C comes again and again."""
BEGIN = """
import signal, sys
from collapipe_env.__main__ import run
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests may ignore it
sys.exit(run())
"""


@contextlib.contextmanager
def patient(folder: Path, begin: str = BEGIN, **how: object) -> Iterator[subprocess.Popen[bytes]]:
    """A command that is at work in code of the user's."""
    (folder / "own.py").write_text(PATIENT)
    python = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", begin, "scenario", "show", "own.py:make"]
    with subprocess.Popen(command, cwd=folder, env=python, **how) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_again_changes_nothing(tmp_path: Path) -> None:
    with patient(tmp_path, stderr=subprocess.PIPE) as process:
        assert process.stderr.readline() == b"at work\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, errors
    _, line, *again = errors.splitlines()
    assert line == b"interrupted; all finished work is kept. To resume, run again:"
    assert again == [b"  collapipe scenario show own.py:make"]
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("failed", [errno.EPIPE, errno.EIO])
def test_a_reader_that_ended_with_ctrl_c_too_changes_nothing(failed: int, capsys) -> None:
    """As in ``| tee``, or on a terminal that was closed, where what is printed last cannot be written."""

    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError(failed, "gone")

    assert guarded(interrupted, Call("collapipe", ())) == INTERRUPTED
    assert capsys.readouterr().err.startswith("\ninterrupted; all finished work is kept.")


def test_a_terminal_that_is_closed_ends_a_command_as_sigterm_does(tmp_path: Path) -> None:
    here, there = os.openpty()
    ends = {"stdin": there, "stdout": there, "stderr": there, "start_new_session": True}
    # The first terminal that the leader of a session opens becomes its own.
    begin = f"import os\nos.open({os.ttyname(there)!r}, os.O_RDWR)\n{BEGIN}"
    with patient(tmp_path, begin, **ends) as process:
        os.close(there)
        while b"at work" not in os.read(here, 4096):
            pass
        os.close(here)
        assert process.wait(60) == 128 + signal.SIGHUP
    assert (tmp_path / "saved").exists()
