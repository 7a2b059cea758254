"""Surroundings of warm devices that move: an Ornstein-Uhlenbeck process about each episode's mean."""

import math

import numpy as np
import pytest
from hook_processes import actions_of
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.thermal import ambient_after
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay

TAU, SD = 120.0, 2.0


def scenario_of(base="mixed", visibility="full", **heat):
    fields = {"ambient_sd_k": SD, "ambient_tau_s": TAU, **heat}
    return load_scenario(
        {
            "base": "small",
            "name": "drifting",
            "dynamics": {
                "rounds": 60,
                "time_base": base,
                "visibility": visibility,
                "processes": {"heat": fields},
            },
        }
    )


def heat_of(env):
    return env._mdp.world.system.carried["heat"]


def paths(env, actions):
    """Surroundings in every round (T, R, N)."""
    found = [heat_of(env)["ambient"]]
    for action in actions:
        env.step(action)
        found.append(heat_of(env)["ambient"])
    return np.stack(found)


def moments(start, seconds):
    """Mean and deviation of the law after some time."""
    one = np.ones(1)
    mean = ambient_after(start * one, 20.0 * one, seconds * one, TAU, SD, 0.0 * one)[0]
    return mean, ambient_after(start * one, 20.0 * one, seconds * one, TAU, SD, one)[0] - mean


@given(start=st.floats(-20.0, 60.0), a=st.floats(0.0, 1e4), b=st.floats(0.0, 1e4))
def test_two_times_one_after_the_other_have_the_law_of_their_sum(start, a, b):
    first, spread = moments(start, a)
    mean, more = moments(first, b)
    expected, deviation = moments(start, a + b)
    assert mean == pytest.approx(expected, abs=1e-9)
    # What was drawn first has faded when the second draw is added.
    assert math.hypot(spread * math.exp(-b / TAU), more) == pytest.approx(deviation, abs=1e-9)


def test_the_ends_of_the_law():
    assert moments(31.0, 0.0) == (31.0, 0.0)
    mean, deviation = moments(31.0, 1e6)
    assert (mean, deviation) == (pytest.approx(20.0), pytest.approx(SD))
    # After one time constant 1 / e is left of a distance, and 1 - 1 / e^2 of the variance is new.
    mean, deviation = moments(31.0, TAU)
    assert mean == pytest.approx(20.0 + 11.0 / math.e)
    assert deviation == pytest.approx(SD * math.sqrt(1.0 - math.exp(-2.0)))


@pytest.mark.parametrize("clusters", [2, 3])
def test_it_is_stationary_and_forgets_exponentially(clusters):
    scenario = scenario_of().with_overrides({"cluster.clusters": clusters})
    env = CollaPipeVectorEnv(1200, scenario, "surrogate")
    env.reset(seed=5)
    mean = heat_of(env)["ambient_mean"]
    assert (mean.min(), mean.max()) == (pytest.approx(18.0, abs=0.1), pytest.approx(35.0, abs=0.1))
    assert mean.mean() == pytest.approx(26.5, abs=4.0 * 17.0 / math.sqrt(12.0 * mean.size))
    away = paths(env, actions_of(env, 12)) - mean
    np.testing.assert_array_equal(heat_of(env)["ambient_mean"], mean)
    rows = away[0].size
    for t in (0, 6, 12):
        assert away[t].std() == pytest.approx(SD, rel=4.0 / math.sqrt(2.0 * rows))
        assert away[t].mean() == pytest.approx(0.0, abs=4.0 * SD / math.sqrt(rows))
    usual = reference_delay(scenario)
    for lag in (1, 5, 12):
        correlation = (away[0] * away[lag]).mean() / SD**2
        assert correlation == pytest.approx(math.exp(-lag * usual / TAU), abs=4.0 / math.sqrt(rows))
    # Clusters drift by themselves, and so do environments.
    assert abs(np.corrcoef(away[0, :, 0], away[0, :, 1])[0, 1]) < 4.0 / math.sqrt(1200)


def test_under_real_it_moves_by_the_delay():
    scenario = scenario_of("real")
    reference = CollaPipeVectorEnv(2, scenario_of("reference"), "surrogate")
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=1)
    reference.reset(seed=1)
    action = next(iter(actions_of(env, 1)))
    start, mean = heat_of(env)["ambient"], heat_of(env)["ambient_mean"]
    for one in (env, reference):
        one.step(action)
    usual, delay = reference_delay(scenario), env.last_round.costs.delay[:, None]

    def drawn(found, seconds):
        """The normal number that a move was made by."""
        kept = np.exp(-seconds / TAU)
        return (found - mean - (start - mean) * kept) / (SD * np.sqrt(1.0 - kept**2))

    np.testing.assert_allclose(
        drawn(heat_of(env)["ambient"], delay), drawn(heat_of(reference)["ambient"], usual), rtol=1e-9
    )


def test_devices_feel_what_the_round_began_with():
    env = CollaPipeVectorEnv(2, scenario_of(resistance_k_per_w=0.0), "surrogate")
    env.reset(seed=3)
    theta = heat_of(env)["temperature"]
    np.testing.assert_array_equal(theta, heat_of(env)["ambient"][..., None] + 0.0 * theta)
    for action in actions_of(env, 3):
        before = heat_of(env)["ambient"][..., None]
        env.step(action)
        np.testing.assert_array_equal(heat_of(env)["temperature"], before + 0.0 * theta)


def test_the_means_are_those_of_surroundings_that_stand_still():
    one = CollaPipeVectorEnv(3, scenario_of(), "surrogate")
    two = CollaPipeVectorEnv(3, scenario_of(ambient_sd_k=0.0, ambient_tau_s=1800.0), "surrogate")
    one.reset(seed=2)
    two.reset(seed=2)
    np.testing.assert_array_equal(heat_of(one)["ambient_mean"], heat_of(two)["ambient"])
    assert "ambient_mean" not in heat_of(two)
    fixed = CollaPipeVectorEnv(3, scenario_of(ambient_min_c=21.0, ambient_max_c=21.0), "surrogate")
    fixed.reset(seed=2)
    assert (heat_of(fixed)["ambient_mean"] == 21.0).all()
    assert (heat_of(fixed)["ambient"] != 21.0).all()
