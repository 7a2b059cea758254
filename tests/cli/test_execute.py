"""The command ``collapipe execute``, with real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.cli.execute import main_of_rank
from collapipe_env.cli.main import main
from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
PLAIN = ["execute", "--scenario", "small", "--scheduler", "pipeline"]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def processes_of(parent):
    """Processes whose ancestor is another one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found, wave = set(), {parent}
    while wave:
        wave = {pid for pid, above in parents.items() if above in wave} - found
        found |= wave
    return found


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_rounds_of_real_processes_take_the_priced_times(tmp_path):
    out = tmp_path / "run"
    given = [*PLAIN, "--rounds", "2", "--clock", "virtual", "--fault", "c0d2@1.0", "--out", str(out)]
    result = subprocess.run(
        [sys.executable, "-m", "collapipe_env", *given],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env=environment(),
    )
    assert result.returncode == 0, result.stderr
    assert "starting 9 processes: the server, 2 control units, 6 devices" in result.stdout
    assert "lost c0d2" in result.stdout
    numbers = json.loads((out / "execution.json").read_text())
    first, second = numbers["rounds"]
    assert first["clusters"][0]["lost"] == [2]
    assert first["clusters"][0]["recovery_s"] > 2.0  # detection
    for one in (first, second):
        for cluster in one["clusters"]:
            assert cluster["delay_measured_s"] == pytest.approx(cluster["delay_priced_s"], abs=1e-9)
            assert cluster["late_most_s"] == 0.0
    assert second["clusters"][0]["lost"] == []
    trace = json.loads((out / "trace.json").read_text())["traceEvents"]
    drawn = [event for event in trace if event["ph"] == "X"]
    assert {event["pid"] for event in drawn} == {0, 1, 2, 3}
    begins = [event["ts"] for event in drawn]
    assert begins == sorted(begins)
    assert all(event["dur"] >= 0.0 for event in drawn)
    assert len(list((out / "figures").glob("round-*.png"))) == 2
    with np.load(out / "weights.npz") as weights:
        assert any(name.startswith("model/blocks.0") for name in weights)
        assert all(np.isfinite(weights[name]).all() for name in weights)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_ctrl_c_leaves_no_process(tmp_path):
    given = [*PLAIN, "--rounds", "50", "--time-scale", "1", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "collapipe_env", *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
        # Whatever started the tests may ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        deadline = time.monotonic() + 120.0
        # Nine roles, the server that they are forked from, and Python's tracker of resources.
        while len(processes_of(process.pid)) < 11:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        mine = processes_of(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    deadline = time.monotonic() + 20.0
    while any(alive(pid) for pid in mine):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--rounds", "0"], "--rounds = 0: use a number from 1"),
        (["--time-scale", "-1"], "--time-scale -1.0: use a number from 0.001 to 10000"),
        (["--fault", "c0d2@1"], "--fault needs --clock virtual"),
        (["--clock", "virtual", "--kill", "c0d2@1"], "--kill needs --clock wall or none"),
        (["--clock", "virtual", "--fault", "c7d1@1"], "'c7d1@1' names no device of small"),
        (["--clock", "virtual", "--fault", "c0d9@1"], "devices from 1"),
        (["--clock", "virtual", "--fault", "d2"], "c0d2@1.5 is an example"),
        *(
            (["--clock", "virtual", "--fault", text], "names no device and time")
            for text in (
                "c0d2@inf",
                "c0d2@1e300",
                "c0d2@nan",
                "c-0d1@1",
                "c0_0d1@1",
                "c\u0660d1@1",
                "c0d1@\u0661",
            )
        ),
        (["--clock", "virtual", "--fault", "c0d2@1000001"], "at most 1,000,000 s"),
        (["--clock", "virtual", "--fault", "c0d2@1", "c00d2@2"], "--fault names c0d2 twice"),
        (["--bind", "192.168.1.5"], "--bind is for --join"),
        (["--token-file", "secret"], "--token-file is for --serve and --join"),
        (["--micro-batches", "7"], "--micro-batches 7: small allows"),
        (["--scheduler", "nobody"], "nobody"),
    ],
)
def test_bad_options_are_one_clear_error(given, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*PLAIN, *given, "--out", str(tmp_path / "run")]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert words in shown
    assert "Traceback" not in shown


def test_processes_join_an_execution_that_is_served(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a word that nobody guesses\n")
    command = [sys.executable, "-m", "collapipe_env", "execute", "--token-file", str(secret)]
    options = {"cwd": tmp_path, "env": environment(), "text": True, "stdout": subprocess.PIPE}
    # Every process that joins imports everything for itself: one cluster of two devices takes the least.
    scenario = load_scenario("small").with_overrides({"cluster.clusters": 1, "cluster.devices": 2})
    (tmp_path / "tiny.yaml").write_text(scenario.to_yaml())
    plain = ["--scenario", "tiny.yaml", "--scheduler", "pipeline"]
    given = [*plain, "--rounds", "1", "--clock", "virtual", "--out", str(tmp_path / "run")]
    with subprocess.Popen([*command, *given, "--serve", "127.0.0.1:0"], bufsize=1, **options) as launcher:
        address = ""
        for line in launcher.stdout:
            if line.startswith("waiting at "):
                address = line.split()[2]
                break
        roles = ["server", "c0", "c0d1", "c0d2"]
        joined = [
            subprocess.Popen([*command, "--join", address, "--role", role], **options) for role in roles
        ]
        told = launcher.stdout.read()
    assert launcher.returncode == 0, told
    assert "round 1 of 1" in told
    for process in joined:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert (tmp_path / "run" / "weights.npz").exists()


def test_several_machines_need_a_token(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for given, words in (
        (["--serve", "127.0.0.1:0"], "need --token-file"),
        (["--join", "127.0.0.1:1"], "--join and --role go together"),
    ):
        assert main(["execute", *given]) == 2
        assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"word", b"fifteen letters\n", b"\xff" * 64, b"x" * 5000, None]
)
@pytest.mark.parametrize(
    "given",
    [["--serve", "127.0.0.1:0", "--clock", "virtual"], ["--join", "127.0.0.1:9", "--role", "c0"]],
    ids=["serve", "join"],
)
def test_tokens_that_can_be_guessed_are_refused(given, content, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("token").write_bytes(content)
    assert main([*PLAIN, *given, "--token-file", "token", "--out", "run"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.startswith("error: --token-file token ")
    assert "put at least 16 characters in it" in shown
    assert not Path("run").exists()


def test_ranks_refuse_tokens_that_can_be_guessed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("token").write_text("word")
    place = {"WORLD_SIZE": "10", "LOCAL_WORLD_SIZE": "10", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    for number in ("0", "1"):
        for name, value in {**place, "RANK": number}.items():
            monkeypatch.setenv(name, value)
        assert main_of_rank([*PLAIN[1:], "--clock", "virtual", "--token-file", "token"]) == 2
        assert "holds 4 characters: put at least 16" in " ".join(capsys.readouterr().err.split())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.0.0.1:", ":1", "a:70000", f"a:{'9' * 5000}", "a:-1", "a:\u0661", "a b:1", "[]:1"],
)
@pytest.mark.parametrize("option", ["--serve", "--join"])
def test_addresses_that_are_none_are_refused(option, address, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("token").write_text("a word that nobody guesses")
    given = ["--clock", "virtual"] if option == "--serve" else ["--role", "c0"]
    assert main([*PLAIN, option, address, *given, "--token-file", "token"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert f"error: {option} " in shown
    assert "give HOST:PORT" in shown
    assert len(shown) < 300


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--kill", "--hang"])
def test_devices_that_are_killed_or_stopped_are_replaced(how, tmp_path):
    out = tmp_path / "run"
    result = subprocess.run(
        [sys.executable, "-m", "collapipe_env", *PLAIN, "--rounds", "2", how, "c0d2@1", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env=environment(),
    )
    assert result.returncode == 0, result.stderr
    first, second = json.loads((out / "execution.json").read_text())["rounds"]
    assert first["clusters"][0]["lost"] == [2]
    assert second["clusters"][0]["lost"] == []
    cluster = first["clusters"][0]
    # Detection and planning are measured, so the price is of this very failure.
    assert cluster["delay_measured_s"] == pytest.approx(cluster["delay_priced_s"], rel=0.1)
