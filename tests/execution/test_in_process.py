"""Endpoints of a hub: how a killed one looks to the others."""

import threading

import numpy as np
import pytest
from transport_support import PATIENCE_S, Notes, transport_threads

from collapipe_env.execution.frames import Frame, FrameError, Limits, Tag
from collapipe_env.execution.transport import TransportError
from collapipe_env.execution.transport.in_process import InProcessHub


@pytest.fixture
def hub():
    hub = InProcessHub()
    yield hub
    hub.close()
    assert transport_threads() == []


def test_a_killed_endpoint_is_lost_once_after_what_it_had_sent(hub: InProcessHub) -> None:
    a, b, c, d = (hub.endpoint(name) for name in "abcd")
    notes_a, notes_b, notes_c, notes_d = Notes(a), Notes(b), Notes(c), Notes(d)
    for number in range(50):
        a.send("b", Frame("forward", Tag(step=number)))
        a.send("b", Frame("heartbeat", Tag(step=number)))
    c.send("a", Frame("forward"))
    notes_a.until_frames(1)
    hub.kill("a")
    hub.kill("a")
    a.send("b", Frame("forward"))
    assert notes_b.until_lost() == [("a", "closed the connection")]
    assert notes_c.until_lost() == [("a", "closed the connection")]
    assert notes_b.all == [("frame", "a")] * 100 + [("lost", "a")]
    c.send("a", Frame("forward"))
    d.send("a", Frame("forward"))  # its first frame comes too late
    assert [peer for peer, _ in notes_d.until_lost()] == ["a"]
    for end in (b, c, d):
        end.close()
    assert [len(notes.lost) for notes in (notes_a, notes_b, notes_c, notes_d)] == [0, 1, 1, 1]
    assert len(notes_a.frames) == 1


def test_a_killed_endpoint_hands_on_nothing_more(hub: InProcessHub) -> None:
    a, b = hub.endpoint("a"), hub.endpoint("b")
    busy, free = threading.Event(), threading.Event()

    def hold(peer: str, frame: Frame) -> None:
        busy.set()
        assert free.wait(PATIENCE_S)

    notes_a, notes_b = Notes(a, hold), Notes(b)
    for _ in range(5):
        b.send("a", Frame("forward"))
    assert busy.wait(PATIENCE_S)
    hub.kill("a")
    free.set()
    notes_b.until_lost()
    a.close()
    assert len(notes_a.frames) <= 1


def test_frames_wait_until_their_receiver_listens(hub: InProcessHub) -> None:
    a, b = hub.endpoint("a"), hub.endpoint("b")
    Notes(a)
    a.send("b", Frame("forward", arrays={"x": np.arange(3)}))
    notes = Notes(b)
    np.testing.assert_array_equal(notes.until_frames(1)[0].arrays["x"], [0, 1, 2])


def test_names_are_taken_once(hub: InProcessHub) -> None:
    hub.endpoint("a")
    with pytest.raises(TransportError, match="name a is taken"):
        hub.endpoint("a")
    with pytest.raises(TransportError, match="there is no process 'b': valid names: a"):
        hub.kill("b")


def test_limits_hold() -> None:
    hub = InProcessHub(Limits(payload=7))
    a, _ = hub.endpoint("a"), hub.endpoint("b")
    Notes(a)
    with pytest.raises(FrameError, match="limit of 7"):
        a.send("b", Frame("forward", arrays={"x": np.zeros(1)}))
    hub.close()
