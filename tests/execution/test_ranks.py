"""Ranks: what torchrun and Slurm say to processes, and executions of processes that they started."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from executed_support import Changed, InProcess, quick, weights

from collapipe_env.cli.execute import main_of_rank
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.launching import Failures
from collapipe_env.execution.ranked_launching import RankedLauncher
from collapipe_env.execution.ranks import MeetingPlace, Rank, play_rank

ROOT = Path(__file__).parents[2]
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "5",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
    "LOCAL_WORLD_SIZE": "5",
}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "5",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
    "SLURM_NNODES": "2",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def place_of(number: int, size: int, port: int) -> Rank:
    return Rank(number, size, ("127.0.0.1", port), agent=False, attempt="0", one_machine=True)


@pytest.fixture
def threads_of_torch():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_environment_names_a_place() -> None:
    found = Rank.of(TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"})
    assert found == Rank(1, 5, ("n1", 29500), agent=True, attempt="2", one_machine=True)
    assert found.host() == "127.0.0.1"
    # torchrun under Slurm: its own variables count.
    assert Rank.of(SLURM | TORCHRUN | {"LOCAL_WORLD_SIZE": "3"}).one_machine is False
    assert Rank.of(SLURM) == Rank(3, 5, ("n1", 29500), agent=False, attempt="0", one_machine=False)
    assert Rank.of(SLURM | {"SLURM_NNODES": "1"}).one_machine
    assert Rank.of(SLURM | {"SLURM_STEP_NUM_NODES": "1"}).one_machine


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {},
            "the environment lacks RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: start with torchrun, or with",
        ),
        ({**TORCHRUN, "WORLD_SIZE": ""}, "the environment lacks WORLD_SIZE"),
        ({k: v for k, v in SLURM.items() if not k.startswith("MASTER")}, "lacks MASTER_ADDR, MASTER_PORT"),
        ({"SLURM_PROCID": "1"}, "lacks SLURM_NTASKS, MASTER_ADDR, MASTER_PORT"),
        ({**TORCHRUN, "RANK": "one"}, "RANK='one' is not a whole number"),
        ({**TORCHRUN, "RANK": "5"}, "RANK=5, WORLD_SIZE=5, MASTER_PORT=29500 are inconsistent"),
        ({**TORCHRUN, "MASTER_PORT": "0"}, "MASTER_PORT=0 are inconsistent"),
    ],
)
def test_what_is_missing_is_one_clear_error(environment, words) -> None:
    with pytest.raises(ExecutionError, match=re.escape(words)):
        Rank.of(environment)


def test_a_rank_without_rank_0_does_not_wait_for_ever() -> None:
    with pytest.raises(ExecutionError, match=r"rank 1 finds no store at MASTER_ADDR=127.0.0.1, MASTER_PORT"):
        MeetingPlace(place_of(1, 5, free_port()), patience=0.1)
    port = free_port()
    held = MeetingPlace(place_of(0, 5, port))
    with pytest.raises(ExecutionError, match=r"rank 1 has waited 0.5 s for rank 0"):
        MeetingPlace(place_of(1, 5, port), patience=0.5).find()
    del held


def as_rank(monkeypatch, number: int, size: int, port: int) -> None:
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    named = {"RANK": number, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in named.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "3 ranks were started, small needs 10: the launcher, server, c0, c0d0, c0d1, c0d2, c1, c1d0"),
        (["--kill", "c0d0@1", "--clock", "none"], "--kill is not for ranks"),
        (["--join", "127.0.0.1:1", "--role", "c0", "--token-file", "x"], "--join is not for ranks"),
        (["--rounds", "0"], "--rounds = 0"),
    ],
)
def test_rank_0_says_what_is_wrong_and_the_others_end_without_a_word(
    given, words, monkeypatch, tmp_path, capsys, threads_of_torch
) -> None:
    port, ended = free_port(), []
    as_rank(monkeypatch, 0, 3, port)
    monkeypatch.chdir(tmp_path)
    others = [
        threading.Thread(
            target=lambda n=n: ended.append(play_rank(place_of(n, 3, port), "127.0.0.1", "", 60))
        )
        for n in (1, 2)
    ]
    for other in others:
        other.start()
    assert main_of_rank(["--scenario", "small", "--scheduler", "pipeline", *given]) == 2
    for other in others:
        other.join(60)
    assert ended == [False, False]
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.startswith(f"error: {words}")
    assert shown.count("error:") == 1


def test_ranks_train_what_one_process_trains_through_a_failure(threads_of_torch) -> None:
    """Here, all ranks are threads."""
    scenario = quick(**{"cluster.clusters": 1, "cluster.devices": 2})
    twin = InProcess(scenario, Changed(scenario), seed=3)
    port, ended = free_port(), []
    place = MeetingPlace(place_of(0, 5, port))
    others = [
        threading.Thread(
            target=lambda n=n: ended.append(play_rank(place_of(n, 5, port), "127.0.0.1", "", 60))
        )
        for n in range(1, 5)
    ]
    for other in others:
        other.start()
    how = {"rank": place_of(0, 5, port), "place": place, "seed": 3}
    with RankedLauncher(scenario, Changed(scenario), **how) as launcher:
        launcher.wait_for_others()
        for number in range(3):
            faults = [(0, 2, 1.0)] if number == 0 else []
            planned, result = launcher.play(Failures(faults=faults), 60)
            twin.play()
            assert [one["device"] for one in result["recoveries"][0]] == [2] * len(faults)
            if not faults:
                assert result["delay_s"] == pytest.approx(planned.record.costs.delay[0], abs=1e-9)
        assert launcher.names[0] == {1: "c0d0", 2: "c0d1.1"}
        found = launcher.weights()
    place.end()
    for other in others:
        other.join(60)
    assert ended == [True] * 4
    for mine, theirs in zip(found.values(), weights(twin.run), strict=True):
        np.testing.assert_array_equal(mine, theirs.numpy())


def test_a_rank_that_is_lost_ends_all_of_them() -> None:
    scenario = quick(**{"cluster.clusters": 1, "cluster.devices": 2})
    port = free_port()
    how = {"rank": place_of(0, 5, port), "place": MeetingPlace(place_of(0, 5, port))}
    with RankedLauncher(scenario, Changed(scenario), **how) as launcher:
        launcher.lose_device("c0d1", "closed the connection", [(0, 2, 1.0)])
        with pytest.raises(
            ExecutionError, match=r"rank 3 \(c0d0\) was lost: closed the connection; ranks are"
        ):
            launcher.lose_device("c0d0", "closed the connection", [(0, 2, 1.0)])


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "TORCH"))}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "OMP_NUM_THREADS": "1", **more}


@pytest.mark.slow
def test_torchrun_starts_an_execution_of_small(tmp_path) -> None:
    scenario = quick()
    (tmp_path / "quick.yaml").write_text(scenario.to_yaml())
    given = ["--scenario", "quick.yaml", "--scheduler", "pipeline", "--rounds", "2", "--clock", "virtual"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "10"]
    command += ["--max-restarts", "0", "--master-port", str(free_port()), "-m", "collapipe_env.execution"]
    result = subprocess.run(
        [*command, *given, "--out", "run"],
        capture_output=True,
        text=True,
        timeout=230,
        cwd=tmp_path,
        env=environment(),
    )
    assert result.returncode == 0, result.stderr
    assert "round 2 of 2" in result.stdout
    twin = InProcess(scenario, Changed(scenario))
    for _ in range(2):
        twin.play()
    with np.load(tmp_path / "run" / "weights.npz") as found:
        for name, theirs in zip(found.files, weights(twin.run), strict=True):
            np.testing.assert_array_equal(found[name], theirs.numpy())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("victim", [0, 1, 4])
def test_a_rank_that_dies_ends_all_and_leaves_no_process(victim, tmp_path) -> None:
    """As Slurm starts them: nobody kills the others."""
    scenario = quick(**{"cluster.clusters": 1, "cluster.devices": 2})
    (tmp_path / "quick.yaml").write_text(scenario.to_yaml())
    place = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "SLURM_NTASKS": "5",
        "SLURM_NNODES": "1",
    }
    command = [sys.executable, "-m", "collapipe_env.execution", "--scenario", "quick.yaml", "--scheduler"]
    command += ["pipeline", "--rounds", "100000", "--clock", "virtual", "--out", "run"]
    log = (tmp_path / "log").open("w")
    ranks = [
        subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env=environment(**place, SLURM_PROCID=str(number)),
        )
        for number in range(5)
    ]
    try:
        deadline = time.monotonic() + 150.0
        while "round 1 of" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        ranks[victim].send_signal(signal.SIGKILL)
        statuses = [rank.wait(60) for rank in ranks]
        assert statuses[0] == (-signal.SIGKILL if victim == 0 else 2)
        if victim:
            assert re.search(
                rf"error: .*{['', 'server', '', '', 'c0d1'][victim]}", (tmp_path / "log").read_text()
            )
        assert not any(alive(rank.pid) for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        log.close()
