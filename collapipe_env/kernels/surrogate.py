"""The surrogate's rounds, row by row, with the formulas of :mod:`collapipe_env.learners.surrogate`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

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


class LearnTerms(NamedTuple):
    """Numbers of the surrogate's rounds.

    Attributes:
        step: Constants of a local step at ``H = 0``.
        plan: Constants of the terms that plans decide.
        curve: Constants of the loss curve.
        batch_size: Samples ``B`` of a cluster's mini-batch.
    """

    step: StepTerms
    plan: PlanTerms
    curve: CurveTerms
    batch_size: float


@compiled
def learn_rows(
    record: Any,
    arrived: IntArray,
    micro_batches: IntArray,
    survival: FloatArray,
    factors: FloatArray,
    taken: IntArray,
    before: IntArray,
    progress: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Make the progress of a round in which clusters may sit out and take different numbers of local steps.

    Args:
        record: :class:`LearnTerms` as a record (1,).
        arrived: Micro-batches whose gradients arrived (E, N, H).
        micro_batches: ``M`` (E, N).
        survival: Probability that a micro-batch survives a local step (E, N).
        factors: Share of the full step size in each local step of all rounds (steps,).
        taken: ``H_n`` (E, N), 0 for clusters that sit out.
        before: Local steps of the rounds before (E,).
        progress: Progress before the round (E,).

    Returns:
        Progress and loss after it (E,).
    """
    c: LearnTerms = record[0]
    E, N, H = arrived.shape
    reached, loss = np.empty(E), np.empty(E)
    for e in range(E):
        players = squares_of_steps = lost = 0.0
        for n in range(N):
            own_steps = taken[e, n]
            if own_steps > 0:
                players += 1.0
                squares_of_steps += float(own_steps * own_steps)
                lost += 1.0 - survival[e, n]
        made = 0.0
        if players > 0.0:
            terms = terms_of_steps(c.step, c.plan, players, squares_of_steps / players)
            for h in range(H):
                samples = squares = active = 0.0
                for n in range(N):
                    if taken[e, n] > h:
                        active += 1.0
                        own = arrived[e, n, h] * (c.batch_size / micro_batches[e, n])
                        samples += own
                        squares += own * own
                if active > 0.0:
                    step = step_progress(terms, samples, imbalance_of(N, samples, squares), lost / players)
                    made += active / players * step * factors[before[e] + h]
        reached[e] = progress[e] + made
        loss[e] = loss_at(c.curve, reached[e])
    return reached, loss
