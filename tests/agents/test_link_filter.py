"""The filter of known gains, against what is known, closed forms, and a Kalman filter in matrices."""

import math

import numpy as np
import pytest

from collapipe_env.agents.link_filter import LinkFilter, fading_deviation_db, fading_mean_db
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.kernels.channels import split_links
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.system import joined_links

ROUNDS, ROWS = 30, 30


def scenario_of(spec, radio=None, **processes):
    dynamics = {"rounds": 60, "processes": {"channel_knowledge": spec, **processes}}
    return load_scenario({"base": "medium", "radio": radio or {}, "dynamics": dynamics})


def decibels(state):
    return 10.0 * np.log10(joined_links(state.uplink_gain, state.d2d_gain))


def errors(scenario, rounds=ROUNDS, rows=ROWS, **options):
    """Errors of what is known and of what is filtered (rounds, E, links) [dB], in a simulation."""
    env = CollaPipeVectorEnv(rows, scenario, "surrogate")
    env.reset(seed=1)
    fltr, raw, better = LinkFilter(scenario, **options), [], []
    asked = LinkFilter(scenario, **options)
    action = np.zeros((rows, env.single_action_space.shape[0]), np.float32)
    for _ in range(rounds):
        truth = decibels(env.truth)
        raw.append(decibels(env.state) - truth)
        better.append(decibels(fltr.update(env.state)) - truth)
        # To ask again changes nothing.
        for _ in range(2):
            np.testing.assert_array_equal(decibels(asked.update(env.state)) - truth, better[-1])
        env.step(action)
    return np.array(raw), np.array(better)


def rms(values):
    return math.sqrt(np.mean(values**2))


@pytest.mark.parametrize("sigma", [1.0, 3.0, 6.0])
def test_its_error_is_that_of_the_closed_form(sigma):
    """The least error of linear estimates, once the mean is learned: ``s_f s_e / sqrt(s_f^2 + s_e^2)``."""
    raw, better = errors(scenario_of({"modes": ["noisy"], "noise_db": sigma}), rounds=40)
    fading = fading_deviation_db(4)
    total = fading**2 + sigma**2
    # A mean of 36 to 40 measurements, of which the share of fading is taken.
    learned = total / 38.0 * (sigma**2 / total) ** 2
    expected = math.sqrt(fading**2 * sigma**2 / total + learned)
    assert rms(better[35:]) == pytest.approx(expected, rel=0.03)
    assert rms(raw[35:]) > rms(better[35:])


@pytest.mark.parametrize(
    "spec",
    [
        {"modes": ["noisy"]},
        {"modes": ["noisy", "delayed"], "delay_rounds": 2},
        {"modes": ["mean"]},
        {"modes": ["mean", "noisy"]},
    ],
)
@pytest.mark.parametrize(
    ("memory", "walk", "rel"), [(0.0, {}, 0.04), (0.8, {}, 0.04), (0.0, {"mobility": {}}, 0.25)]
)
def test_its_deviation_is_that_of_its_errors(spec, memory, walk, rel):
    """Where devices walk, the model is an approximation."""
    noise = {"noise_db": 3.0} if "noisy" in spec["modes"] else {}
    scenario = scenario_of(spec | noise, {"fading_correlation": memory}, **walk)
    env = CollaPipeVectorEnv(ROWS, scenario, "surrogate")
    env.reset(seed=1)
    fltr, found, said = LinkFilter(scenario), [], []
    for _ in range(30):
        error = decibels(fltr.update(env.state)) - decibels(env.truth)
        found.append(rms(error[:, scenario.clusters :]))
        said.append(rms(fltr.hop_deviation_db()))
        env.step(np.zeros((ROWS, env.single_action_space.shape[0]), np.float32))
    assert rms(np.array(found[5:])) == pytest.approx(rms(np.array(said[5:])), rel=rel)


def test_without_noise_it_returns_what_it_is_given():
    scenario = scenario_of({"modes": ["noisy"], "noise_db": 0.0})
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=1)
    for fltr in (LinkFilter(scenario), LinkFilter(load_scenario("medium"))):
        assert fltr.update(env.state) is env.state


def test_the_mean_of_fading_in_decibels_is_that_of_draws():
    for m in (1, 2, 4, 9):
        drawn = 10.0 * np.log10(np.random.default_rng(m).gamma(m, 1.0 / m, 400_000))
        assert fading_mean_db(m) == pytest.approx(drawn.mean(), abs=0.03)
        assert fading_deviation_db(m) == pytest.approx(drawn.std(), rel=0.01)
    assert fading_mean_db(1) == pytest.approx(-2.5068, abs=1e-4)
    assert fading_deviation_db(1) == pytest.approx(5.5700, abs=1e-4)


@pytest.mark.parametrize("delay", [1, 2])
def test_old_measurements_without_memory_of_fading_give_the_mean(delay):
    raw, better = errors(scenario_of({"modes": ["delayed"], "delay_rounds": delay}), rounds=40)
    fading = fading_deviation_db(4)
    # What is known is off by two independent draws, the mean by one.
    assert rms(raw[delay:]) == pytest.approx(math.sqrt(2.0) * fading, rel=0.03)
    assert rms(better[35:]) == pytest.approx(fading * math.sqrt(1.0 + 1.0 / 38.0), rel=0.03)
    # Before the first measurement the mean gain is known, without its bias in decibels.
    assert better[:delay].mean() == pytest.approx(0.0, abs=0.1)
    assert raw[:delay].mean() == pytest.approx(-fading_mean_db(4), abs=0.1)


def test_it_is_a_kalman_filter():
    """One link, with matrices written out."""
    scenario = scenario_of(
        {"modes": ["delayed", "noisy"], "noise_db": 3.0, "noise_correlation": 0.5, "delay_rounds": 1},
        {"fading_correlation": 0.8},
    )
    env = CollaPipeVectorEnv(1, scenario, "surrogate")
    env.reset(seed=3)
    fltr = LinkFilter(scenario, drift_db=0.7)
    a, b, s_f, s_e = 0.64, 0.5, fading_deviation_db(4), 3.0
    F, h = np.diag([1.0, a, b]), np.ones(3)
    Q = np.diag([0.7**2, (1 - a * a) * s_f**2, (1 - b * b) * s_e**2])
    x, P = None, None
    for t in range(8):
        y = decibels(env.state)[0, 5]
        if t == 0:
            x, P = np.array([y + fading_mean_db(4), 0.0, 0.0]), np.diag([s_e**2, s_f**2, s_e**2])
        else:
            x, P = F @ x, F @ P @ F.T + Q
            gain = P @ h / (h @ P @ h)
            x, P = x + gain * (y - h @ x), (np.eye(3) - np.outer(gain, h)) @ P
        assert decibels(fltr.update(env.state))[0, 5] == pytest.approx(x[0] + a * x[1], rel=1e-9)
        env.step(np.zeros((1, env.single_action_space.shape[0]), np.float32))


def test_rows_are_their_own_and_start_afresh():
    scenario = scenario_of({"modes": ["noisy"], "noise_db": 3.0})
    both, alone = (CollaPipeVectorEnv(rows, scenario, "surrogate") for rows in (3, 1))
    filters = LinkFilter(scenario), LinkFilter(scenario)
    both.reset(seed=[7, 8, 9])
    for t in range(6):
        if t == 3:
            mask = np.array([False, True, False])
            both.reset(seed=[None, 20, None], options={"reset_mask": mask})
            alone.reset(seed=20)
        first = filters[0].update(both.state)
        if t >= 3:
            second = filters[1].update(alone.state)
            np.testing.assert_allclose(first.uplink_gain[1:2], second.uplink_gain, rtol=1e-12)
        for env in (both, alone) if t >= 3 else (both,):
            env.step(np.zeros((env.num_envs, env.single_action_space.shape[0]), np.float32))
    # What a row has forgotten it does not know: a first measurement is all that there is.
    filters[0].reset(np.array([True, False, False]))
    last = filters[0].update(both.state).uplink_gain
    np.testing.assert_allclose(last[0], both.state.uplink_gain[0], rtol=1e-12)
    assert (np.abs(last[1:] / both.state.uplink_gain[1:] - 1.0) > 1e-6).all()


def test_links_of_matrices_are_those_of_vectors():
    links = np.random.default_rng(0).uniform(size=(4, 3 * (1 + 10)))
    np.testing.assert_array_equal(joined_links(*split_links(links, None, (3, 4))), links)


@pytest.mark.parametrize("options", [{"drift_db": -1.0}, {"noise_db": math.nan}])
def test_bad_deviations_are_refused(options):
    with pytest.raises(SchedulerError, match="give a finite number of at least 0"):
        LinkFilter(load_scenario("medium"), **options)
