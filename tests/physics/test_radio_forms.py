"""Radio formulas one by one, in decibels and logarithms as one would write them on paper."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.physics import radio
from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.loss_curve import gradient_norm_bound
from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.physics.queues import drift_plus_penalty, lyapunov

POWER = st.floats(1e-3, 10.0)
GAIN = st.floats(1e-14, 1e-5)
NOISE = st.floats(1e-15, 1e-10)
SHARE = st.floats(0.001, 1.0)


@given(st.floats(1.0, 5000.0))
def test_path_loss(distance):
    d2e, d2d = radio.path_gain_d2e(np.array(distance)), radio.path_gain_d2d(np.array(distance))
    assert -10 * math.log10(d2e) == pytest.approx(128.1 + 37.6 * math.log10(distance / 1000))
    assert -10 * math.log10(d2d) == pytest.approx(148 + 40 * math.log10(distance / 1000))


def test_decibels():
    assert radio.db_to_linear(30.0) == pytest.approx(1000.0)
    assert radio.db_to_linear(-3.0) == pytest.approx(0.501187, rel=1e-5)


@given(POWER, GAIN, NOISE, SHARE)
def test_uplink(power, gain, noise, share):
    arrays = [np.array([x]) for x in (share, power, gain)]
    ratio = power * gain / (share * noise)
    rate = radio.uplink_rate(*arrays, noise, 20e6)
    assert rate[0] == pytest.approx(share * 20e6 * math.log1p(ratio) / math.log(2), rel=1e-12)
    exponent = radio.uplink_failure_exponent(*arrays, noise, 0.023)
    assert exponent[0] == pytest.approx(0.023 / ratio, rel=1e-12)
    half = radio.uplink_rate(arrays[0] / 2, *arrays[1:], noise, 20e6)
    assert rate[0] / 2 <= half[0] <= rate[0]  # more band never hurts, with diminishing returns


@given(GAIN, NOISE, SHARE)
def test_downlink_and_broadcast(gain, noise, share):
    down = radio.downlink_rate(np.array([share]), 20.0, np.array([gain]), noise, 5e6)
    whole = 5e6 * math.log1p(20.0 * gain / noise) / math.log(2)
    assert down[0] == pytest.approx(share * whole, rel=1e-12)
    broadcast = radio.broadcast_rate(20.0, np.array([gain * 3, gain, gain * 2]), noise, 5e6)
    assert broadcast == pytest.approx(whole, rel=1e-12)


def test_interference_counts_active_nodes_of_other_clusters_only():
    power = np.array([[0.2, 0.1, 0.05], [0.02, 0.04, 0.08]])
    active = np.array([[True, False], [True, True]])
    mean = radio.mean_active_power(power, active)
    np.testing.assert_allclose(mean, [(0.2 + 0.1) / 2, (0.02 + 0.04 + 0.08) / 3])
    cross = np.array([[0.0, 3e-13], [5e-13, 0.0]])
    # X[m, n] couples cluster m into cluster n.
    np.testing.assert_allclose(radio.interference(cross, mean), [5e-13 * mean[1], 3e-13 * mean[0]])


def test_signal_to_noise_goes_by_the_sender():
    snr = radio.d2d_snr(np.array([[2.0, 3.0]]), np.array([[[0.0, 0.5], [0.5, 0.0]]]), np.array([0.1]))
    np.testing.assert_allclose(snr, [[[0.0, 10.0], [15.0, 0.0]]])
    np.testing.assert_allclose(radio.shannon_rate(snr, 1e6)[0, 1, 0], 4e6)


@pytest.mark.parametrize("most", [1, 2, 3, 16, 1000])
def test_repeats_are_those_of_the_truncated_geometric_distribution(most):
    exponent = np.array([0.0, 1e-12, 1e-3, 0.3, 1.0, 4.0, 20.0, 40.0, 79.0])
    with localcontext(prec=80):  # where q is close to 0 or 1, doubles lose all digits
        qs = [1 - (-Decimal(x)).exp() for x in exponent]
        tries = [float(1 + sum(q**k for k in range(1, most))) for q in qs]
        lost = [float(q**most) for q in qs]
        arrives = [float(1 - q**most) for q in qs]
    np.testing.assert_allclose(radio.expected_transmissions(exponent, most), tries, rtol=1e-13)
    found = radio.survival(radio.loss_exponent(exponent, most))
    np.testing.assert_allclose(found, arrives, rtol=1e-13)
    assert (found[np.array(lost) < 1e-17] == 1.0).all()
    hopeless = np.array([1e5, np.inf])
    np.testing.assert_allclose(radio.expected_transmissions(hopeless, most), most, rtol=1e-13)
    assert (radio.survival(radio.loss_exponent(hopeless, most)) < 1e-31).all()


def test_transmissions_played_one_by_one_have_the_expected_number_and_losses():
    rng = np.random.default_rng(0)
    for exponent, most in ((0.5, 2), (2.0, 5), (3.0, 16)):
        failed = rng.random((200_000, most)) < 1.0 - np.exp(-exponent)
        lost = failed.all(axis=1)
        tries = np.where(lost, most, failed.argmin(axis=1) + 1)
        x = np.array([exponent])
        error = 5.0 * tries.std() / len(tries) ** 0.5
        assert radio.expected_transmissions(x, most)[0] == pytest.approx(tries.mean(), abs=error)
        error = 5.0 * lost.std() / len(lost) ** 0.5
        assert radio.survival(radio.loss_exponent(x, most))[0] == pytest.approx(1.0 - lost.mean(), abs=error)


def test_compute_power_of_both_kinds_of_profile():
    speed = np.array([16e9, 8e9, 16e9, 8e9])
    power = compute_power(
        speed, np.full(4, 16.0), np.array([1e-27, 1e-27, 0, 0]), np.array([0, 0, 6.0, 6.0]), np.full(4, 16e9)
    )
    np.testing.assert_allclose(power, [1.0, 0.125, 6.0, 3.0])


def test_memory_cap_is_the_last_whole_block():
    caps = memory_cap_blocks(np.array([0.0, 99.0, 100.0, 299.9, 300.0]), 5, 50.0, 10.0)
    np.testing.assert_array_equal(caps, [0, 0, 1, 2, 3])


def test_lyapunov_functions():
    z, e = np.array([[[1.0, 2.0], [0.0, 3.0]]]), np.array([[[0.5, 1.0], [9.0, 2.0]]])
    assert lyapunov(z) == pytest.approx([7.0])
    assert drift_plus_penalty(np.array([4.0]), z, e, 1.5) == pytest.approx([6.0 + 0.5 + 2.0 + 6.0])


def test_convergence_bound_term_by_term():
    base = {
        "rounds": 10,
        "clusters": 4,
        "local_steps": 2,
        "learning_rate": 0.1,
        "smoothness": 3.0,
        "variance": 5.0,
        "heterogeneity": 0.7,
        "gradient_bound": 11.0,
        "initial_gap": 2.0,
        "drift_constant": 1.3,
        "surviving_samples": 8.0,
        "error_probability": 0.25,
    }
    start = 2 * 2.0 / (0.1 * 2 * 10)
    noise = 0.1 * 3.0 * 5.0 / (4 * 8.0)
    drift = 1.3 * 0.1**2 * 3.0**2 * 2**2 * (5.0 / 8.0 + 0.7)
    assert gradient_norm_bound(**base) == pytest.approx(start + noise + drift + 11.0 * 0.25)
