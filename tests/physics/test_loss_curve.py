"""The convergence bound: its terms one by one."""

import numpy as np

from collapipe_env.physics.loss_curve import gradient_norm_bound

BASE = {
    "rounds": 50,
    "clusters": 4,
    "local_steps": 2,
    "learning_rate": 0.1,
    "smoothness": 3.0,
    "variance": 5.0,
    "heterogeneity": 0.7,
    "gradient_bound": 2.0,
    "initial_gap": 1.5,
    "drift_constant": 4.0,
    "surviving_samples": np.array([64.0, 16.0]),
    "error_probability": np.array([0.0, 0.25]),
}


def test_bound_is_the_sum_of_its_terms():
    expected = [
        2 * 1.5 / (0.1 * 2 * 50) + 0.1 * 3 * 5 / (4 * s) + 4 * 0.1**2 * 3**2 * 2**2 * (5 / s + 0.7) + 2.0 * e
        for s, e in ((64, 0.0), (16, 0.25))
    ]
    np.testing.assert_allclose(gradient_norm_bound(**BASE), expected, rtol=1e-12)
