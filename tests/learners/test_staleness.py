"""Asynchronous pipelines: real training with stale and predicted weights, against a plain reference."""

import numpy as np
import pytest
import torch
from learner_support import B, N, PlainTraining, single_outcome, small_learner
from torch import nn
from variants_support import mostly_slow

from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.flat_parameters import FlatParameters, Trained
from collapipe_env.training.staleness import WeightVersions

BLOCKS_OF = [(1, 0, 3), (0, 2, 2), (2, 1, 1)]
GAPS_OF = [(2, 9, 1), (7, 1, 0), (1, 3, 1)]  # slots without blocks have gaps that must not be read


def alive(local_steps, probability=1.0, seed=0):
    return np.random.default_rng(seed).random((N, local_steps, B)) < probability


def gap_of_name(blocks, gaps):
    """Version gap by parameter name, spelt out block by block; the embedding has the first stage's."""
    by_block = [gap for count, gap in zip(blocks, gaps, strict=True) for _ in range(count)]

    def gap(name):
        return by_block[int(name.split(".")[1])] if name.startswith("blocks") else by_block[0]

    return gap


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("predict", [True, False])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("probability", mostly_slow([1.0, 0.5], [1]))
def test_training_equals_explicit_versions(optimizer, predict, probability):
    """Four local steps, clusters of one to three stages with different gaps, over three rounds."""
    options = {"optimizer": optimizer, "weight_prediction": predict}
    learner, plain = small_learner(4, **options), PlainTraining(small_learner(4, **options))
    gaps = [gap_of_name(b, g) for b, g in zip(BLOCKS_OF, GAPS_OF, strict=True)]
    for t in range(3):
        survived = alive(4, probability, seed=t)
        report = learner.train_round(single_outcome(BLOCKS_OF, survived, staleness=GAPS_OF))
        plain.assert_equals(learner, report, plain.round(survived, gaps=gaps))


def weights_after(staleness, rounds=2, local_steps=3, **learning):
    learner = small_learner(local_steps, **learning)
    for t in range(rounds):
        learner.train_round(single_outcome(BLOCKS_OF, alive(local_steps, 0.7, seed=t), staleness=staleness))
    run = learner._runs[0]
    return torch.cat([run._parameters.flatten(), run._head.flat.values])


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


def test_one_gradient_overshoots_at_large_steps():
    """The limits that the modelling notes state for SGD, whose last gradient stands for all steps ahead."""
    for predict, stable, unstable in ((True, 0.25, 0.30), (False, 0.43, 0.46)):
        ends = [
            float(quadratic_descent("sgd", rate / 3, 3, predict, rounds=400)[-1].abs().max())
            for rate in (stable, unstable)
        ]
        assert ends[0] < 0.3
        assert ends[1] > 3.0


def test_versions_are_kept_only_as_long_as_some_gap_needs_them():
    learner = small_learner(6)
    run = learner._runs[0]
    plan, made = run._versions, {}

    def remembered(*arguments):
        made.update(plan(*arguments))
        return made

    run._versions = remembered
    learner.train_round(single_outcome(BLOCKS_OF, alive(6), staleness=[(1, 9, 1), (9, 2, 0), (0, 0, 0)]))
    assert {n: len(versions._versions) for n, versions in made.items()} == {0: 2, 1: 3}


@pytest.mark.usefixtures("float64")
def test_the_server_never_lags():
    """Split training and an asynchronous pipeline at once: the gap stops where the server begins."""
    learner, plain = small_learner(4), PlainTraining(small_learner(4))
    blocks, staleness = [(1, 1), (0, 2), (2, 0)], [(2, 1), (0, 1), (1, 0)]
    gaps = [gap_of_name(b, g) for b, g in (((1, 1, 2), (2, 1, 0)), ((2, 2), (1, 0)), ((2, 2), (1, 0)))]
    for mode in (0, 1):
        survived = alive(4, 0.6, seed=mode)
        served = {"server_blocks": (2,) * N, "mode": mode}
        report = learner.train_round(single_outcome(blocks, survived, staleness=staleness, **served))
        plain.assert_equals(learner, report, plain.round(survived, gaps=gaps, **served))
