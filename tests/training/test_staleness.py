"""Stale and predicted weights of asynchronous pipelines; `test_federation.py` compares whole trainings."""

import gc

import numpy as np
import pytest
import torch
from learner_support import B, N, SmallRun
from torch import nn

from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.flat_parameters import FlatParameters, Trained
from collapipe_env.training.staleness import WeightVersions

BLOCKS_OF = [(1, 0, 3), (0, 2, 2), (2, 1, 1)]
GAPS_OF = [(2, 9, 1), (7, 1, 0), (1, 3, 1)]  # slots without blocks have gaps that must not be read


def weights_after(staleness, local_steps=3, **options):
    run = SmallRun(local_steps, **options)
    for t in range(2):
        survived = np.random.default_rng(t).random((N, local_steps, B)) < 0.7
        run.train(blocks=BLOCKS_OF, survived=survived, staleness=staleness)
    return torch.cat([run.weights.flatten(), run.head])


def test_no_gap_is_synchronous_to_the_bit():
    expected = weights_after(None)
    assert torch.equal(weights_after(np.zeros((N, 3), dtype=int)), expected)
    # Gaps in slots without blocks are none, and a flush ends every round.
    assert torch.equal(weights_after([(0, 5, 0), (5, 0, 0), (0, 0, 0)]), expected)
    assert torch.equal(weights_after(GAPS_OF, local_steps=1), weights_after(None, local_steps=1))
    assert not torch.equal(weights_after([(0, 0, 1), (0, 0, 0), (0, 0, 0)]), expected)


def quadratic_descent(optimizer, rate, gap, predict, rounds=40):
    """Weights along a descent of sum(a w^2) / 2 from w = 1, the largest curvature being 3."""
    curvature = torch.tensor([0.5, 1.0, 3.0])
    flat = FlatParameters(nn.ParameterList([nn.Parameter(torch.ones(3))]), torch.empty(3), torch.zeros(3))
    stepper = flat.optimizer(LearningSpec(optimizer=optimizer, weight_decay=0.0, momentum=0.0), rate)
    versions = WeightVersions(Trained(None, flat, stepper), [([slice(0, 3)], gap)], predict=predict)
    values, path = torch.empty(3), []
    for _ in range(rounds):
        versions.fill(values)
        flat.gradients.copy_(curvature * values)
        stepper.step()
        versions.record(True)
        path.append(flat.values.clone())
    return torch.stack(path)


@pytest.mark.parametrize(("optimizer", "rate"), [("adamw", 0.08), ("sgd", 0.05)])
def test_prediction_keeps_a_quadratic_descent_near_the_synchronous_one(optimizer, rate):
    synchronous = quadratic_descent(optimizer, rate, 0, True)
    predicted, stale = (
        float((quadratic_descent(optimizer, rate, 3, predict) - synchronous).norm())
        for predict in (True, False)
    )
    assert predicted < 0.5 * stale


@pytest.mark.parametrize(("predict", "stable", "unstable"), [(True, 0.25, 0.30), (False, 0.43, 0.46)])
def test_one_gradient_overshoots_at_large_steps(predict, stable, unstable):
    """The limits that docs/sources.md states for SGD, whose last gradient stands for all steps ahead."""
    ends = [
        float(quadratic_descent("sgd", rate / 3, 3, predict, rounds=400)[-1].abs().max())
        for rate in (stable, unstable)
    ]
    assert ends[0] < 0.3
    assert ends[1] > 3.0


def test_versions_are_kept_only_as_long_as_some_gap_needs_them():
    flat = FlatParameters(nn.ParameterList([nn.Parameter(torch.ones(97))]), torch.empty(97), torch.zeros(97))
    stepper = flat.optimizer(LearningSpec(optimizer="sgd", momentum=0.0), 0.1)
    gaps = [([slice(0, 97)], 2), ([], 1)]
    versions, kept = WeightVersions(Trained(None, flat, stepper), gaps, predict=False), []
    gc.disable()  # so what is made here stays in the youngest generation, and nothing else is looked at
    try:
        for _ in range(6):
            versions.record(True)
            # Not isinstance, which asks what a dead weak reference stands for.
            new = (found for found in gc.get_objects(generation=0) if issubclass(type(found), torch.Tensor))
            kept.append(sum(found.shape == (97,) for found in new))
    finally:
        gc.enable()
    assert kept[1] == kept[0] + 1
    assert kept[1:] == kept[1:2] * 5
