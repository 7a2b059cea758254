"""Asynchronous pipelines: real training with stale and predicted weights, against a plain reference."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_support import B, N, PlainTraining, single_outcome, small_learner
from schedule_oracle import StageTimes, one_f_one_b, run_orders, usable_caps
from torch import nn
from variants_support import mostly_slow

from collapipe_env.training.flat_parameters import FlatParameters
from collapipe_env.training.staleness import WeightVersions, next_step

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
        learner.train_round(single_outcome(BLOCKS_OF, survived, staleness=GAPS_OF))
        plain.round(survived, gaps=gaps)
        plain.assert_equals(learner)


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


def test_only_the_clusters_that_lag_compute_on_other_weights():
    """With gap 0 the path through the versions itself gives the bits of the synchronous one."""
    learner, other = small_learner(3), small_learner(3)
    forced = other._runs[0]
    plan = forced._versions

    def zero_gaps(blocks, staleness, local_steps):
        made = plan(blocks, np.ones_like(blocks), local_steps)
        for versions in made.values():
            versions._gaps = [(places, 0) for places, _ in versions._gaps]
        assert len(made) == N
        return made

    forced._versions = zero_gaps
    outcome = single_outcome(BLOCKS_OF, alive(3, 0.7))
    first, second = learner.train_round(outcome), other.train_round(outcome)
    assert forced._lagging is not None
    np.testing.assert_array_equal(first.train_loss, second.train_loss)
    assert torch.equal(learner._runs[0]._parameters, forced._parameters)


def test_prediction_is_off_when_asked():
    staleness = np.full((N, 3), 2)
    assert not torch.equal(weights_after(staleness), weights_after(staleness, weight_prediction=False))


def test_predicted_weights_are_nearer_to_the_true_ones(monkeypatch):
    """In a real run: distance of what stages compute with to the weights they would have without a gap."""
    distances = []
    fill = WeightVersions.fill

    def measured(self, values):
        fill(self, values)
        true = self._flat.values
        stale = self._versions[-1 - min(2, self._mini_batch)].values
        if self._mini_batch >= 2:
            distances.append((float((values - true).norm()), float((stale - true).norm())))

    monkeypatch.setattr(WeightVersions, "fill", measured)
    learner = small_learner(6)
    for t in range(4):
        learner.train_round(single_outcome(BLOCKS_OF, alive(6, seed=t), staleness=np.full((N, 3), 2)))
    predicted, stale = np.array(distances).mean(axis=0)
    assert len(distances) == 4 * N * 4
    assert predicted < 0.8 * stale


def quadratic_descent(optimizer, rate, gap, predict, rounds=40):
    """Weights along a descent of sum(a w^2) / 2 from w = 1, the largest curvature being 3."""
    curvature = torch.tensor([0.5, 1.0, 3.0])
    flat = FlatParameters(nn.ParameterList([nn.Parameter(torch.ones(3))]), torch.empty(3), torch.zeros(3))
    stepper = flat.optimizer(optimizer, rate, 0.0)
    versions = WeightVersions(flat, stepper, [([slice(0, 3)], gap)], predict=predict)
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


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_rule_is_the_optimisers_own_next_step(optimizer):
    """With a gradient that never changes, the predicted weights are the true ones."""
    module = nn.ParameterList([nn.Parameter(torch.randn(2, 3)), nn.Parameter(torch.randn(4))])
    flat = FlatParameters(module, torch.empty(10), torch.zeros(10))
    stepper = flat.optimizer(optimizer, 0.1, 0.0)
    assert next_step(stepper, applied=False) is None
    flat.gradients.copy_(torch.linspace(-1, 1, 10))
    stepper.step()
    predicted = flat.values - 2 * next_step(stepper, applied=True)
    stepper.step()
    stepper.step()
    torch.testing.assert_close(flat.values, predicted)


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


@settings(max_examples=25, deadline=None)
@given(
    caps=st.lists(st.integers(1, 7), min_size=1, max_size=4).map(lambda c: sorted(c, reverse=True)),
    micro_batches=st.integers(1, 4),
)
def test_gap_formula_counts_the_steps_that_a_stage_misses(caps, micro_batches):
    """``ceil((K_s - 1) / M)`` against the simulated order, at each mini-batch's first forward."""
    H, P = 5, len(caps)
    used = usable_caps(caps, H * micro_batches)
    times = StageTimes((1.0,) * P, (2.0,) * P, link_forward=(0.5,) * (P - 1), link_backward=(0.5,) * (P - 1))
    events = run_orders([one_f_one_b(cap, H * micro_batches) for cap in used], times)
    for s, cap in enumerate(used):
        done = 0
        for event in events:
            if event.is_link or event.stage != s:
                continue
            g, m = divmod(event.micro_batch, micro_batches)
            if event.kind == "F" and m == 0:
                assert g - done // micro_batches == min(-(-(cap - 1) // micro_batches), g)
            done += event.kind == "B"


@pytest.mark.usefixtures("float64")
def test_the_server_never_lags():
    """Split training and an asynchronous pipeline at once: the gap stops where the server begins."""
    learner, plain = small_learner(4), PlainTraining(small_learner(4))
    blocks, staleness = [(1, 1), (0, 2), (2, 0)], [(2, 1), (0, 1), (1, 0)]
    gaps = [gap_of_name(b, g) for b, g in (((1, 1, 2), (2, 1, 0)), ((2, 2), (1, 0)), ((2, 2), (1, 0)))]
    for mode in (0, 1):
        survived = alive(4, 0.6, seed=mode)
        learner.train_round(
            single_outcome(blocks, survived, server_blocks=(2,) * N, mode=mode, staleness=staleness)
        )
        plain.round(survived, server_blocks=(2,) * N, mode=mode, gaps=gaps)
        plain.assert_equals(learner)
