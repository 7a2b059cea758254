"""Clocks of several machines: offsets by exchanges of times, and their bounds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.execution.clock_offsets import ClockOffset, require_fine
from collapipe_env.ground.errors import CollaPipeError

ROUNDING_S = 1e-6
"""Far above what sums of times up to a million seconds lose in double precision."""
seconds = st.floats(0.0, 10.0)
exchanges = st.lists(st.tuples(seconds, seconds, seconds, seconds), min_size=1, max_size=10)


def exchanged(asked_s, there_s, work_s, back_s, offset):
    """Offset by an exchange at true times, and its end; ``offset`` gives the other clock's lead then."""
    heard, answered = asked_s + there_s, asked_s + there_s + work_s
    back = answered + back_s
    return ClockOffset.of(asked_s, heard + offset(heard), answered + offset(answered), back), back


def best(offsets):
    return min(offsets, key=lambda one: one.bound_s)


@given(exchanges, st.floats(-1e6, 1e6))
def test_offsets_are_known_to_half_of_the_fastest_round_trip_however_it_is_divided(ways, offset_s):
    now, made = 0.0, []
    for pause, there, work, back in ways:
        one, now = exchanged(now + pause, there, work, back, lambda _: offset_s)
        made.append(one)
    found = best(made)
    assert abs(found.offset_s - offset_s) <= found.bound_s + ROUNDING_S
    assert found.bound_s == pytest.approx(min(there + back for _, there, _, back in ways) / 2, abs=ROUNDING_S)


def test_the_bound_is_reached_where_all_of_the_way_is_one_direction():
    found, _ = exchanged(0.0, 4.0, 1.0, 0.0, lambda _: 100.0)
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
        made = [exchanged(now, there, 0.0, back, lead)[0] for _, there, _, back in several]
        found.append(best(made))
        now += length_s
    before, after = found
    drift_s = abs(rate) * 20.0  # while the times were exchanged
    true_s = share * length_s
    assert abs(before.offset_s - lead(true_s)) <= before.bound_until(after) + drift_s + ROUNDING_S


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
    with pytest.raises(CollaPipeError, match=re.escape(words)):
        require_fine(offsets, 0.01, 2.0, 3)
    require_fine(offsets, 0.01, 13.2, 3)
