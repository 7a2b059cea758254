"""The surrogate's rounds, row by row, with the formulas of :mod:`collapipe_env.learners.surrogate`."""

from __future__ import annotations

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled
from collapipe_env.physics.loss_curve import CurveTerms, StepTerms, imbalance_of, loss_at, step_progress


@compiled
def learn_rows(
    terms: StepTerms,
    curve: CurveTerms,
    batch_size: float,
    arrived: IntArray,
    micro_batches: IntArray,
    survival: FloatArray,
    factors: FloatArray,
    round_index: IntArray,
    progress: FloatArray,
    reached: FloatArray,
    loss: FloatArray,
) -> None:
    """Make one round's progress.

    Args:
        terms: Constants of a local step.
        curve: Constants of the loss curve.
        batch_size: Samples ``B`` of a cluster's mini-batch.
        arrived: Micro-batches whose gradients arrived (E, N, H).
        micro_batches: ``M`` (E, N).
        survival: Probability that a micro-batch survives a local step (E, N).
        factors: Share of the full step size in each local step of each round (rounds, H).
        round_index: Rounds played before this one (E,).
        progress: Progress before it (E,).
        reached: Progress after it (E,), written.
        loss: The loss there (E,), written.
    """
    E, N, H = arrived.shape
    for e in range(E):
        surviving = 0.0
        for n in range(N):
            surviving += survival[e, n]
        error = 1.0 - surviving / N
        made = 0.0
        for h in range(H):
            samples = squares = 0.0
            for n in range(N):
                own = arrived[e, n, h] * (batch_size / micro_batches[e, n])
                samples += own
                squares += own * own
            step = step_progress(terms, samples, imbalance_of(N, samples, squares), error)
            made += step * factors[round_index[e], h]
        reached[e] = progress[e] + made
        loss[e] = loss_at(curve, reached[e])
