"""TCP between processes: killed and stopped ones, strangers, wrong tokens, and connections by hand."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from transport_support import PATIENCE_S, TOKEN, Notes, open_sockets, transport_threads

from collapipe_env.execution import tokens
from collapipe_env.execution.frames import MAGIC, VERSION, Frame, Limits, encode, read_frame
from collapipe_env.execution.tokens import TokenError
from collapipe_env.execution.transport import TransportError, handshake, tcp
from collapipe_env.execution.transport.handshake import WORDS, Hello, introduce, reader, receive, say
from collapipe_env.execution.transport.tcp import TcpEndpoint

PEER = Path(__file__).with_name("tcp_peer.py")
needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system stops no processes")


@pytest.fixture
def processes():
    """Starts processes with an endpoint, and kills those that are left."""
    started = []

    def start(name: str, parent: TcpEndpoint, work: str) -> subprocess.Popen:
        host, port = parent.address
        command = [sys.executable, str(PEER), name, host, str(port), work]
        started.append(subprocess.Popen(command, env=os.environ | {"TOKEN": TOKEN}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def met(parent: TcpEndpoint, notes: Notes, *names: str) -> None:
    """Wait until processes are there, and take note of their addresses."""
    notes.until(lambda: {peer for peer, frame in notes.frames if frame.kind == "ready"} >= set(names))
    parent.connect({peer: tuple(f.meta["address"]) for peer, f in notes.frames if f.kind == "ready"})
    notes.until(lambda: {peer for peer, frame in notes.frames if frame.kind == "heartbeat"} >= set(names))


def logged(caplog, text: str, count: int = 1) -> list[str]:
    """Wait until lines are logged: who is refused may hear of it before the thread has written its line."""
    deadline = time.monotonic() + PATIENCE_S
    while len(lines := [line for line in caplog.messages if text in line]) < count:
        assert time.monotonic() < deadline, caplog.text
        time.sleep(0.001)
    assert len(lines) == count
    return lines


@needs_signals
def test_a_killed_process_is_lost_once_and_the_others_go_on(endpoints, processes, monkeypatch) -> None:
    monkeypatch.setattr(tcp, "GRACE_S", 10_000.0)  # all its connections end by themselves
    parent = endpoints("parent")
    notes = Notes(parent)
    victim = processes("c0d1", parent, "flood")
    processes("c0d2", parent, "echo")
    met(parent, notes, "c0d1", "c0d2")
    notes.until(lambda: any(frame.kind == "flood" for _, frame in notes.frames))
    victim.send_signal(signal.SIGKILL)
    ((peer, reason),) = notes.until_lost()
    assert peer == "c0d1"
    assert "closed the connection" in reason or "truncated" in reason
    # What it had sent came before, in order and whole.
    numbers = [frame.tag.step for _, frame in notes.frames if frame.kind == "flood"]
    assert numbers == list(range(len(numbers)))
    assert all((f.arrays["x"] == f.tag.step).all() for _, f in notes.frames if f.kind == "flood")
    with notes.changed:
        assert notes.all[-1] == ("lost", "c0d1")
    parent.send("c0d1", Frame("forward"))
    parent.send("c0d2", Frame("forward", arrays={"x": np.arange(5)}))
    notes.until(lambda: notes.frames[-1][1].kind == "forward")
    assert notes.frames[-1][0] == "c0d2"
    assert len(notes.lost) == 1


@needs_signals
@pytest.mark.parametrize("dropped", [False, True])
def test_a_stopped_process_holds_nobody_up(endpoints, processes, monkeypatch, dropped: bool) -> None:
    """Who closes waits for it a short time, and not at all once it was dropped."""
    monkeypatch.setattr(tcp, "LINGER_S", 10_000.0 if dropped else 0.05)
    parent = endpoints("parent")
    notes = Notes(parent)
    stopped = processes("c0d1", parent, "echo")
    met(parent, notes, "c0d1")
    parent.send("c0d1", Frame("forward"))
    notes.until(lambda: notes.frames[-1][1].kind == "forward")
    stopped.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    for _ in range(4):  # far more than a system holds for a process that does not read
        parent.send("c0d1", Frame("forward", arrays={"x": np.zeros(10_000_000)}))
    (connection,) = parent._peers["c0d1"].outgoing.values()
    while not connection._busy:
        time.sleep(0.001)
    if dropped:
        parent.drop("c0d1")
    parent.close()
    assert transport_threads() == []
    assert notes.lost == []


def test_frames_of_the_handshake_hold_no_token(network, monkeypatch) -> None:
    words = []

    def heard(connection: socket.socket, kind: str, **meta: str) -> None:
        words.append((kind, meta))
        say(connection, kind, **meta)

    monkeypatch.setattr(handshake, "say", heard)
    a, b = network("a", "b")
    Notes(a)
    notes = Notes(b)
    a.send("b", Frame("forward"))
    notes.until_frames(1)
    assert [kind for kind, _ in words] == ["challenge", "hello", "welcome"]
    assert all(TOKEN not in str(meta) for _, meta in words)


def test_a_wrong_token_is_refused(endpoints, caplog) -> None:
    a, b = endpoints("a"), endpoints("b", token="another token of the tests")
    notes_a, notes_b = Notes(a), Notes(b)
    b.connect({"a": a.address})
    b.send("a", Frame("forward"))
    ((peer, reason),) = notes_b.until_lost()
    assert peer == "a"
    assert "its token differs: give the same token to all processes" in reason
    assert notes_a.all == []
    (line,) = logged(caplog, "a refused a connection from 127.0.0.1:")
    assert "b: its token differs" in line


def test_who_does_not_know_the_token_cannot_pass_for_a_peer(endpoints) -> None:
    """The side that is connected to must prove itself, too."""
    a = endpoints("a")
    notes = Notes(a)
    with socket.create_server(("127.0.0.1", 0)) as server:
        a.connect({"b": server.getsockname()})
        a.send("b", Frame("forward"))
        connection, _ = server.accept()
        with connection:
            say(connection, "challenge", nonce="0" * 32)
            hello = decode_word(connection)
            # The best that is known: the other side's own proof.
            say(connection, "welcome", proof=hello.meta["proof"])
            ((peer, reason),) = notes.until_lost()
    assert peer == "b"
    assert "does not know the token" in reason


def decode_word(connection: socket.socket) -> Frame:
    return read_frame(reader(connection), WORDS)


def by_hand(endpoint: TcpEndpoint, name: str = "b", instance: str = "1", channel="data") -> socket.socket:
    """A connection to an endpoint that has come through the handshake."""
    connection = socket.create_connection(endpoint.address)
    try:
        introduce(connection, Hello(name, endpoint.name, channel, instance), TOKEN, time.monotonic() + 60)
        connection.settimeout(60)
    except TransportError:
        connection.close()
        raise
    return connection


def ended(connection: socket.socket) -> bool:
    """Whether the other side has ended a connection."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "begins with b'GET '"),
        (struct.pack("!4sHIQI", MAGIC, VERSION, 10, 2**40, 0), "above the limit of 0"),
        (b"".join(encode(Frame("forward"))), "'forward' instead of 'hello'"),
        (b"".join(encode(Frame("hello", meta={"name": "x\n", "to": "a", "channel": "data"}))), "introduces"),
        (
            b"".join(
                encode(
                    Frame("hello", meta={"name": "b", "to": "a", "channel": "data", "proof": "\ud800" * 64})
                )
            ),
            "b: its token differs",
        ),
        (b"", "closed the connection before its 'hello'"),
    ],
)
def test_strangers_are_turned_away(endpoints, caplog, content: bytes, message: str) -> None:
    a = endpoints("a")
    notes = Notes(a)
    with socket.create_connection(a.address, timeout=60) as stranger:
        stranger.sendall(content)
        with contextlib.suppress(OSError):  # it may be turned away already
            stranger.shutdown(socket.SHUT_WR)
        assert ended(stranger)
    (line,) = [record.getMessage() for record in caplog.records]
    assert message in line
    assert "\n" not in line
    with by_hand(a) as peer:
        peer.sendall(b"".join(encode(Frame("forward"))))
        notes.until_frames(1)
        say(peer, "bye")
        assert ended(peer)
    assert notes.lost == []


def test_silent_strangers_are_turned_away_in_time(endpoints, caplog, monkeypatch) -> None:
    monkeypatch.setattr(tcp, "HANDSHAKE_S", 0.02)
    a = endpoints("a")
    Notes(a)
    with socket.create_connection(a.address, timeout=60) as stranger:
        assert ended(stranger)
    assert "did not answer in time" in caplog.text


def test_an_address_with_many_strangers_does_not_push_out_another(endpoints, monkeypatch) -> None:
    monkeypatch.setattr(tcp, "_MOST_STRANGERS", 3)
    a = endpoints("a", bind=("0.0.0.0", 0))
    Notes(a)
    here = "127.0.0.1", a.address[1]
    with contextlib.ExitStack() as stack:

        def stranger(host: str) -> socket.socket:
            connection = socket.create_connection(here, timeout=60, source_address=(host, 0))
            stack.enter_context(connection)
            connection.recv(1)  # it is listened to
            return connection

        alone = stranger("127.0.0.2")
        crowd = [stranger("127.0.0.3") for _ in range(20)]
        assert ended(crowd[0])
        alone.settimeout(0.1)
        with pytest.raises(TimeoutError):
            ended(alone)


def test_who_is_hung_up_on_tries_again_until_the_time_is_over(endpoints, monkeypatch) -> None:
    a = endpoints("a")
    notes = Notes(a)
    with socket.create_server(("127.0.0.1", 0)) as server:
        a.connect(dict.fromkeys("bc", server.getsockname()))
        a.send("b", Frame("forward"))
        for _ in range(2):
            server.accept()[0].close()
        connection, _ = server.accept()
        with connection:
            receive(connection, "b", TOKEN, time.monotonic() + 60, lambda _: None)
            assert decode_word(connection).kind == "forward"
            assert notes.lost == []
            monkeypatch.setattr(tcp, "HANDSHAKE_S", 0.05)
            a.send("c", Frame("forward"))
            server.accept()[0].close()
            ((peer, why),) = notes.until_lost()
            assert (peer, why) == ("c", "it closed the connection before its 'challenge'")


def test_lines_about_strangers_are_few(endpoints, caplog) -> None:
    a = endpoints("a")
    Notes(a)
    for _ in range(25):
        with socket.create_connection(a.address, timeout=60) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n" * 2)
            assert ended(stranger)
    a.close()
    *lines, last = caplog.messages
    assert len(lines) == 10
    assert all("begins with b'GET '" in line for line in lines)
    assert last == "15 more lines of this kind were left out"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"".join(encode(Frame("forward", arrays={"x": np.zeros(9)})))[:-1], "truncated: its array 'x'"),
        (b"".join(encode(Frame("forward", arrays={"x": np.zeros(2000)}))), "above the limit of 10,000"),
        (b"".join(encode(Frame("forward"))), "closed the connection"),
    ],
)
def test_a_peer_that_breaks_off_is_lost_with_the_reason(
    endpoints, content: bytes, message: str, monkeypatch
) -> None:
    monkeypatch.setattr(tcp, "GRACE_S", 0.01)
    a = endpoints("a", limits=Limits(payload=10_000))
    notes = Notes(a)
    with by_hand(a) as bulk, by_hand(a, channel="control") as control:
        bulk.sendall(content)
        with contextlib.suppress(OSError):  # it may be cut already
            bulk.shutdown(socket.SHUT_WR)
        ((peer, reason),) = notes.until_lost()
        assert peer == "b"
        assert message in reason
        # The connection that was fine is cut as well, after the time for what was still under way.
        assert ended(control)
        assert ended(bulk)
    with pytest.raises(TransportError, match="a has lost it"):
        by_hand(a)
    assert len(notes.lost) == 1


def test_a_name_is_taken_once(endpoints, caplog) -> None:
    a = endpoints("a")
    notes = Notes(a)
    with by_hand(a) as first:
        with pytest.raises(TransportError, match="the name b is taken: start each process once"):
            by_hand(a)
        with pytest.raises(TransportError, match="the name b is taken"):
            by_hand(a, instance="2", channel="control")
        say(first, "forward")
        notes.until_frames(1)
        with by_hand(a, channel="control") as second:
            say(second, "forward")
            notes.until_frames(2)
            for connection in (first, second):
                say(connection, "bye")
                assert ended(connection)
    assert notes.lost == []
    logged(caplog, "name b is taken", 2)


def test_a_process_at_the_address_of_another_is_noticed(endpoints) -> None:
    a, b = endpoints("a"), endpoints("b")
    notes_a, notes_b = Notes(a), Notes(b)
    a.connect({"c": b.address})
    a.send("c", Frame("forward"))
    ((peer, reason),) = notes_a.until_lost()
    assert peer == "c"
    assert "it wants to reach c, but this is b: correct the address of c" in reason
    assert notes_b.all == []


def test_an_address_where_nobody_listens_is_a_loss(endpoints) -> None:
    a = endpoints("a")
    notes = Notes(a)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    a.connect({"b": address, "c": ("x" * 70, 5)})
    for peer in ("b", "c"):
        a.send(peer, Frame("forward"))
        a.send(peer, Frame("heartbeat"))
    lost = dict(notes.until_lost(2))
    assert f"no connection to 127.0.0.1:{address[1]}: " in lost["b"]
    assert "no connection to xxx" in lost["c"]
    a.send("b", Frame("forward"))
    a.close()
    assert len(notes.lost) == 2


def test_other_machines_need_a_token() -> None:
    before = open_sockets()
    with pytest.raises(TokenError, match="give a token of at least 16 characters"):
        TcpEndpoint("a", bind=("0.0.0.0", 0), token="short")
    assert open_sockets() <= before  # what an earlier test has left may go meanwhile


def test_an_address_that_is_taken_is_named(endpoints) -> None:
    a = endpoints("a")
    with pytest.raises(TransportError, match=rf"b cannot listen at '127.0.0.1', port {a.address[1]} "):
        TcpEndpoint("b", bind=a.address)
    with pytest.raises(TransportError, match=r"port 70000.*use a port of 0 to 65535"):
        TcpEndpoint("b", bind=("127.0.0.1", 70_000))
    for address in (("127.0.0.1", 0), ("127.0.0.1", "5"), ("", 5), (None, 5)):
        with pytest.raises(
            TransportError, match=r"the address of c is .*use a host and a port of 1 to 65535"
        ):
            a.connect({"c": address})
    with pytest.raises(TransportError, match="name 'b c'"):
        TcpEndpoint("b c")


def test_peers_without_an_address_are_named(endpoints) -> None:
    a = endpoints("a")
    notes = Notes(a)
    with by_hand(a) as connection:
        say(connection, "forward")
        notes.until_frames(1)
        with pytest.raises(TransportError, match="a has no address of b"):
            a.send("b", Frame("forward"))


def test_threads_end_though_a_handler_is_busy_for_long(endpoints, monkeypatch, caplog) -> None:
    monkeypatch.setattr(tcp, "LINGER_S", 0.01)
    monkeypatch.setattr(tcp, "_STUCK_S", 0.01)
    a, b = endpoints("a"), endpoints("b")
    busy, free = threading.Event(), threading.Event()
    a.listen(lambda *_: (busy.set(), free.wait()), lambda *_: None)
    Notes(b)
    b.connect({"a": a.address})
    b.send("a", Frame("forward"))
    busy.wait()
    a.close()
    assert "still busy with a frame" in caplog.text
    free.set()
    for thread in transport_threads():
        if thread.name == "a-transport":
            thread.join()


def test_proofs_of_other_tokens_and_forms_are_wrong() -> None:
    right = tokens.proof(TOKEN, "ab", "c")
    assert tokens.proven(right, TOKEN, "ab", "c")
    assert not tokens.proven(right, TOKEN, "ab", "cx")
    assert not tokens.proven(right, TOKEN, "a", "bc")
    assert not tokens.proven(right, "x" + TOKEN, "ab", "c")
    for claimed in (None, 1, "", right[:-1], right.upper(), "ä" * 64, "\ud800"):
        assert not tokens.proven(claimed, TOKEN, "ab", "c")
    assert len({tokens.new_nonce() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("", False),
        ("example.org", False),
    ],
)
def test_loopback_addresses_are_known(host: str, expected: bool) -> None:
    assert tokens.is_loopback(host) == expected
