"""Made traces: the law of their profile, the same ones for ever, and profiles against the data sets."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from trace_support import data, needs_data  # noqa: F401 - a fixture

from collapipe_env.dynamics.trace_like import FEWEST, PROFILES, SECONDS, deviations_db, made_traces

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import fit_traces
from fitting.trace_fits import LAGS_S, Mixture, decibels

COUNT = 600


@pytest.mark.parametrize("name", PROFILES)
def test_deviation_and_autocorrelation_are_those_of_the_profile(name):
    """Against closed forms; means over traces, which are independent, with four standard errors."""
    profile = PROFILES[name]
    made = deviations_db(profile, COUNT, 300)
    assert made.shape == (COUNT, 300)
    power = (made**2).mean(axis=1)
    close(power, profile.within_db**2)
    for lag in LAGS_S:
        rho = sum(w * math.exp(-lag / t) for w, t in zip(profile.weights, profile.times_s, strict=True))
        close((made[:, lag:] * made[:, :-lag]).mean(axis=1), rho * profile.within_db**2)
    # Stationary from the first second on.
    close(made[:, 0] ** 2, profile.within_db**2)
    close(made[:, 0], 0.0)
    close(made[:, -1] ** 2, profile.within_db**2)


def close(samples, expected):
    slack = 4.0 * samples.std() / math.sqrt(len(samples))
    assert samples.mean() == pytest.approx(expected, abs=slack)


@pytest.mark.parametrize("name", PROFILES)
def test_made_traces_are_the_same_ones_whatever_their_number(name):
    traces = made_traces(name)
    assert len(traces) == FEWEST
    assert len({trace.name for trace in traces}) == FEWEST
    more = made_traces(name, FEWEST + 5)
    for one, other in zip(traces, more, strict=False):
        np.testing.assert_array_equal(one.values, other.values)
    profile = PROFILES[name]
    values = np.stack([decibels(trace) for trace in traces])
    assert values.shape == (FEWEST, SECONDS)
    assert profile.lowest_db - 1e-9 <= values.min()
    assert values.max() <= profile.highest_db + 1e-9
    # Traces differ from each other, and none is another one further on.
    assert np.abs(np.corrcoef(values[:10]) - np.eye(10)).max() < 0.7
    assert all(np.abs(values[0, lag:] - values[1, :-lag]).mean() > 0.3 for lag in (1, 2, 1800 // 2))


def test_means_of_traces_have_the_deviation_between_traces():
    profile = PROFILES["driving"]
    rng_free = np.array([t.values.mean() for t in made_traces("driving", 400)])
    # A trace's own mean wavers, too: 2 tau / T of the variance within, and clipping takes a little.
    own = profile.within_db**2 * sum(
        w * 2.0 * t / SECONDS for w, t in zip(profile.weights, profile.times_s, strict=True)
    )
    expected = math.sqrt(profile.between_db**2 + own)
    assert rng_free.std() == pytest.approx(expected, rel=4.0 / math.sqrt(800) + 0.05)
    assert rng_free.mean() == pytest.approx(profile.mean_db, abs=4.0 * expected / 20.0 + 0.5)


def test_the_numbers_do_not_change():
    """Scenarios name profiles, not numbers: these are the numbers for ever."""
    first = made_traces("driving")[0].values
    np.testing.assert_allclose(first[:3], NUMBERS, atol=1e-9)
    assert made_traces("bus")[7].values[0] == pytest.approx(BUS, rel=1e-12)


NUMBERS = (-75.02607175948262, -76.95785227423114, -79.29598222762795)
BUS = 1134391.775813848


@needs_data
@pytest.mark.parametrize("name", PROFILES)
def test_profiles_are_fitted_to_the_data_sets(name, data):  # noqa: F811
    assert fit_traces.fit(fit_traces.SOURCES[name]) == PROFILES[name]
    # And straight from the data, in another way: one long sum over all traces around their own means.
    series = [decibels(trace) for trace in fit_traces.fitted_traces(fit_traces.SOURCES[name])]
    around = [one - one.mean() for one in series]
    total = sum(len(one) for one in around)
    deviation = math.sqrt(sum(float(one @ one) for one in around) / total)
    assert PROFILES[name].within_db == pytest.approx(deviation, rel=0.12)
    for lag in (1, 10):
        pairs = sum(float(one[lag:] @ one[:-lag]) for one in around)
        rho = pairs / sum(float(one[lag:] @ one[lag:]) for one in around)
        # Long and lively traces count for more in this sum; the shortest ones have 67 s.
        mixture = Mixture(PROFILES[name].weights, PROFILES[name].times_s)
        assert mixture.correlation(lag) == pytest.approx(rho, abs=0.08)
