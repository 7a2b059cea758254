"""Connections of TCP: order, large arrays, losses, goodbyes and what is left after them."""

import itertools
import logging
import threading

import numpy as np
import pytest
from transport_support import PATIENCE_S, Notes

from collapipe_env.execution.frames import Frame, FrameError, Tag
from collapipe_env.execution.transport import TransportError


def test_frames_of_each_thread_arrive_in_order_on_each_channel(network) -> None:
    a, b = network("a", "b")
    notes_a, notes = Notes(a), Notes(b)

    def send(sender: int) -> None:
        for number in range(50):
            tag, arrays = Tag(place=sender, step=number), {"x": np.full(20_000, number)}
            a.send("b", Frame("forward", tag, arrays=arrays))
            a.send("b", Frame("heartbeat", tag))
            b.send("a", Frame("backward", tag))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    frames = [*notes.until_frames(400), *notes_a.until_frames(200)]
    for kind, sender in itertools.product(("forward", "heartbeat", "backward"), range(4)):
        own = [frame for frame in frames if (frame.kind, frame.tag.place) == (kind, sender)]
        assert [frame.tag.step for frame in own] == list(range(50))
        assert all((frame.arrays["x"] == frame.tag.step).all() for frame in own if frame.arrays)
    assert {peer for peer, _ in notes.frames} == {"a"}


def test_large_arrays_arrive_as_they_were_when_they_were_sent(network) -> None:
    a, b = network("a", "b")
    Notes(a)
    notes = Notes(b)
    array = np.arange(2_000_000, dtype=np.float64)
    sizes = [0, 1, 7, 1000, 100_000, array.size]
    for size in sizes:
        part = array[:size].copy()
        a.send("b", Frame("forward", arrays={"x": part, "y": part.astype(np.int16)}))
        part += 1  # by then, the frame is the transport's
    for size, frame in zip(sizes, notes.until_frames(len(sizes)), strict=True):
        np.testing.assert_array_equal(frame.arrays["x"], array[:size])
        np.testing.assert_array_equal(frame.arrays["y"], array[:size].astype(np.int16))
        frame.arrays["x"][:] = 0  # its receiver may use the memory


def test_a_busy_channel_does_not_hold_up_the_others(network) -> None:
    a, b, c = network("a", "b", "c")
    Notes(a)
    Notes(b)
    free = threading.Event()
    notes = Notes(c, lambda peer, frame: None if frame.kind == "heartbeat" or peer == "b" else _wait(free))
    for _ in range(4):
        a.send("c", Frame("forward", arrays={"x": np.zeros(2_000_000)}))
    a.send("c", Frame("heartbeat"))
    a.send("c", Frame("forward"), channel="control")
    b.send("c", Frame("forward"))
    notes.until(
        lambda: {(peer, frame.kind) for peer, frame in notes.frames} == {("a", "heartbeat"), ("b", "forward")}
    )
    free.set()
    notes.until_frames(7)


def _wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE_S)


def test_a_goodbye_is_no_loss_and_nothing_is_left_behind(network, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    a, b, c = network("a", "b", "c")
    notes_a, notes_b, notes_c = Notes(a), Notes(b), Notes(c)
    a.send("b", Frame("forward"))
    c.send("a", Frame("forward"))
    notes_b.until_frames(1)
    notes_a.until_frames(1)
    for number in range(20):
        a.send("b", Frame("forward", Tag(step=number), arrays={"x": np.zeros(300_000)}))
    a.send("b", Frame("stop"))
    a.close()  # after what is still to be sent
    a.close()
    assert len(notes_b.until_frames(22)) == 22
    for _ in range(3):
        b.send("a", Frame("backward"))
        c.send("a", Frame("backward"))
        a.send("b", Frame("forward"))
    b.send("c", Frame("forward"))
    notes_c.until_frames(1)
    b.close()
    c.close()
    assert notes_a.lost == notes_b.lost == notes_c.lost == []
    assert len(notes_b.frames) == 22
    assert caplog.records == []


def test_a_dropped_peer_learns_it_and_is_not_reported(network) -> None:
    a, b, c, mute = network("a", "b", "c", "mute")
    notes_a, notes_b, notes_c, notes_mute = Notes(a), Notes(b), Notes(c), Notes(mute)
    a.send("b", Frame("forward"))
    b.send("a", Frame("forward"))
    b.send("a", Frame("heartbeat"))
    c.send("a", Frame("forward"))
    notes_a.until_frames(3)
    notes_b.until_frames(1)
    a.drop("b")
    assert notes_b.until_lost() == [("a", "closed the connection")]
    a.send("b", Frame("forward"))
    b.send("a", Frame("forward"))
    a.drop("b")
    # Who only sends learns it too, and so does who was dropped before it came.
    c.send("mute", Frame("forward"))
    notes_mute.until_frames(1)
    mute.drop("c")
    assert notes_c.until_lost() == [("mute", "closed the connection")]
    a.drop("mute")
    mute.send("a", Frame("forward"))
    assert [peer for peer, _ in notes_mute.until_lost()] == ["a"]
    # Frames to others go on.
    a.send("c", Frame("forward"))
    notes_c.until_frames(1)
    c.send("b", Frame("forward"))
    notes_b.until_frames(2)
    assert notes_a.lost == []
    assert len(notes_a.frames) == 3
    assert len(notes_b.lost) == 1
    assert [peer for peer, _ in notes_b.frames] == ["a", "c"]


def test_frames_that_cannot_be_handled_end_their_sender(network, caplog) -> None:
    a, b, c = network("a", "b", "c")
    Notes(a)
    Notes(c)

    def fail(peer: str, frame: Frame) -> None:
        if peer == "a":
            raise ZeroDivisionError("no such step")

    notes = Notes(b, fail)
    a.send("b", Frame("forward"))
    ((peer, reason),) = notes.until_lost()
    assert peer == "a"
    assert "its frame 'forward' could not be handled: no such step" in reason
    assert "ZeroDivisionError" in caplog.text
    c.send("b", Frame("forward"))
    notes.until_frames(1)


def test_wrong_calls_are_refused(network) -> None:
    a, _ = network("a", "b")
    with pytest.raises(TransportError, match="a sends before it listens"):
        a.send("b", Frame("forward"))
    Notes(a)
    with pytest.raises(TransportError, match="listens already"):
        Notes(a)
    with pytest.raises(TransportError, match=r"'bb'.*did you mean 'b'"):
        a.send("bb", Frame("forward"))
    with pytest.raises(TransportError, match="to itself"):
        a.send("a", Frame("forward"))
    with pytest.raises(TransportError, match="kept for transports"):
        a.send("b", Frame("bye"))
    with pytest.raises(FrameError, match="complex"):
        a.send("b", Frame("forward", arrays={"x": np.zeros(1, complex)}))
    with pytest.raises(TransportError, match="name 'b c' cannot be that of a process"):
        a.drop("b c")
