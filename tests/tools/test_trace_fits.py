"""Fits of traces: moments by hand and of known processes, mixtures against a numerical search."""

import math

import numpy as np
import pytest
from fitting.trace_fits import LAGS_S, Mixture, decibels, fitted_mixture, moments
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from collapipe_env.ground.errors import DataError
from collapipe_env.trace_files import Trace


def trace(values, unit="dBm"):
    values = np.asarray(values, dtype=float)
    return Trace("t", np.arange(float(len(values))), values, unit, float(len(values)))


def test_moments_by_hand():
    """Two square waves of one period that all lags share: correlations are plus or minus one."""
    wave = np.tile([1.0, 1.0, -1.0, -1.0], 50)
    found = moments([trace(-80.0 + 3.0 * wave), trace(-90.0 + 3.0 * wave[:100])])
    assert (found.files, found.seconds) == (2, 300)
    assert found.mean_db == pytest.approx((200 * -80 + 100 * -90) / 300)
    assert found.between_db == pytest.approx(5.0)
    assert found.within_db == pytest.approx(3.0)
    # A lag of 60 is 15 whole periods, one of 10 two and a half.
    assert found.correlation[60] == pytest.approx(1.0)
    assert found.correlation[10] == pytest.approx(-1.0)
    assert abs(found.correlation[1]) < 0.02


def test_decibels_of_rates_have_a_floor():
    values = decibels(trace([0.0, 1e5, 1e6, 1e7], "bit/s"))
    np.testing.assert_allclose(values, [-10.0, -10.0, 0.0, 10.0])


def test_traces_that_say_nothing_are_refused():
    with pytest.raises(DataError, match="the longest trace has 60 s"):
        moments([trace(np.arange(60.0))])
    with pytest.raises(DataError, match="the longest trace has 0 s"):
        moments([])
    with pytest.raises(DataError, match="no trace varies"):
        moments([trace(np.full(100, -80.0))])


@settings(max_examples=25)
@given(st.floats(0.0, 1.0), st.floats(1.0, 5.0), st.floats(30.0, 300.0))
def test_a_mixture_is_found_again(weight, short, long):
    wanted = {lag: weight * math.exp(-lag / short) + (1.0 - weight) * math.exp(-lag / long) for lag in LAGS_S}
    found = fitted_mixture(wanted)
    assert sum(found.weights) == pytest.approx(1.0)
    assert all(0.0 <= w <= 1.0 for w in found.weights)
    for lag, value in wanted.items():
        assert found.correlation(lag) == pytest.approx(value, abs=0.012)


@pytest.mark.parametrize(
    "wanted", [{1: 0.87, 10: 0.43, 60: -0.03}, {1: 0.5, 10: 0.6, 60: 0.1}, {1: 0.9, 10: 0.1, 60: 0.0}]
)
def test_no_mixture_is_much_nearer(wanted):
    """A search by gradients from several starts finds no better one."""
    lags = np.array(list(wanted))
    values = np.maximum(list(wanted.values()), 0.0)

    def miss(x):
        w = 1.0 / (1.0 + math.exp(-x[0]))
        return w * np.exp(-lags / math.exp(x[1])) + (1.0 - w) * np.exp(-lags / math.exp(x[2])) - values

    bounds = ([-30.0, math.log(0.1), math.log(0.1)], [30.0, math.log(3000.0), math.log(3000.0)])
    starts = [(0.0, a, b) for a in (-1.0, 1.0, 3.0) for b in (0.0, 3.0, 6.0)]
    best = min(float(np.sum(optimize.least_squares(miss, s, bounds=bounds).fun ** 2)) for s in starts)
    found = fitted_mixture(wanted)
    error = sum((found.correlation(lag) - value) ** 2 for lag, value in zip(lags, values, strict=True))
    assert error <= best + 2e-4


def test_the_correlation_of_a_mixture():
    mixture = Mixture((0.25, 0.75), (2.0, 50.0))
    assert mixture.correlation(0.0) == pytest.approx(1.0)
    assert mixture.correlation(10.0) == pytest.approx(0.25 * math.exp(-5.0) + 0.75 * math.exp(-0.2))
