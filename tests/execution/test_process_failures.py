"""Failures of real processes: who is killed is replaced, and nothing that was trained is lost."""

import contextlib
import socket
import struct
import sys
import threading
from pathlib import Path

import pytest
from executed_support import quick
from process_support import Twin, WithSpare, differing, wait_until_gone

from collapipe_env.execution.frames import VERSION, Frame, encode
from collapipe_env.execution.joining import ExecutionError, HeldEndpoint
from collapipe_env.execution.launching import NO_FAILURES, Failures, Launcher
from collapipe_env.execution.transport.tcp import TcpEndpoint

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from make_execution_failures import instant


@contextlib.contextmanager
def started(scenario, scheduler, **how):
    """Processes of a scenario that are ready, and the learner beside them."""
    with Launcher(scenario, scheduler, **how) as launcher:
        twin = Twin(scenario, launcher.rounds)
        launcher.start_local()
        pids = [process.pid for process in launcher.processes.values()]
        yield launcher, twin
    wait_until_gone([*pids, *(process.pid for process in launcher.processes.values())])


def lost(result):
    """Devices that a round has lost, of each cluster."""
    return [[one["device"] for one in recoveries] for recoveries in result["recoveries"]]


def test_devices_that_are_killed_at_work_leave_the_learners_weights():
    # By the virtual clock a device kills itself before the first operation that it does not live to see.
    scenario = quick(**{"cluster.devices": 3, "workload.batch_size": 16})
    with started(scenario, WithSpare(scenario), seed=1) as (launcher, twin):
        for faults, expected in [
            ([(0, 3, "collection")], [[3], []]),
            ([(0, 2, "forward"), (1, 1, "backward")], [[2], [1]]),
            ([(0, 1, "forward"), (0, 3, "backward")], [[1, 3], []]),
            ([], [[], []]),
        ]:
            clusters = launcher.upcoming.script.clusters
            when = [(n, k, instant(clusters[n], phase)) for n, k, phase in faults]
            planned, result = launcher.play(Failures(faults=when))
            assert lost(result) == expected
            assert not any(one["dropped"] for each in result["recoveries"] for one in each)
            twin.play(planned, result)
            assert differing(launcher, twin) == [], faults
        # One that has no blocks is missed by nobody, and is there again for the next round.
        idle = launcher.names[1][3]
        launcher.kill(idle)
        for _ in range(2):
            planned, result = launcher.play(NO_FAILURES)
            twin.play(planned, result)
            assert lost(result) == [[], []]
        assert differing(launcher, twin) == []
        assert launcher.names[1][3] != idle


def disturb(address, content, opened):
    """Connect to a process, and say what no process of an execution says."""
    connection = socket.create_connection(address, timeout=10.0)
    opened.append(connection)
    with contextlib.suppress(OSError):  # it may have hung up already
        connection.sendall(content)


def test_strangers_do_not_disturb_a_round(caplog):
    scenario = quick(**{"cluster.devices": 2, "workload.batch_size": 16})
    head = struct.Struct("!4sHIQ")
    said = [
        b"GET / HTTP/1.0\r\n\r\n",
        bytes(range(256)) * 64,
        head.pack(b"CPXF", VERSION, 2**31, 2**60) + bytes(64),
        head.pack(b"CPXF", VERSION + 1, 10, 0) + bytes(14),
        b"".join(encode(Frame("round", meta={"script": 1}))),
        b"".join(encode(Frame("hello", meta={"name": "server", "to": "c0"})))[:-5],
        b"",  # and never a word
    ]
    opened = []
    try:
        with started(scenario, WithSpare(scenario)) as (launcher, twin):
            addresses = [launcher.address, *launcher._addresses.values()]
            for number in range(2):
                threads = [
                    threading.Thread(target=disturb, args=(address, content, opened))
                    for address in addresses
                    for content in said
                ]
                for thread in threads:
                    thread.start()
                planned, result = launcher.play()
                for thread in threads:
                    thread.join()
                twin.play(planned, result)
                assert lost(result) == [[], []]
                assert differing(launcher, twin) == [], number
    finally:
        for connection in opened:
            connection.close()
    assert "launcher refused a connection" in caplog.text


@pytest.mark.slow
def test_without_a_control_unit_the_execution_ends_and_says_so():
    scenario = quick(**{"cluster.devices": 2, "workload.batch_size": 16})
    launcher = Launcher(scenario, WithSpare(scenario))
    launcher.start_local()
    launcher.play()
    processes = dict(launcher.processes)
    pids = [process.pid for process in processes.values()]
    launcher.kill("c0")
    with pytest.raises(ExecutionError, match=r"c0 (was lost|is gone)|c0 is gone"):
        launcher.play()
    launcher.close()
    wait_until_gone(pids)
    # Who is in the middle of the round ends by itself when it is told to stop, and need not be killed.
    assert [name for name, process in processes.items() if process.exitcode not in (0, 1)] == ["c0"]


def test_a_launcher_at_all_addresses_tells_nobody_to_connect_to_them():
    scenario = quick(**{"cluster.clusters": 1, "cluster.devices": 2})
    with Launcher(scenario, WithSpare(scenario), bind=("0.0.0.0", 0)) as launcher:
        server = HeldEndpoint(TcpEndpoint("server", token=launcher.token))
        server.connect({"launcher": ("127.0.0.1", launcher.address[1])})
        host, port = server.address
        server.send("launcher", Frame("join", meta={"host": host, "port": port}))
        server.send("launcher", Frame("ready"))
        server.send("launcher", Frame("connected"))
        launcher.wait_until_ready(["server"], 60.0)
        server.wait("spec", 60.0)
        assert server.wait("directory", 60.0).meta == {"directory": {}}
        server.close()


@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_while_a_process_joins_is_no_error(after, monkeypatch):
    scenario = quick(**{"cluster.clusters": 1, "cluster.devices": 2})
    connect = HeldEndpoint.connect

    def interrupted(endpoint, directory):
        if after:
            connect(endpoint, directory)
        raise KeyboardInterrupt

    def joins(launcher):
        launcher._events.put(("server", Frame("join", meta={"host": "127.0.0.1", "port": 9})))
        monkeypatch.setattr(HeldEndpoint, "connect", interrupted)
        launcher.wait_for_others(60.0)

    with pytest.raises(KeyboardInterrupt), Launcher(scenario, WithSpare(scenario)) as launcher:
        joins(launcher)
