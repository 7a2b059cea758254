"""The surrogate's rounds, row by row, with the formulas of :mod:`collapipe_env.learners.surrogate`."""

from __future__ import annotations

from typing import NamedTuple

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.loss_curve import (
    CurveTerms,
    PlanTerms,
    StepTerms,
    imbalance_of,
    loss_at,
    step_progress,
    terms_of_steps,
)


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
        loss: Loss after it (E,), written.
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


class OwnSteps(NamedTuple):
    """Local steps of clusters that may take different numbers of them, or none.

    Attributes:
        taken: ``H_n`` (E, N), 0 for clusters that sit out.
        before: Local steps of the rounds before (E,).
    """

    taken: IntArray
    before: IntArray


@compiled
def learn_own_rows(
    base: StepTerms,
    plan: PlanTerms,
    curve: CurveTerms,
    batch_size: float,
    arrived: IntArray,
    micro_batches: IntArray,
    survival: FloatArray,
    factors: FloatArray,
    steps: OwnSteps,
    progress: FloatArray,
    reached: FloatArray,
    loss: FloatArray,
) -> None:
    """Make the progress of a round in which clusters may sit out and take different numbers of local steps.

    Args:
        base: Constants of a local step at ``H = 0``.
        plan: Constants of the terms that plans decide.
        curve: Constants of the loss curve.
        batch_size: Samples ``B`` of a cluster's mini-batch.
        arrived: Micro-batches whose gradients arrived (E, N, H).
        micro_batches: ``M`` (E, N).
        survival: Probability that a micro-batch survives a local step (E, N).
        factors: Share of the full step size in each local step of all rounds (steps,).
        steps: Local steps.
        progress: Progress before the round (E,).
        reached: Progress after it (E,), written.
        loss: Loss after it (E,), written.
    """
    E, N, H = arrived.shape
    for e in range(E):
        players = squares_of_steps = lost = 0.0
        for n in range(N):
            taken = steps.taken[e, n]
            if taken > 0:
                players += 1.0
                squares_of_steps += float(taken * taken)
                lost += 1.0 - survival[e, n]
        made = 0.0
        if players > 0.0:
            terms = terms_of_steps(base, plan, players, squares_of_steps / players)
            for h in range(H):
                samples = squares = active = 0.0
                for n in range(N):
                    if steps.taken[e, n] > h:
                        active += 1.0
                        own = arrived[e, n, h] * (batch_size / micro_batches[e, n])
                        samples += own
                        squares += own * own
                if active > 0.0:
                    step = step_progress(terms, samples, imbalance_of(N, samples, squares), lost / players)
                    made += active / players * step * factors[steps.before[e] + h]
        reached[e] = progress[e] + made
        loss[e] = loss_at(curve, reached[e])
