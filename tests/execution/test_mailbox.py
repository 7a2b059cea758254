"""Mailbox: every interleaving of arrivals, waits and failures, against a plain list; threads that wait."""

import itertools
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.mailbox import Cancelled, Mailbox

PATIENCE_S = 30.0
"""Far above any wait that ends."""


class LostError(Exception):
    pass


class Waiter(threading.Thread):
    """Waits in a thread of its own, and keeps how that ended."""

    def __init__(self, mailbox: Mailbox, *wanted: tuple[str, Tag]) -> None:
        super().__init__(daemon=True)
        self.mailbox, self.wanted = mailbox, wanted
        self.ended: object = None
        before = len(mailbox.waits())
        self.start()
        # Until it waits or has ended: what comes next is to find it so.
        while self.is_alive() and len(mailbox.waits()) <= before:
            time.sleep(0)

    def run(self) -> None:
        try:
            self.ended = self.mailbox.wait_any(self.wanted, PATIENCE_S)
        except (Cancelled, LostError) as error:
            self.ended = error


def settled(waiters: list[Waiter], mailbox: Mailbox, waiting: int) -> None:
    """Let waits end until only so many are left."""
    while len(mailbox.waits()) > waiting:
        time.sleep(0)
    for waiter in waiters:
        if waiter.wanted not in mailbox.waits():
            waiter.join(PATIENCE_S)


KEYS = [("f", Tag(0, 0)), ("f", Tag(0, 1)), ("f", Tag(1, 0)), ("b", Tag(0, 1))]


class Listed:
    """The meaning of a mailbox, with lists, for waits that do not wait."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.cancelled = (-1, -1)
        self.error: Exception | None = None

    def put(self, frame: Frame) -> bool:
        kept = self.error is None and (frame.tag.round, frame.tag.attempt) > self.cancelled
        self.frames += [frame] * kept
        return kept

    def cancel(self, round: int, attempt: int) -> None:
        self.cancelled = max(self.cancelled, (round, attempt))
        self.frames = [f for f in self.frames if (f.tag.round, f.tag.attempt) > self.cancelled]

    def fail(self, error: Exception) -> None:
        self.error = self.error or error
        self.frames = []

    def wait_any(self, wanted) -> Frame:
        if self.error:
            raise self.error
        if any((tag.round, tag.attempt) <= self.cancelled for _, tag in wanted):
            raise Cancelled(*self.cancelled)
        for kind, tag in wanted:
            for frame in self.frames:
                if (frame.kind, frame.tag) == (kind, tag):
                    self.frames.remove(frame)
                    return frame
        raise TimeoutError


def outcome(call: Callable[[], Frame]) -> object:
    """Result of a call, or its error."""
    try:
        return call()
    except (Cancelled, LostError, TimeoutError) as error:
        return error


ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("wait"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)),
    st.tuples(st.just("cancel"), st.sampled_from([(0, 0), (0, 1), (1, 0)])),
    st.tuples(st.just("fail"), st.just(None)),
)


@given(st.lists(ACTIONS, max_size=30))
def test_mailboxes_do_what_lists_do(actions) -> None:
    mailbox, listed = Mailbox(), Listed()
    for action, what in actions:
        if action == "put":
            frame = Frame(*what)
            assert mailbox.put(frame) == listed.put(frame)
        elif action == "cancel":
            mailbox.cancel(*what)
            listed.cancel(*what)
            assert mailbox.cancelled == listed.cancelled
        elif action == "fail":
            error = LostError()
            mailbox.fail(error)
            listed.fail(error)
        else:
            expected = outcome(partial(listed.wait_any, what))
            found = outcome(partial(mailbox.wait_any, what, timeout=0))
            if isinstance(expected, Cancelled | TimeoutError):
                assert type(found) is type(expected)
                assert not isinstance(found, Cancelled) or (found.round, found.attempt) == listed.cancelled
            else:
                assert found is expected
    assert sorted(mailbox.held()) == sorted((f.kind, f.tag) for f in listed.frames)
    assert mailbox.waits() == []


X, Y = ("f", Tag(0, 1, 2)), ("b", Tag(0, 1, 3))
STEPS = ("wait X", "wait Y or X", "put X", "put Y", "cancel", "fail")


@pytest.mark.parametrize("first", STEPS)
def test_every_interleaving_of_two_waits_ends_as_it_should(first: str) -> None:
    rest = [step for step in STEPS if step != first]
    for order in itertools.permutations(rest):
        require_all_waits_end((first, *order))


def require_all_waits_end(order: tuple[str, ...]) -> None:
    """Require that both waits end in this order, each as what came first for it says."""
    mailbox, error = Mailbox(), LostError()
    frames = {"X": Frame(*X), "Y": Frame(*Y)}
    waiters: dict[str, Waiter] = {}
    open_waits: list[str] = []
    there: list[str] = []
    expected: dict[str, object] = {}
    state = "open"
    for step in order:
        what = step.split(" ", 1)
        if what[0] == "wait":
            wanted = {"X": [X], "Y or X": [Y, X]}[what[1]]
            found = [name for name in ("Y", "X") if name in there and name in what[1]]
            if state != "open":
                expected[what[1]] = state
            elif found:
                expected[what[1]] = frames[found[0]]
                there.remove(found[0])
            else:
                open_waits.append(what[1])
            waiters[what[1]] = Waiter(mailbox, *wanted)
        elif what[0] == "put":
            takers = [wait for wait in open_waits if what[1] in wait]
            kept = mailbox.put(frames[what[1]])
            assert kept == (state == "open")
            if kept and takers:
                # Either of two may take it: whoever of them is left waits on.
                taken = [wait for wait in takers if _ended_with(waiters[wait], mailbox, len(open_waits) - 1)]
                assert len(taken) == 1
                expected[taken[0]] = frames[what[1]]
                open_waits.remove(taken[0])
            elif kept:
                there.append(what[1])
        else:
            if what[0] == "cancel":
                mailbox.cancel(0, 1)
            else:
                mailbox.fail(error)
            state = "fail" if "fail" in (what[0], state) else "cancel"
            for wait in open_waits:
                expected[wait] = what[0]
            open_waits, there = [], []
        settled(list(waiters.values()), mailbox, len(open_waits))
    for name, waiter in waiters.items():
        match expected[name]:
            case "cancel":
                assert isinstance(waiter.ended, Cancelled)
                assert str(waiter.ended) == "attempt 1 at round 0 was cancelled"
            case "fail":
                assert waiter.ended is error
            case frame:
                assert waiter.ended is frame
    assert mailbox.held() == []


def _ended_with(waiter: Waiter, mailbox: Mailbox, waiting: int) -> bool:
    settled([], mailbox, waiting)
    if waiter.wanted in mailbox.waits():
        return False
    waiter.join(PATIENCE_S)
    return not waiter.is_alive()


def test_a_late_frame_is_named() -> None:
    with pytest.raises(TimeoutError, match=r"in 0 s: f of round 0, attempt 1, step 2, place 0, micro"):
        Mailbox().wait(*X, timeout=0)
    with pytest.raises(TimeoutError, match="; and 2 more"):
        Mailbox().wait_any([X] * 5, timeout=0)
    with pytest.raises(ValueError, match="at least one kind"):
        Mailbox().wait_any([])
