"""The closed form of a power against SciPy's special functions and numerical optimisation."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from collapipe_env.agents.dssra import closed_forms
from collapipe_env.ground.compiled import called_from_python

optimal_power = called_from_python(closed_forms.optimal_power)


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


def test_optimal_power_follows_lambert_w():
    for ratio in np.geomspace(1e-6, 1e200, 200):
        u = 1.0 + lambertw((ratio - 1.0) / math.e).real
        found = optimal_power(ratio, 1.0, 1.0, 1.0, 0.0, math.inf)
        assert found == pytest.approx(math.expm1(u), rel=1e-7)
