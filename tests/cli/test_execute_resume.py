"""Executions that were ended early: by whom, what is left, and that they go on as if nothing had happened."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "execution"))
from executed_support import quick
from twin_support import descendants, wait_until_gone
from variants_support import mostly_slow

from collapipe_env.cli.main import main
from collapipe_env.execution import pictures
from collapipe_env.ground.files import write_bytes

ROUNDS = 5
GIVEN = ["execute", "--scheduler", "pipeline"]
FAULT = ["--fault", "c0d1@1.0"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def prepare(folder, monkeypatch):
    """Write a small scenario, of one cluster of two devices, to the present folder; nothing is drawn here."""
    scenario = quick(**{"cluster.clusters": 1, "cluster.devices": 2, "workload.batch_size": 16})
    (folder / "quick.yaml").write_text(scenario.to_yaml())
    monkeypatch.chdir(folder)
    monkeypatch.setattr(pictures, "write_picture", lambda path, *_: write_bytes(path, b"drawn"))


@pytest.fixture(autouse=True)
def quick_scenario(tmp_path, monkeypatch):
    """The scenario in the present folder."""
    prepare(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder of rounds that nobody has disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        prepare(folder, patched)
        assert main(command(folder / "run", "--rounds", ROUNDS)) == 0
    return folder / "run"


def command(folder, *given):
    return [*GIVEN, "--scenario", "quick.yaml", *map(str, given), "--out", str(folder)]


def environment():
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "200"}


def ended_early(folder, *given, number, after=2):
    """Send a signal to the command after some rounds; returns status, errors, and processes there were."""
    process = subprocess.Popen(
        [sys.executable, "-m", "collapipe_env", *command(folder, *given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
        # Whatever started the tests may ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        for line in process.stdout:
            if line.startswith(f"round {after} "):
                break
        names = descendants(process.pid)
        if number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends these to all processes of a command
            for _ in range(2):
                os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        _, errors = process.communicate(timeout=300)
    return process.returncode, errors, names


def same_results(one, other):
    """Whether two runs have the same weights, numbers and trace."""
    first, second = (np.load(folder / "weights.npz") for folder in (one, other))
    assert first.files == second.files
    assert all(np.array_equal(first[name], second[name]) for name in first.files)
    numbers = [json.loads((folder / "execution.json").read_text())["rounds"] for folder in (one, other)]
    assert numbers[0] == numbers[1]
    assert (one / "trace.json").read_bytes() == (other / "trace.json").read_bytes()


def test_an_execution_goes_on_from_its_last_round(tmp_path, capsys):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    plain = [*GIVEN, "--scenario", "quick.yaml", *FAULT]
    given = [*plain, "--out", str(parts)]
    assert main([*plain, "--rounds", "3", "--out", str(whole)]) == 0
    assert main([*given, "--rounds", "2"]) == 0
    capsys.readouterr()
    assert main([*given, "--rounds", "3"]) == 0
    output = capsys.readouterr().out
    assert "2 of 3 rounds done" in output
    assert "round 3 of 3" in output
    assert "round 2 of 3" not in output
    same_results(whole, parts)
    # A finished one restores what is missing or damaged; one of fewer rounds is refused.
    for name in ("execution.json", "table.md", "trace.json", "figures/round-2.png"):
        (parts / name).unlink()
    weights = (parts / "weights.npz").read_bytes()
    (parts / "weights.npz").write_bytes(weights[:-100])
    assert main([*given, "--rounds", "3"]) == 0
    output = capsys.readouterr().out
    assert "3 of 3 rounds done" in output
    assert "| round |" in (parts / "table.md").read_text()
    assert (parts / "figures" / "round-2.png").exists()
    same_results(whole, parts)
    assert main([*given, "--rounds", "2"]) == 2
    assert "was made with other options" in capsys.readouterr().err


def test_damaged_and_foreign_files_are_one_clear_error(whole, tmp_path, capsys):
    parts = tmp_path / "parts"
    shutil.copytree(whole, parts)
    again = command(parts, "--rounds", ROUNDS + 1)
    shutil.rmtree(parts / "figures")
    (parts / "figures").write_text("no folder")
    assert main(command(parts, "--rounds", ROUNDS)) == 2
    assert "cannot write" in capsys.readouterr().err
    (parts / "figures").unlink()
    state, report = parts / "state.safetensors", parts / "played" / "round-2.json"
    content = state.read_bytes()
    flipped = content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]
    for damaged in (content[:-100], flipped):
        state.write_bytes(damaged)
        assert main(again) == 2
        shown = capsys.readouterr().err
        assert "state.safetensors is damaged or not a state" in shown
        assert "--fresh" in shown
    state.write_bytes(content)
    foreign = "round-2.json is damaged or not the report of this round: start over with --fresh"
    for damaged in (
        report.read_text().replace('"emulated": true', '"emulated": false'),
        (parts / "played" / "round-1.json").read_text(),
    ):
        report.write_text(damaged)
        assert main(again) == 2
        assert foreign in capsys.readouterr().err
    report.unlink()
    assert main(again) == 2
    assert "cannot read" in capsys.readouterr().err


@linux
@pytest.mark.parametrize("engine", mostly_slow(["inline", "ray"]))
@pytest.mark.parametrize(
    ("number", "status", "words"),
    mostly_slow(
        [
            (signal.SIGKILL, -signal.SIGKILL, ""),
            (signal.SIGTERM, 143, "terminated; all finished work is kept"),
            (signal.SIGINT, 130, "interrupted; all finished work is kept"),
            (signal.SIGHUP, 129, "terminated; all finished work is kept"),
        ]
    ),
    ids=["killed", "terminated", "interrupted", "hung up"],
)
def test_whatever_ends_it_leaves_no_process_and_all_rounds(
    engine, number, status, words, whole, tmp_path, capsys
):
    if engine == "ray":
        pytest.importorskip("ray")
    parts, given = tmp_path / "parts", ["--rounds", ROUNDS, "--engine", engine, "--clock", "virtual"]
    found, errors, names = ended_early(parts, *given, number=number)
    assert found == status, errors
    assert words in errors
    assert "Traceback" not in errors
    wait_until_gone(names)
    capsys.readouterr()
    if engine == "ray":
        again = [sys.executable, "-m", "collapipe_env", *command(parts, *given)]
        told = subprocess.run(again, capture_output=True, text=True, env=environment(), check=True).stdout
    else:
        assert main(command(parts, *given)) == 0
        told = capsys.readouterr().out
    assert f"of {ROUNDS} rounds done" in told
    same_results(whole, parts)
