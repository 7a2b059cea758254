"""Progress of a round under the surrogate: the convergence bound as speed of learning ([R], [X])."""

from __future__ import annotations

from dataclasses import dataclass

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.learners.surrogate_fits import SurrogateConstants
from collapipe_env.physics.loss_curve import PlanTerms, StepTerms, imbalance_of, step_progress, terms_of_steps
from collapipe_env.simulator.learner import RoundOutcome


@dataclass(frozen=True)
class SurrogateOutcome:
    """Numbers of a round that the bound depends on.

    Attributes:
        surviving_samples: ``b M_eff`` of each cluster and local step: samples whose gradients arrived,
            (E, N, H).
        error_probability: ``eps``, mean over the clusters that take part (E,), in [0, 1].
        own_steps: ``H_n`` (E, N), real numbers, 0 for clusters that sit out.
    """

    surviving_samples: Array
    error_probability: Array
    own_steps: Array

    @property
    def clusters(self) -> int:
        """``N``."""
        return int(self.surviving_samples.shape[1])

    @property
    def imbalance(self) -> Array:
        """Imbalance of the clusters' parts in each local step (E, H), in [0, N - 1].

        ``N sum_n S_n^2 / (sum_n S_n)^2 - 1``: 0 if equally much arrived from every cluster, ``N / A - 1`` if
        everything arrived from ``A`` clusters and nothing from the others.
        """
        squares = (self.surviving_samples**2).sum(axis=1)
        return imbalance_of(self.clusters, self.surviving_samples.sum(axis=1), squares)

    @classmethod
    def of(cls, outcome: RoundOutcome, batch_size: int) -> SurrogateOutcome:
        """Reduce a simulated round with mini-batches of ``B`` samples to these numbers."""
        counts, sizes = outcome.arrivals.counts, outcome.micro_batches
        return cls.of_arrays(counts, sizes, outcome.survival, outcome.real_steps, batch_size)

    @classmethod
    def of_arrays(
        cls, arrived: Array, micro_batches: Array, survival: Array, steps: Array, batch_size: int
    ) -> SurrogateOutcome:
        """Reduce the arrived micro-batches (E, N, H) and the other arrays of a round to these numbers."""
        xp = namespace(survival)
        samples = arrived * (batch_size / xp.astype(micro_batches, survival.dtype))[..., None]
        steps = xp.astype(steps, survival.dtype)
        return cls(samples, mean_loss_of_packets(survival, steps), steps)


def mean_loss_of_packets(survival: Array, steps: Array) -> Array:
    """Return ``eps``: one less the mean survival of the clusters that take part (E,), 0 if none does.

    Args:
        survival: Probability that a micro-batch survives a local step (E, N).
        steps: Local steps of the clusters (E, N), real numbers, 0 for those that sit out.
    """
    xp = namespace(survival)
    plays = steps > 0.0
    players = xp.sum(xp.astype(plays, survival.dtype), axis=-1)
    lost = xp.sum(xp.where(plays, 1.0 - survival, xp.zeros_like(survival)), axis=-1)
    return lost / xp.where(players > 0.0, players, xp.ones_like(players))


def law_terms(
    constants: SurrogateConstants, clusters: int, heterogeneity: float
) -> tuple[StepTerms, PlanTerms]:
    """Return the terms of :func:`progress` that are the same in every round of ``N`` clusters.

    Args:
        heterogeneity: ``zeta^2`` of the partition over the squared gradient norm, at least 0.
    """
    c, zeta = constants, float(heterogeneity)
    base = StepTerms(float(c.rate), float(c.noise), 1.0, float(c.error), float(c.participation) * zeta)
    return base, PlanTerms(float(c.drift), zeta, float(c.sitting_out), float(clusters))


def progress(
    constants: SurrogateConstants,
    outcome: SurrogateOutcome,
    heterogeneity: float,
    factors: Array | None = None,
) -> Array:
    """Return the progress of one round (E,), at least 0 and at most ``H rate``.

    Each local step of full size makes ``rate / (1 + u)``, where ``u`` is the sum of the bound's other terms
    in units of the squared gradient norm::

        u = noise / (N S) + H^2 (drift noise / S + zeta^2) + participation zeta^2 I + error eps

    with ``S`` the mean of ``b M_eff`` over clusters. With the first term alone this is the law of the
    critical batch size, ``S / (S + S_crit)`` (McCandlish, Kaplan and Amodei, 2018, arXiv 1812.06162). A step
    in which nothing arrives makes no progress. The terms are the bound's, except the one with the imbalance
    ``I``: where the clusters' data differ, a step of a few clusters pulls the model towards their data. That
    the terms act on the speed in this way is a model of this package [X].

    Where clusters sit out or take different numbers of local steps, ``S`` and ``eps`` are means over the
    clusters that take part, and ``H^2`` is their mean of ``H_n^2``. A local step that only some of them still
    take counts in proportion, as it does in the mean of their models. Where ``A`` of ``N`` take part,
    ``sitting_out (1 - A / N)`` is added to ``u``, as the moments of the other clusters' optimisers grow stale
    [X].

    Args:
        heterogeneity: ``zeta^2`` of the partition over the squared gradient norm, at least 0.
        factors: Share of the full step size in each local step (E, H), in [0, 1]; None for 1 in all.
    """
    steps = outcome.own_steps
    xp = namespace(steps)
    players = xp.sum(xp.astype(steps > 0.0, steps.dtype), axis=-1, keepdims=True)
    several = xp.where(players > 0.0, players, xp.ones_like(players))
    squares = xp.sum(steps * steps, axis=-1, keepdims=True) / several
    terms = terms_of_steps(*law_terms(constants, outcome.clusters, heterogeneity), several, squares)
    samples = outcome.surviving_samples.sum(axis=1)
    each = step_progress(terms, samples, outcome.imbalance, outcome.error_probability[:, None])
    numbers = xp.cumulative_sum(xp.ones_like(outcome.surviving_samples), axis=-1)
    active = xp.sum(xp.astype(steps[..., None] >= numbers, steps.dtype), axis=1)
    made = each * (active / several)
    return (made if factors is None else made * factors).sum(axis=-1)
