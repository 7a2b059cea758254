"""Clocks: what is due and what was read; and the records of messages that are read late."""

import pytest

from collapipe_env.execution import clock as clocks
from collapipe_env.execution.clock import MachineClock, WallClock, make_clock
from collapipe_env.execution.roles import TimedRole
from collapipe_env.execution.round_reports import Recorded


class FakeTime:
    """Time that passes by sleeping and by being looked at, and by nothing else."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.waited = 0.0

    def monotonic(self) -> float:
        self.seconds += 1e-5
        return self.seconds

    def thread_time(self) -> float:
        return self.seconds - self.waited

    def sleep(self, seconds: float) -> None:
        assert seconds > 0.0
        self.seconds += seconds


@pytest.fixture
def fake(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(clocks, "time", fake)
    return fake


def test_the_wall_clock_waits_for_scaled_times_and_lets_late_operations_end_late(fake):
    clock = WallClock(2.0)
    clock.restart(1010.0)
    assert clock.begin(1.0) == 1.0
    assert 1012.0 <= fake.seconds < 1012.001
    assert clock.finish(4.0) == 4.0
    assert 1018.0 <= fake.seconds < 1018.001
    # What has taken longer than its price ends when it ends: nobody sleeps.
    fake.seconds = 1030.0
    assert clock.finish(5.0) == pytest.approx(10.0, abs=1e-4)
    assert fake.seconds < 1030.001
    assert clock.now(5.0) == pytest.approx(10.0, abs=1e-4)


def test_a_slower_machine_sleeps_the_rest_of_its_operations(fake):
    clock = MachineClock(3.0)
    clock.restart(990.0)
    began = clock.begin(77.0)
    assert began == pytest.approx(10.0, abs=1e-3)
    fake.seconds += 2.0  # the computation
    assert clock.finish(78.0) == pytest.approx(16.0, abs=1e-3)
    # Of 2 s for which the thread had a core in 7: the rest of a slower machine's time is 4 s, not 14 s.
    clock.begin(0.0)
    fake.seconds, fake.waited = fake.seconds + 7.0, 5.0
    assert clock.finish(0.0) == pytest.approx(16.0 + 7.0 + 4.0, abs=1e-3)
    # Nothing that is priced is waited for.
    assert clock.lasts(5.0) == 0.0


def test_a_machine_that_is_not_slowed_down_never_sleeps(fake):
    clock = make_clock("none")
    clock.restart(fake.seconds)
    clock.begin(50.0)
    assert clock.finish(60.0) < 1e-3


def test_unknown_clocks_are_refused():
    with pytest.raises(ValueError, match="clock 'sun': use virtual, wall or none"):
        make_clock("sun")


def test_messages_are_late_by_what_their_receiver_has_waited_for(fake):
    sender, receiver = TimedRole(0, "wall", 2.0), TimedRole(0, "wall", 2.0)
    for role in (sender, receiver):
        role.begin_round(1000.0)
        role.start_step(1)
    fake.seconds = 1002.0
    first = sender.send((2, 0), 1.0, (3.0, 0.5), (0, 4), None, 4)
    second = sender.send((2, 0), 1.5, (3.0, 0.5), (0, 4), None, 4)  # the link is free at 4 s
    assert (first.at_s, second.at_s) == (4.5, 7.5)
    fake.seconds = 1012.0  # 6 s of the round
    assert receiver.receive([first], 0, 2.0) == 4.5
    assert receiver.receive([second], 1, 5.0) == 7.5
    assert receiver.receive([first], 2, 5.5) == 5.5  # it was busy until then
    late, early, busy = (Recorded(*row) for row in receiver.events)
    assert (late.element, late.step, late.start_s, late.end_s) == (2, 1, 1.0, 4.0)
    assert late.measured_end_s - late.end_s == pytest.approx(1.5, abs=1e-3)
    assert (early.start_s, early.measured_end_s, early.there_s) == (4.0, 7.0, 7.5)
    assert busy.measured_end_s - busy.end_s == pytest.approx(0.5, abs=1e-3)
    assert [event.samples for event in (late, early, busy)] == [4, 4, 4]


def test_by_the_machines_clock_messages_take_what_they_take(fake):
    role = TimedRole(0, "none", 1.0)
    role.begin_round(1000.0)
    role.start_step(0)
    fake.seconds = 1001.0
    message = role.send((0, 0), 1.0, (3.0, 0.5), (0, 4), None, 4)
    fake.seconds = 1003.0
    assert role.receive([message], 0) == pytest.approx(3.0, abs=1e-3)
    (event,) = (Recorded(*row) for row in role.events)
    assert event.there_s - event.began_s == pytest.approx(2.0, abs=1e-3)
