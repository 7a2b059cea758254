"""Clocks of several machines: offsets by exchanges of times, their bounds, and rounds of shifted clocks."""

import itertools
import math
import re
import threading
import time
from dataclasses import replace

import pytest
from executed_support import Changed, InProcess, quick, weights
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.execution import launching, timekeeping
from collapipe_env.execution.clock import WallClock
from collapipe_env.execution.clock_offsets import ClockOffset, Exchange
from collapipe_env.execution.comparison_page import comparison_page
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.joining import ExecutionError, SilenceError, play_role
from collapipe_env.execution.launching import Launcher
from collapipe_env.execution.price_comparison import compare_round
from collapipe_env.execution.round_reports import Recorded
from collapipe_env.execution.timekeeping import EXCHANGES, MOST_EXCHANGES, Timekeeper, require_fine

ROUNDING_S = 1e-6
"""Far above what sums of times up to a million seconds lose in double precision."""
seconds = st.floats(0.0, 10.0)
exchanges = st.lists(st.tuples(seconds, seconds, seconds, seconds), min_size=1, max_size=10)


def exchanged(asked_s, there_s, work_s, back_s, offset):
    """An exchange by true times; ``offset`` gives the other clock's lead at a true time."""
    heard, answered = asked_s + there_s, asked_s + there_s + work_s
    return Exchange(asked_s, heard + offset(heard), answered + offset(answered), answered + back_s)


@given(exchanges, st.floats(-1e6, 1e6))
def test_offsets_are_known_to_half_of_the_fastest_round_trip_however_it_is_divided(ways, offset_s):
    now, made = 0.0, []
    for pause, there, work, back in ways:
        made.append(exchanged(now + pause, there, work, back, lambda _: offset_s))
        now = made[-1].back_s
    found = ClockOffset.of(made)
    assert abs(found.offset_s - offset_s) <= found.bound_s + ROUNDING_S
    assert found.bound_s == pytest.approx(min(there + back for _, there, _, back in ways) / 2, abs=ROUNDING_S)


def test_the_bound_is_reached_where_all_of_the_way_is_one_direction():
    found = ClockOffset.of([exchanged(0.0, 4.0, 1.0, 0.0, lambda _: 100.0)])
    assert found == ClockOffset(102.0, 2.0)


@given(
    ways=st.tuples(exchanges, exchanges),
    rate=st.floats(-0.5, 0.5),
    length_s=st.floats(0.0, 1e3),
    share=st.floats(0.0, 1.0),
)
def test_until_they_are_measured_again_clocks_of_other_rates_stay_within_the_bound(
    ways, rate, length_s, share
):
    def lead(true_s):
        return 50.0 + rate * true_s

    now, found = 0.0, []
    for several in ways:
        # No time on the machine itself and no exchange after another, in which the offset would change.
        made = [exchanged(now, there, 0.0, back, lead) for _, there, _, back in several]
        found.append(ClockOffset.of(made))
        now += length_s
    before, after = found
    drift_s = abs(rate) * 20.0  # while the times were exchanged
    true_s = share * length_s
    assert abs(before.offset_s - lead(true_s)) <= before.bound_until(after) + drift_s + ROUNDING_S


@given(
    exchanges,
    st.floats(-1e6, 1e6),
    st.floats(0.01, 100.0),
    st.floats(0.0, 1e3),
)
def test_times_of_a_round_by_another_clock_are_those_of_the_launchers_within_the_bound(
    ways, offset_s, scale, passed_s
):
    made = [exchanged(0.0, there, work, back, lambda _: offset_s) for _, there, work, back in ways]
    found, begins = ClockOffset.of(made), 100.0
    here, there = WallClock(scale), WallClock(scale, lambda: begins + passed_s + offset_s)
    here.restart(begins)
    there.restart(begins + found.offset_s)
    expected = here.read(begins + passed_s, 0.0)
    within = (found.bound_s + ROUNDING_S) / scale
    assert abs(there.read(there.machine(), 0.0) - expected) <= within
    assert abs(there.now(0.0) - expected) <= within
    assert abs(there.machine_time(expected) - there.machine()) <= found.bound_s + ROUNDING_S


class Peers:
    """Processes that answer at once, or as they are told to.

    Args:
        delays: Time on the way of each, there and back together [s]; ``None`` for one that is silent.
    """

    def __init__(self, delays):
        self.delays, self.asked, self.lost = dict(delays), dict.fromkeys(delays, 0), []
        self._news = []
        self.before = []
        """News that come before all answers."""

    def send(self, name, frame):
        assert frame.kind == "ping"
        self.asked[name] += 1
        if self.delays[name] is None:
            return
        here = time.monotonic()
        times = {"heard_s": here + 5.0, "answered_s": here + 5.0}
        back = replace(Frame("pong", frame.tag, meta=times), here_s=here + self.delays[name])
        self._news.append((name, back))

    def hear(self, deadline, what):
        assert deadline > time.monotonic()
        for news in (self.before, self._news):
            if news:
                return news.pop(0)
        raise SilenceError(f"no message came for too long while waiting for {what}")

    def lose(self, name, why):
        self.lost.append((name, why))

    def measure(self, *given):
        return Timekeeper(self.send, self.hear, self.lose).measure(list(self.delays), *given)


def test_every_process_is_asked_several_times_and_more_often_where_that_is_not_fine_enough():
    peers = Peers({"server": 0.2, "c0d0": 0.4})
    found = peers.measure()
    assert peers.asked == {"server": EXCHANGES, "c0d0": EXCHANGES}
    for name, delay in peers.delays.items():
        assert found[name].bound_s == pytest.approx(delay / 2, abs=1e-3)
        assert abs(found[name].offset_s - 5.0) <= found[name].bound_s + ROUNDING_S
    peers.measure(0.3)
    assert peers.asked["server"] == 2 * EXCHANGES
    peers.measure(0.01)
    assert peers.asked["server"] == 2 * EXCHANGES + MOST_EXCHANGES


def test_answers_to_earlier_questions_and_of_strangers_do_not_count():
    peers = Peers({"server": 0.2})
    late = Frame("pong", meta={"heard_s": 1e9, "answered_s": 1e9})
    peers.before += [("server", late), ("c0d6.1", late), ("c0d6.1", "closed the connection")]
    assert abs(peers.measure()["server"].offset_s - 5.0) < 0.2


def test_devices_that_have_no_time_are_let_go_and_others_end_the_execution():
    peers = Peers({"server": 0.2, "c0d0": None, "c0d1": 0.2})
    assert peers.measure().keys() == {"server", "c0d1"}
    assert [name for name, _ in peers.lost] == ["c0d0"]
    assert peers.asked["c0d0"] == 1
    peers = Peers({"server": 0.2, "c0d0": 0.2})
    peers.before.append(("c0d0", "closed the connection"))
    assert peers.measure().keys() == {"server"}
    assert peers.lost == [("c0d0", "closed the connection")]
    with pytest.raises(ExecutionError, match=r"c0 was lost .* has not reported its time for 10 s"):
        Peers({"server": 0.2, "c0": None}).measure()
    for news, words in (
        ("closed the connection", "server was lost while its clock was being read: closed the connection"),
        (Frame("failed", meta={"why": "no memory"}), "server failed: no memory"),
    ):
        peers = Peers({"server": None})
        peers.before.append(("server", news))
        with pytest.raises(ExecutionError, match=words):
            peers.measure()


@pytest.mark.parametrize("said", [{}, {"heard_s": "noon", "answered_s": 1.0}, {"heard_s": 1.0}])
def test_an_answer_without_times_is_one_clear_error(said):
    def hear(deadline, what):
        return "c0", Frame("pong", sent[-1].tag, meta=said)

    sent = []
    keeper = Timekeeper(lambda _, frame: sent.append(frame), hear, lambda *_: None)
    with pytest.raises(ExecutionError, match=r"c0 says that its time is .*: install the same release"):
        keeper.measure(["c0"])


def test_clocks_that_are_too_coarse_for_the_prices_are_refused_with_figures():
    offsets = {"server": ClockOffset(7.0, 0.001), "c0d1": ClockOffset(-3.0, 0.03)}
    require_fine(offsets, 0.12, 1.0, 1)
    require_fine(offsets, None, 1.0, 1)
    require_fine({}, 1e-6, 1.0, 1)
    words = (
        "the clock of c0d1 is known to 30 ms only, half of the fastest of 100 round trips, and the shortest "
        "operation of round 3 lasts 20 ms of wall time: --clock wall needs 5 ms or better. Use --time-scale "
        "13.2 or more, or --clock virtual"
    )
    with pytest.raises(ExecutionError, match=re.escape(words)):
        require_fine(offsets, 0.01, 2.0, 3)
    require_fine(offsets, 0.01, 13.2, 3)


SHIFTS = {"server": 1000.0, "c0": -2500.5, "c0d0": 1e6, "c0d1": 0.0}
"""Lead of each process's clock before the launcher's [s]."""


def shifted(name):
    return lambda: time.monotonic() + SHIFTS[name]


def joined(clock, scale=1.0):
    """Two rounds of processes whose clocks are shifted, joined as threads: compared, reports and scale."""
    scenario = quick(**{"cluster.clusters": 1, "cluster.devices": 2})
    twin = InProcess(scenario, Changed(scenario))
    with Launcher(scenario, Changed(scenario), clock=clock, scale=scale) as launcher:
        address, token = launcher.address, launcher.token
        others = [
            threading.Thread(target=play_role, args=(name, address, token), kwargs={"machine": shifted(name)})
            for name in SHIFTS
        ]
        for other in others:
            other.start()
        launcher.wait_for_others(60.0)
        played = []
        for _ in range(2):
            planned, result = launcher.play(patience=120.0)
            twin.play()
            played.append((planned, result))
        found = launcher.weights()
    for other in others:
        other.join(60.0)
        assert not other.is_alive()
    for mine, theirs in zip(found.values(), weights(twin.run), strict=True):
        assert (mine == theirs.numpy()).all()
    return played


@pytest.mark.slow
def test_by_the_wall_clock_shifted_clocks_measure_what_one_clock_would(monkeypatch):
    monkeypatch.setattr(timekeeping, "FINE", 1e6)  # this machine may be busy, and the round is a fast one
    monkeypatch.setattr(launching, "LEAD_S", 0.05)
    scale = 0.01
    played = joined("wall", scale)
    compared = [compare_round(n, *one, scale) for n, one in enumerate(played, 1)]
    for one, (_, result) in zip(compared, played, strict=True):
        # Readings of shifted clocks that were not converted would be wrong by 1,000 s or more.
        bound_s = one.clock_bound_s
        assert 0.0 < bound_s < 100.0
        for event in itertools.starmap(Recorded, result["events"]):
            assert -bound_s <= scale * (event.measured_end_s - event.end_s) < 100.0
            if not event.there_s:  # messages may leave before their line is free
                assert -bound_s <= scale * (event.began_s - event.start_s) < 100.0
        (cluster,) = one.clusters
        assert cluster.late_most_s > -bound_s
        assert scale * (cluster.step_measured_s - cluster.step_priced_s) > -bound_s
        assert scale * (one.delay_measured_s - one.delay_priced_s) > -bound_s
        assert one.delay_measured_s < one.delay_priced_s + 100.0 / scale
    page = comparison_page("rounds", compared, "wall").markdown()
    assert "clocks within" in page
    assert f"{1e3 * compared[1].clock_bound_s:.2f}" in page


def test_without_a_clock_times_of_processes_with_shifted_clocks_can_be_compared():
    for _, result in joined("none"):
        bound_s = result["clock_bound_s"]
        assert 0.0 < bound_s < 100.0
        for event in itertools.starmap(Recorded, result["events"]):
            ends = event.there_s or event.measured_end_s
            # The begin of a message is read by its sender, its end by its receiver.
            assert event.began_s - 2.0 * bound_s <= ends < 100.0
        assert 0.0 < result["delay_s"] < 100.0


def test_rounds_of_one_clock_have_no_bound():
    planned, result = joined("virtual")[0]
    assert result["clock_bound_s"] is None
    page = comparison_page("rounds", [compare_round(1, planned, result)], "virtual").markdown()
    assert "clocks within" not in page
    assert math.isclose(result["delay_s"], planned.record.costs.delay[0], abs_tol=1e-9)
