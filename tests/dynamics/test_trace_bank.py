"""Bank of traces: windows against sums by hand and means of many points."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.dynamics.trace_bank import TraceBank
from collapipe_env.trace_files import Trace


def held(values, seconds=None, duration=None, name="t"):
    values = np.asarray(values, dtype=float)
    seconds = np.arange(float(len(values))) if seconds is None else np.asarray(seconds, dtype=float)
    return Trace(name, seconds, values, "dBm", float(duration or seconds[-1] + 1.0))


def windows(bank, trace, begin, seconds):
    begin = np.atleast_1d(np.asarray(begin, dtype=float))
    return bank.means_between(np.full(begin.shape, trace), begin[:, None] + [0.0, seconds])[..., 0]


def test_windows_by_hand():
    bank = TraceBank([held([5.0] * 3), held([1.0, 2.0, 4.0, 8.0])])
    assert windows(bank, 1, 0.0, 2.0) == pytest.approx(1.5)
    assert windows(bank, 1, 1.5, 2.0) == pytest.approx((0.5 * 2 + 4 + 0.5 * 8) / 2)
    # At its end, at 4 s, it goes back: 4, 8 | 8, 4, 2, 1 | 1, 2.
    assert windows(bank, 1, 3.0, 2.0) == pytest.approx(8.0)
    assert windows(bank, 1, 2.0, 6.0) == pytest.approx((4 + 8 + 8 + 4 + 2 + 1) / 6)
    assert windows(bank, 1, 7.0, 3.0) == pytest.approx((1 + 1 + 2) / 3)
    assert windows(bank, 1, 800.0 + 3.0, 2.0) == pytest.approx(8.0)
    assert windows(bank, 0, 2.9, 1.0) == pytest.approx(5.0)
    np.testing.assert_allclose(bank.means.values, [5.0, 3.75])
    np.testing.assert_allclose(bank.lengths_s.values, [3.0, 4.0])


def test_a_constant_trace_is_constant_to_the_last_bit():
    bank = TraceBank([held(np.full(5000, -87.3)), held(np.full(7, 3.1e7))])
    begin = np.random.default_rng(0).uniform(0.0, 1e6, 200)
    assert (windows(bank, 0, begin, 9.7) == -87.3).all()
    assert (windows(bank, 1, begin, 0.3) == 3.1e7).all()


@st.composite
def traces(draw):
    gaps = draw(st.lists(st.floats(0.2, 5.0), min_size=3, max_size=12))
    seconds = np.concatenate(([0.0], np.cumsum(gaps[:-1])))
    values = draw(st.lists(st.floats(-120.0, -40.0), min_size=len(gaps), max_size=len(gaps)))
    return held(values, seconds, max(2.0, seconds[-1] + gaps[-1]))


def value_at(trace, time):
    """Value of a played trace at a time: a triangle wave of its duration, and the sample that holds there."""
    time = np.abs((time + trace.duration_s) % (2.0 * trace.duration_s) - trace.duration_s)
    return trace.values[np.searchsorted(trace.seconds, time, side="right") - 1]


@settings(max_examples=25, deadline=None)
@given(st.lists(traces(), min_size=1, max_size=4), st.floats(0.0, 200.0), st.floats(0.5, 40.0))
def test_windows_are_means_of_many_points(found, begin, seconds):
    bank = TraceBank(found)
    points = begin + seconds * (np.arange(40_000) + 0.5) / 40_000
    for index, trace in enumerate(found):
        expected = value_at(trace, points).mean()
        # Each change of the held value is met by one of the points at most half a point off.
        slack = 80.0 * (seconds / 40_000) * 12 * (seconds / trace.duration_s + 2.0) / seconds
        assert windows(bank, index, begin, seconds)[0] == pytest.approx(expected, abs=slack)
