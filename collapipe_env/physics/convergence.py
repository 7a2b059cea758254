"""The convergence bound of `system_model.md` section 8 ([S]: what it depends on; [R]: its form)."""

from __future__ import annotations

from collapipe_env.physics._array import Array


def gradient_norm_bound(
    *,
    rounds: Array,
    clusters: int,
    local_steps: int,
    learning_rate: float,
    smoothness: float,
    variance: float,
    heterogeneity: float,
    gradient_bound: float,
    initial_gap: float,
    drift_constant: float,
    surviving_samples: Array,
    error_probability: Array,
) -> Array:
    """Bound on the average squared gradient norm after a number of rounds.

    ``2 (F_0 - F*) / (eta H R) + eta Lip sigma^2 / (N b M_eff) + C eta^2 Lip^2 H^2 (sigma^2 / (b M_eff)
    + zeta^2) + Gamma^2 eps``.

    Args:
        rounds: ``R`` >= 1.
        clusters: ``N``.
        local_steps: ``H``.
        learning_rate: ``eta``.
        smoothness: Lipschitz constant of the gradient, ``Lip``.
        variance: Gradient variance of one sample, ``sigma^2``.
        heterogeneity: ``zeta^2``, divergence of the clusters' gradients.
        gradient_bound: ``Gamma^2``.
        initial_gap: ``F_0 - F*``.
        drift_constant: ``C``.
        surviving_samples: ``b M_eff`` (...), samples of a cluster whose gradients arrived, > 0.
        error_probability: ``eps`` (...), probability that a micro-batch is lost, in [0, 1].
    """
    noise = learning_rate * smoothness * variance / (clusters * surviving_samples)
    drift = (
        drift_constant
        * (learning_rate * smoothness * local_steps) ** 2
        * (variance / surviving_samples + heterogeneity)
    )
    start = 2.0 * initial_gap / (learning_rate * local_steps * rounds)
    return start + noise + drift + gradient_bound * error_probability
