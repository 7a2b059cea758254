"""Closed forms against SciPy's special functions and numerical optimisation."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import lambertw

from collapipe_env.agents.dssra import closed_forms
from collapipe_env.ground.compiled import called_from_python

bandwidth_for_rate = called_from_python(closed_forms.bandwidth_for_rate)
lambert_w0 = called_from_python(closed_forms.lambert_w0)
lambert_w_minus_one = called_from_python(closed_forms.lambert_w_minus_one)
minmax_upload = called_from_python(closed_forms.minmax_upload)
optimal_power = called_from_python(closed_forms.optimal_power)


def test_both_branches_of_lambert_w_match_scipy():
    edge = -math.exp(-1.0)
    near = edge + np.geomspace(1e-7, 0.3, 60)
    for x in np.concatenate((near, np.geomspace(1e-9, 1e200, 200))):
        assert lambert_w0(x) == pytest.approx(lambertw(x).real, rel=1e-9)
    for x in np.concatenate((near, -np.geomspace(1e-300, 0.36, 200))):
        assert lambert_w_minus_one(x) == pytest.approx(lambertw(x, -1).real, rel=1e-9)
    assert lambert_w0(edge - 1e-17) == lambert_w_minus_one(edge - 1e-17) == -1.0


def test_optimal_power_is_the_numerical_optimum():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        weight, price = rng.uniform(0.05, 3.0), 10.0 ** rng.uniform(-3, 2)
        gain, noise = 10.0 ** rng.uniform(-12, -7), 10.0 ** rng.uniform(-14, -11)
        power = optimal_power(weight, price, gain, noise, 0.002, 0.2)

        def cost(log_power, weight=weight, price=price, snr=gain / noise):
            return (weight + price * math.exp(log_power)) / math.log1p(math.exp(log_power) * snr)

        low, high = math.log(0.002), math.log(0.2)
        found = minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
        assert 0.002 <= power <= 0.2
        assert cost(math.log(power)) <= found.fun * (1.0 + 1e-12)
        inside += 0.002 < power < 0.2
    assert inside > 50
    assert optimal_power(1.0, 0.0, 1e-9, 1e-13, 0.002, 0.2) == 0.2
    assert optimal_power(0.0, 1.0, 1e-9, 1e-13, 0.002, 0.2) == 0.002
    assert optimal_power(1.0, 1e-300, 1e-9, 1e-13, 0.002, 0.2) == 0.2


def test_bandwidth_for_a_rate_is_the_root():
    rng = np.random.default_rng(1)
    for _ in range(200):
        snr_hz = 10.0 ** rng.uniform(5, 12)
        rate = rng.uniform(1e-4, 0.99) * snr_hz / math.log(2.0)

        def excess(band, snr_hz=snr_hz, rate=rate):
            return band * math.log1p(snr_hz / band) / math.log(2.0) - rate

        root = brentq(excess, snr_hz * 1e-9, snr_hz * 1e6, rtol=1e-14)
        assert bandwidth_for_rate(rate, snr_hz) == pytest.approx(root, rel=1e-7)
    assert bandwidth_for_rate(0.0, 1e6) == 0.0
    assert bandwidth_for_rate(1.01e6 / math.log(2.0), 1e6) == math.inf


def test_minmax_upload_ends_all_uploads_at_once():
    rng = np.random.default_rng(2)
    for clusters in (1, 2, 5):
        payload, snr_hz = rng.uniform(1e7, 3e8, clusters), 10.0 ** rng.uniform(6, 9, clusters)
        share = minmax_upload(payload, snr_hz, 20e6)
        band = share * 20e6
        times = payload / (band * np.log2(1.0 + snr_hz / band))
        assert share.sum() == pytest.approx(1.0, rel=1e-12)
        # Rates grow with the share, so equal times at a full band are the least possible maximum.
        np.testing.assert_allclose(times, times[0], rtol=1e-7)
