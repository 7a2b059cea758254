"""Clocks and deliveries: what is due, what was read, and that nothing comes early."""

import threading
import time

import pytest
from executed_support import Changed, InProcess, quick, same_weights
from threaded_execution import ThreadedExecution

from collapipe_env.execution import clock as clocks
from collapipe_env.execution.clock import MachineClock, WallClock, make_clock
from collapipe_env.execution.deliveries import Deliveries
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.lines import Transfer
from collapipe_env.execution.mailbox import Mailbox
from collapipe_env.execution.price_comparison import compare_round
from collapipe_env.execution.role import line_of, received
from collapipe_env.execution.round_reports import Recorded

PATIENCE_S = 30.0
"""Far above any wait that ends."""
OFF_S = 100.0
"""Priced seconds by which a clock is read wrongly: far above any lateness of a round."""


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
    assert clock.machine_time(3.0) == 1016.0
    assert clock.begin(1.0) == 1.0
    assert 1012.0 <= fake.seconds < 1012.001
    assert clock.finish(4.0) == 4.0
    assert 1018.0 <= fake.seconds < 1018.001
    # What has taken longer than its price ends when it ends: nobody sleeps.
    fake.seconds = 1030.0
    assert clock.finish(5.0) == pytest.approx(10.0, abs=1e-4)
    assert fake.seconds < 1030.001
    assert clock.now(5.0) == pytest.approx(10.0, abs=1e-4)
    assert clock.wait(12.0) == pytest.approx(4.0, abs=1e-3)
    assert clock.wait(9.0) == 0.0


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
    assert clock.wait(1e6) == 0.0
    assert not clock.comes_later(1e6, 0.0)


def test_a_machine_that_is_not_slowed_down_never_sleeps(fake):
    clock = make_clock("none")
    clock.restart(fake.seconds)
    clock.begin(50.0)
    assert clock.finish(60.0) < 1e-3


def test_unknown_clocks_are_refused():
    with pytest.raises(ValueError, match="clock 'sun': use virtual, wall or none"):
        make_clock("sun")


def delivering(scale=1.0):
    """Deliveries by a wall clock whose round has just begun, with their mailbox."""
    clock = WallClock(scale)
    clock.restart(time.monotonic())
    deliveries = Deliveries(clock, "d")
    deliveries.begin(0)
    return clock, deliveries, Mailbox()


def test_messages_are_handed_out_when_due_whatever_order_they_come_in():
    clock, deliveries, mailbox = delivering(0.1)
    due = {3: 0.9, 1: 0.3, 2: 0.6}
    for m, at_s in due.items():
        deliveries.deliver(Frame("f", Tag(0, micro_batch=m), at_s), mailbox)
    assert deliveries.arrival(("f", Tag(0, micro_batch=3)), mailbox) == 0.9
    found = []
    for m in (1, 2, 3):
        frame = mailbox.wait("f", Tag(0, micro_batch=m), PATIENCE_S)
        assert clock.now(0.0) >= clock.read(frame.here_s, 0.0) >= due[m]
        found.append(frame.here_s)
    assert found == sorted(found)
    deliveries.stop()


def test_messages_of_a_round_that_has_not_begun_are_kept_until_it_has():
    clock, deliveries, mailbox = delivering()
    deliveries.deliver(Frame("f", Tag(1), 1e-6), mailbox)
    deliveries.deliver(Frame("f", Tag(0), 0.02), mailbox)
    mailbox.wait("f", Tag(0), PATIENCE_S)
    assert mailbox.peek("f", Tag(1)) is None
    clock.restart(time.monotonic())
    deliveries.begin(1)
    assert mailbox.wait("f", Tag(1), PATIENCE_S).at_s == 1e-6
    deliveries.stop()


def test_messages_left_over_from_a_round_hold_up_none_of_the_next():
    clock, deliveries, mailbox = delivering()
    deliveries.deliver(Frame("f", Tag(0), 1e6), mailbox)  # of an attempt that was given up
    clock.restart(time.monotonic())
    deliveries.begin(1)
    deliveries.deliver(Frame("f", Tag(1), 0.01), mailbox)
    assert clock.read(mailbox.wait("f", Tag(1), 5.0).here_s, 0.0) >= 0.01
    assert deliveries.arrival(("f", Tag(0)), mailbox) is None
    deliveries.stop()


@pytest.mark.parametrize("name", ["virtual", "none"])
def test_other_clocks_hand_messages_out_at_once(name):
    deliveries, mailbox = Deliveries(make_clock(name), "d"), Mailbox()
    before = threading.active_count()
    deliveries.deliver(Frame("f", Tag(0), 1e6), mailbox)
    assert mailbox.wait("f", Tag(0), 0).at_s == 1e6
    assert threading.active_count() == before


def test_a_message_that_comes_before_its_receiver_begins_the_round_is_read_by_that_round():
    clock, mailbox = make_clock("none"), Mailbox()
    clock.restart(time.monotonic() - OFF_S)  # the round before
    deliveries = Deliveries(clock, "d")
    begins = time.monotonic()
    line = line_of(0, 0, Transfer(0.0, 0.0, 0.0), 0.0, 4)
    deliveries.deliver(Frame("f", Tag(1), 0.0, {"line": line["line"]}), mailbox)
    clock.restart(begins)
    (event,) = received(0, mailbox.wait("f", Tag(1), 0), clock)
    assert 0.0 <= event.there_s <= time.monotonic() - begins < OFF_S
    assert event.measured_end_s == event.there_s


def test_messages_without_a_time_are_handed_out_at_once_and_none_after_the_end():
    _, deliveries, mailbox = delivering()
    deliveries.deliver(Frame("f", Tag(0)), mailbox)
    mailbox.wait("f", Tag(0), 0)
    deliveries.stop()
    deliveries.deliver(Frame("f", Tag(0), 1e-6), mailbox)
    assert deliveries.arrival(("f", Tag(0)), mailbox) is None
    with pytest.raises(TimeoutError):
        mailbox.wait("f", Tag(0), 0.01)


def played(clock, scale, schedule="1f1b"):
    """A round by a clock: planned, report and its comparison; weights are those of the learner."""
    scenario = quick()
    plan = {"schedule": schedule, "micro_batches": 4}
    execution = ThreadedExecution(scenario, Changed(scenario, **plan), clock=clock, scale=scale)
    twin = InProcess(scenario, Changed(scenario, **plan))
    try:
        planned, result = execution.play(begins=time.monotonic() + 0.05)
        twin.play()
        assert same_weights(execution.federation, twin.run)
    finally:
        execution.close()
    return planned, result, compare_round(1, planned, result, scale if clock == "wall" else 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_by_the_wall_clock_everything_is_late_and_nothing_early(schedule):
    planned, result, compared = played("wall", 0.05, schedule)
    events = [Recorded(*row) for row in result["events"]]
    assert all(e.start_s >= 0.0 for e in events)
    assert all(e.measured_end_s >= e.end_s for e in events)
    # Two readings are never the numbers that were due.
    assert all(e.measured_end_s > e.end_s for e in events if e.there_s == 0.0)
    assert all(e.began_s >= e.start_s for e in events if e.there_s == 0.0)
    for cluster in compared.clusters:
        assert cluster.step_measured_s > cluster.step_priced_s
        assert cluster.late_most_s >= cluster.late_mean_s > 0.0
    assert result["delay_s"] > planned.record.costs.delay[0]


def test_the_measured_step_follows_the_clock_that_is_read_rather_than_the_due_times(monkeypatch):
    read = WallClock.read
    monkeypatch.setattr(WallClock, "read", lambda clock, *times: read(clock, *times) + OFF_S)
    planned, result, compared = played("wall", 0.05)
    for cluster in compared.clusters:
        assert cluster.step_measured_s > cluster.step_priced_s + OFF_S
    # What is due does not: the wrong readings are shown, and nothing is planned by them.
    ends = [Recorded(*row).end_s for row in result["events"]]
    assert max(ends) < planned.record.costs.delay[0] + OFF_S


def test_by_the_machines_clock_nothing_is_due_and_prices_do_not_matter():
    _, result, compared = played("none", 1.0)
    assert not result["emulated"]
    for cluster in compared.clusters:
        assert cluster.late_most_s is None
        assert cluster.overruns is None
        assert cluster.step_measured_s > 0.0
    events = [Recorded(*row) for row in result["events"]]
    assert all(e.measured_end_s >= e.began_s + e.worked_s - 1e-3 for e in events if e.there_s == 0.0)
    assert {e.samples for e in events} != {0}
