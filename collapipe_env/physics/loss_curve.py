"""The convergence bound of `system_model.md` section 8 and the loss curve that follows it.

[S]: the quantities in the bound; [R]: its form; [X]: the progress of a local step and the curve of the loss.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from collapipe_env.ground.arrays import Array, at_least, exp


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


def imbalance_of(clusters: int, samples: Array, squares: Array) -> Array:
    """Inequality ``I = N sum_n S_n^2 / (sum_n S_n)^2 - 1`` of the clusters' arrivals, in [0, N - 1].

    Args:
        clusters: ``N``.
        samples: ``sum_n S_n``, any shape.
        squares: ``sum_n S_n^2``.
    """
    total = at_least(samples, 1e-9)
    return at_least(clusters * squares / (total * total) - 1.0, 0.0)


class StepTerms(NamedTuple):
    """Numbers of :func:`step_progress`."""

    rate: float
    noise: float
    constant: float
    error: float
    imbalance: float


def step_progress(terms: StepTerms, samples: Array, imbalance: Array, error_probability: Array) -> Array:
    """Progress of one local step.

    Args:
        samples: ``N S``, samples that arrived from all clusters, any shape.
        imbalance: ``I``, of that shape.
        error_probability: ``eps``, broadcastable to it.
    """
    rest = terms.constant + terms.error * error_probability + terms.imbalance * imbalance
    return terms.rate * samples / (samples * rest + terms.noise)


class PlanTerms(NamedTuple):
    """Numbers of :func:`terms_of_steps`.

    Attributes:
        drift: ``drift`` of the fit.
        heterogeneity: ``zeta^2`` over the squared gradient norm.
        sitting_out: ``sitting_out`` of the fit.
        clusters: ``N``.
    """

    drift: float
    heterogeneity: float
    sitting_out: float
    clusters: float


def terms_of_steps(terms: StepTerms, plan: PlanTerms, players: Array, squares: Array) -> StepTerms:
    """Return terms of a local step with the parts that plans decide: ``H^2`` and absent clusters [X].

    Args:
        terms: Terms at ``H = 0`` of all clusters.
        players: Clusters that take part, any shape.
        squares: Mean of ``H_n^2`` over them, of that shape.
    """
    return StepTerms(
        terms.rate,
        terms.noise * (1.0 + squares * plan.drift * players),
        terms.constant + squares * plan.heterogeneity + plan.sitting_out * (1.0 - players / plan.clusters),
        terms.error,
        terms.imbalance,
    )


class CurveTerms(NamedTuple):
    """Constants that :func:`loss_at` reads.

    Attributes:
        initial_loss: ``F_0`` [nat].
        floor_loss: ``F*`` [nat].
        exponent: Exponent of the encoder's part.
        head_share: ``w``, the head's quick part of the gain.
        head_speed: ``v``, the speed of that part relative to the encoder's.
    """

    initial_loss: float
    floor_loss: float
    exponent: float
    head_share: float
    head_speed: float


def loss_at(constants: Any, progress_made: Array) -> Array:
    """Loss after an amount of progress, in nats.

    ``F* + (F_0 - F*) (w exp(-v p) + (1 - w) exp(-p^exponent))`` with progress ``p``. The second term is the
    encoder's part. With ``exponent`` above 1 it is an S with a slow start, steep middle and slow end, like
    the curves of Transformers trained from scratch. With ``exponent`` 1 it is the geometric decay that the
    descent step behind the bound gives under the Polyak-Lojasiewicz condition. The first term is the share
    ``w`` that the head gains ``v`` times as fast, by learning the frequency of each output. [X]

    Args:
        constants: :class:`CurveTerms`, or all constants of a fit.
        progress_made: At least 0, any shape.
    """
    w = constants.head_share
    gap = constants.initial_loss - constants.floor_loss
    left = (1.0 - w) * exp(-(progress_made**constants.exponent))
    return constants.floor_loss + gap * (left + w * exp(-constants.head_speed * progress_made))
