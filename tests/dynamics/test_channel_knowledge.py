"""Channel knowledge: known gains by hand, statistics of errors and delays, and who sees what."""

import dataclasses
import math

import numpy as np
import pytest
from process_support import actions_of, carried_of
from state_ways_support import assert_same

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.rendering import draw_round
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.scenario import fixed_layout, load_scenario
from collapipe_env.simulator.state import EstimatedState
from collapipe_env.simulator.system import link_path_gains

ROUNDS = 6
ROOMY = {"cu_energy_j": 1e4, "device_energy_j": 1e4}
"""Energy budgets that bind nowhere."""


def knowing(knowledge=None, base="small", processes=None, **sections):
    """A scenario with a channel knowledge; without for ``None``."""
    on = dict(processes or {})
    if knowledge is not None:
        on["channel_knowledge"] = knowledge
    dynamics = {"rounds": ROUNDS, **sections.pop("dynamics", {}), "processes": on}
    return load_scenario({"base": base, **sections, "dynamics": dynamics})


def vector(scenario, num_envs=3, **more):
    env = CollaPipeVectorEnv(num_envs, scenario, "surrogate", **more)
    env.reset(seed=4)
    return env


def both_gains(state):
    """Gains of uplinks and of pairs (E, links), pairs once each."""
    d2d = state.d2d_gain
    first, second = np.triu_indices(d2d.shape[-1], 1)
    pairs = d2d[..., first, second].reshape(len(d2d), -1)
    return np.concatenate((state.uplink_gain, pairs), axis=1)


def decibels(state):
    return 10.0 * np.log10(both_gains(state))


def played(env, count):
    """True and known gains in dB, round by round, of random actions."""
    truth, known = [], []
    for action in actions_of(env, count):
        truth.append(decibels(env.truth))
        known.append(decibels(env.state))
        env.step(action)
    return np.array(truth), np.array(known)


@pytest.mark.parametrize("spec", [{}, {"modes": ["mean"]}, {"modes": ["mean", "noisy"]}])
def test_the_truth_is_what_it_is_without_the_process(spec):
    on, off = vector(knowing(spec)), vector(knowing())
    assert type(on.state) is EstimatedState
    assert on.truth is not on.state
    assert off.truth is off.state
    for action in actions_of(on, 4):
        seen = on.state
        np.testing.assert_array_equal(on.truth.uplink_gain, off.state.uplink_gain)
        np.testing.assert_array_equal(on.truth.d2d_gain, off.state.d2d_gain)
        one, other = on.step(action), off.step(action)
        for a, b in zip(one[1:], other[1:], strict=True):
            assert_same(a, b)
        assert (one[0] != other[0]).any()
        np.testing.assert_array_equal(on.last_round.costs.energy, off.last_round.costs.energy)
        for name in ("uplink_gain", "d2d_gain"):
            np.testing.assert_array_equal(
                getattr(on.last_round.state, name), getattr(off.last_round.state, name)
            )
            np.testing.assert_array_equal(getattr(on.last_round.state, f"known_{name}"), getattr(seen, name))
            assert getattr(seen, f"known_{name}") is None


def test_noise_is_normal_in_decibels_independent_and_the_same_both_ways():
    env = vector(knowing({"modes": ["noisy"], "noise_db": 3.0}, base="medium"), 60)
    assert (env.state.d2d_gain == np.swapaxes(env.state.d2d_gain, -1, -2)).all()
    truth, known = played(env, 5)
    error = known - truth
    count = error.size
    assert count > 15_000
    assert error.mean() == pytest.approx(0.0, abs=4.0 * 3.0 / math.sqrt(count))
    assert error.std() == pytest.approx(3.0, rel=4.0 / math.sqrt(2.0 * count))
    # A normal number lies within one deviation with probability 0.6827.
    assert (np.abs(error) < 3.0).mean() == pytest.approx(0.6827, abs=4.0 * 0.47 / math.sqrt(count))
    flat = error.reshape(len(error), -1)
    assert np.corrcoef(flat[0], flat[1])[0, 1] == pytest.approx(0.0, abs=4.0 / math.sqrt(flat.shape[1]))
    beside = np.corrcoef(error[:, :, 1:].ravel(), error[:, :, :-1].ravel())[0, 1]
    assert beside == pytest.approx(0.0, abs=4.0 / math.sqrt(count))


def test_noise_keeps_its_deviation_and_forgets_by_its_correlation():
    env = vector(knowing({"modes": ["noisy"], "noise_db": 2.0, "noise_correlation": 0.8}, base="medium"), 60)
    truth, known = played(env, 6)
    error = (known - truth).reshape(6, -1)
    slack = 4.0 / math.sqrt(error.shape[1])
    for lag in range(6):
        assert error[lag].std() == pytest.approx(2.0, rel=slack)
        assert np.corrcoef(error[0], error[lag])[0, 1] == pytest.approx(0.8**lag, abs=slack)


@pytest.mark.parametrize("delay", [1, 3])
def test_a_delayed_gain_is_that_of_rounds_before(delay):
    given = {"radio": {"d2e_shadowing_db": 4.0}, "budgets": ROOMY}
    env = vector(knowing({"modes": ["delayed"], "delay_rounds": delay}, **given))
    mean = vector(knowing({"modes": ["mean"]}, **given))
    at_first = decibels(mean.state)
    truth, known = played(env, ROUNDS - 1)
    np.testing.assert_allclose(known[delay:], truth[:-delay], rtol=1e-13)
    for t in range(delay):
        np.testing.assert_allclose(known[t], at_first, rtol=1e-13)


def test_delay_and_noise_combine():
    late, wrong = {"delay_rounds": 2}, {"noise_db": 3.0}
    old = vector(knowing({"modes": ["delayed"], **late}))
    noisy = vector(knowing({"modes": ["noisy"], **wrong}))
    both = vector(knowing({"modes": ["noisy", "delayed"], **late, **wrong}))
    truth = played(old, 5)[0]
    first, second, third = (played(vector(env.scenario), 5)[1] for env in (old, noisy, both))
    np.testing.assert_allclose(third - first, second - truth, atol=1e-9)


def test_mean_is_path_loss_and_shadowing():
    radio = {"d2e_shadowing_db": 6.0, "d2d_shadowing_db": 3.0}
    env = vector(knowing({"modes": ["mean"]}, radio=radio, budgets=ROOMY), 3)
    expected = link_path_gains(fixed_layout(env.scenario)) * carried_of(env)["shadowing"]["gain"]
    for action in actions_of(env, 3):
        np.testing.assert_allclose(both_gains(env.state), expected, rtol=1e-13)
        assert (both_gains(env.truth) != expected).all()
        env.step(action)


@pytest.mark.parametrize(("rho", "delay"), [(0.9, 1), (0.9, 2), (0.6, 1)])
def test_outdated_gains_follow_the_closed_form(rho, delay):
    """Mean and variance of a gain, given the known one of ``d`` rounds before, with AR(1) branches."""
    m = 2
    radio = {"fading_correlation": rho, "diversity": m}
    given = {"base": "medium", "radio": radio, "budgets": ROOMY}
    env = vector(knowing({"modes": ["delayed"], "delay_rounds": delay}, **given), 1500)
    for action in actions_of(env, delay):
        env.step(action)
    mean = both_gains(vector(knowing({"modes": ["mean"]}, **given), 1).state)
    now, before = (both_gains(s) / mean for s in (env.truth, env.state))
    kept = rho ** (2 * delay)
    for low, high in ((0.2, 0.4), (0.9, 1.1), (1.8, 2.2)):
        chosen = (before > low) & (before < high)
        g, x = before[chosen], now[chosen]
        expected = 1.0 + kept * (g - 1.0)
        variance = ((1.0 - kept) ** 2 + 2.0 * kept * (1.0 - kept) * g) / m
        slack = 5.0 / math.sqrt(len(g))
        assert len(g) > 3000
        assert (x - expected).mean() == pytest.approx(0.0, abs=slack * math.sqrt(variance.mean()))
        # The fourth moment of a gain of few branches is large.
        assert ((x - expected) ** 2 / variance).mean() == pytest.approx(1.0, abs=4.0 * slack)
    left = (now - 1.0 - kept * (before - 1.0)).var()
    assert left == pytest.approx((1.0 - kept**2) / m, rel=0.03)


def test_a_picture_says_how_well_gains_are_known():
    uneven = {"cluster": {"devices": [3, 2]}, "budgets": ROOMY}
    scenario = knowing({"modes": ["noisy"], "noise_db": 3.0}, **uneven)
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=1)
    env.step(actions_of(env, 1)[0])
    view = RoundView(env.last_round, "x", row=1)
    state, squares = env.last_round.state, []
    for n, devices in enumerate((3, 2)):
        squares.append(10.0 * math.log10(state.known_uplink_gain[1, n] / state.uplink_gain[1, n]))
        known, true = state.known_d2d_gain[1, n], state.d2d_gain[1, n]
        pairs = [(i, j) for i in range(devices + 1) for j in range(i)]
        squares += [10.0 * math.log10(known[pair] / true[pair]) for pair in pairs]
    rms = math.sqrt(sum(s * s for s in squares) / len(squares))
    assert view.known_error_db == pytest.approx(rms, rel=1e-9)
    assert rms == pytest.approx(3.0, rel=0.5)
    unknown = dataclasses.replace(state, known_uplink_gain=None, known_d2d_gain=None)
    record = dataclasses.replace(env.last_round, state=unknown)
    drawn, without = draw_round(view), draw_round(dataclasses.replace(view, record=record))
    assert (drawn[:60] != without[:60]).any()
    np.testing.assert_array_equal(drawn[60:], without[60:])
    plain = CollaPipeVectorEnv(2, knowing(None, **uneven), "surrogate")
    plain.reset(seed=1)
    plain.step(actions_of(plain, 1)[0])
    assert RoundView(plain.last_round, "x").known_error_db is None
