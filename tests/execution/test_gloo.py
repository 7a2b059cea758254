"""Gloo between threads and processes: executed rounds, killed and stopped processes, and what is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from executed_support import Changed, InProcess, priced_events, quick, same_weights, sorted_events
from numpy.testing import assert_allclose
from transport_support import Notes, open_sockets, require_no_transport_threads, transport_threads

from collapipe_env.execution.frames import Frame, FrameError, Limits
from collapipe_env.execution.threads import ThreadedExecution
from collapipe_env.execution.transport import TransportError, gloo, gloo_pair
from collapipe_env.execution.transport.gloo import GlooEndpoint
from collapipe_env.execution.transport.gloo_pair import packed, unpacked
from collapipe_env.execution.transport.tcp import TcpEndpoint

TOKEN = "a token of the tests"
PEER = Path(__file__).with_name("tcp_peer.py")
LIMITS = Limits()
WITHIN = 1e-9
needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system stops no processes")


class GlooHub:
    """Endpoints of gloo in this process, each of which knows all others."""

    def __init__(self) -> None:
        self.endpoints = {}

    def endpoint(self, name: str) -> GlooEndpoint:
        control = TcpEndpoint(name, token=TOKEN)
        made = self.endpoints[name] = GlooEndpoint(control, by_tcp={"launcher"})
        for other in self.endpoints.values():
            other.connect({name: control.address})
            made.connect({other.name: other.address})
        return made

    def kill(self, name: str) -> None:
        for other in self.endpoints:
            if other != name:
                self.endpoints[name].drop(other)


@pytest.mark.parametrize("faults", [(), [(0, 2, 1.0)]], ids=["healthy", "fault"])
def test_rounds_over_gloo_take_the_priced_times_and_leave_the_learners_weights(faults):
    scenario = quick()
    plan = {"schedule": "1f1b", "micro_batches": 4}
    hub = GlooHub()
    execution = ThreadedExecution(scenario, Changed(scenario, **plan), seed=3, hub=hub)
    twin = InProcess(scenario, Changed(scenario, **plan), seed=3)
    try:
        for number in range(2):
            planned, result = execution.play(faults=faults if number == 0 else ())
            twin.play()
            assert same_weights(execution.federation, twin.run)
            recovered = [n for n, each in enumerate(result["recoveries"]) if each]
            assert recovered == ([0] if faults and number == 0 else [])
            for n in set(range(scenario.cluster.clusters)) - set(recovered):
                found = sorted_events(result, n)
                assert_allclose(found, priced_events(planned, n, scenario.workload.local_steps), atol=WITHIN)
        assert any(endpoint._pairs for endpoint in hub.endpoints.values())
    finally:
        execution.close()
        for endpoint in hub.endpoints.values():
            endpoint.close()
    require_no_transport_threads()


@pytest.mark.parametrize("sizes", [(), (0,), (1, 3, 8), (4000,), (5000, 0, 7), (100_001, 2)])
def test_frames_come_out_of_their_messages_as_they_went_in(sizes) -> None:
    arrays = {f"x{n}": np.arange(size, dtype=np.int16) for n, size in enumerate(sizes)}
    frame = unpacked(packed(Frame("forward", meta={"a": 1}, arrays=arrays), LIMITS)[16:], LIMITS)
    assert (frame.kind, dict(frame.meta)) == ("forward", {"a": 1})
    assert list(frame.arrays) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(frame.arrays[name], array)
        assert frame.arrays[name].flags.aligned


@pytest.fixture
def parent():
    """An endpoint to which processes connect; nothing is left of it afterwards."""
    assert transport_threads() == []
    before = open_sockets()
    endpoint = GlooEndpoint(TcpEndpoint("parent", token=TOKEN))
    yield endpoint
    endpoint.close()
    require_no_transport_threads()
    assert open_sockets() <= before  # what an earlier test has left may go meanwhile


@pytest.fixture
def start(parent):
    """Starts processes with an endpoint of gloo, and kills those that are left."""
    started = []

    def one(name: str, work: str) -> subprocess.Popen:
        host, port = parent.address
        command = [sys.executable, str(PEER), name, host, str(port), work, "gloo"]
        started.append(subprocess.Popen(command, env=os.environ | {"TOKEN": TOKEN}))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.wait()


def met(parent: GlooEndpoint, notes: Notes, *names: str) -> None:
    """Wait until processes are there, take note of their addresses, and let them begin."""
    notes.until(lambda: {peer for peer, frame in notes.frames if frame.kind == "ready"} >= set(names))
    parent.connect({peer: tuple(f.meta["address"]) for peer, f in notes.frames if f.kind == "ready"})
    for name in names:
        parent.send(name, Frame("begin"))


@pytest.mark.slow  # three processes that import torch
@needs_signals
def test_a_killed_process_is_lost_once_and_a_stopped_one_can_be_dropped(parent, start, monkeypatch) -> None:
    monkeypatch.setattr(gloo, "LINGER_S", 10_000.0)  # closing would wait for a send that is held up
    notes = Notes(parent)
    victim, stopped, other = start("c0d1", "flood"), start("c0d2", "echo"), start("c0d3", "echo")
    met(parent, notes, "c0d1", "c0d2", "c0d3")
    notes.until(lambda: any(frame.kind == "flood" for _, frame in notes.frames))
    victim.send_signal(signal.SIGKILL)
    ((peer, reason),) = notes.until_lost()
    assert (peer, reason) == ("c0d1", "closed the connection")
    # What it had sent came before, in order and whole.
    numbers = [frame.tag.step for _, frame in notes.frames if frame.kind == "flood"]
    assert numbers == list(range(len(numbers)))
    assert all((f.arrays["x"] == f.tag.step).all() for _, f in notes.frames if f.kind == "flood")
    parent.send("c0d1", Frame("forward"))
    parent.send("c0d2", Frame("forward", arrays={"x": np.arange(5)}))
    notes.until(lambda: any((peer, f.kind) == ("c0d2", "forward") for peer, f in notes.frames))
    stopped.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    for _ in range(4):
        parent.send("c0d2", Frame("forward", arrays={"x": np.zeros(10_000_000)}))
    parent.drop("c0d2")
    parent.send("c0d2", Frame("forward"))
    parent.send("c0d3", Frame("after"))
    notes.until(lambda: notes.frames[-1][1].kind == "after")
    parent.send("c0d3", Frame("stop"), channel="data")
    assert other.wait() == 0
    parent.close()
    assert len(notes.lost) == 1
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait() == 0  # it learns that it was dropped, and ends


@pytest.mark.slow
def test_a_process_may_end_while_a_thread_of_it_waits_in_gloo(parent, start) -> None:
    notes = Notes(parent)
    process = start("c0d1", "abandon")
    met(parent, notes, "c0d1")
    parent.send("c0d1", Frame("stop"), channel="data")
    assert process.wait() == 0
    assert notes.until_lost() == [("c0d1", "closed the connection")]


def test_a_peer_that_does_not_answer_is_lost_in_time(parent, monkeypatch) -> None:
    """It takes frames of the control channel, and knows nothing of gloo."""
    monkeypatch.setattr(gloo_pair, "MEET_S", 0.05)
    monkeypatch.setattr(gloo, "GRACE_S", 0.05)
    notes = Notes(parent)
    silent = TcpEndpoint("silent", token=TOKEN)
    Notes(silent)
    parent.connect({"silent": silent.address})
    begun = time.monotonic()
    parent.send("silent", Frame("forward"))
    ((peer, reason),) = notes.until_lost()
    silent.close()
    assert peer == "silent"
    assert "it did not answer in time" in reason
    assert time.monotonic() - begun < 30.0


def test_what_transports_send_themselves_is_refused(parent) -> None:
    Notes(parent)
    with pytest.raises(TransportError, match="kept for transports"):
        parent.send("c0d1", Frame("gloo_address"))
    with pytest.raises(FrameError, match="above the limit of 8"):
        packed(Frame("forward", arrays={"x": np.zeros(2)}), Limits(payload=8))
