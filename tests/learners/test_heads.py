"""Rounds of several local steps: a head for each cluster, averaged with the rest, or one for all."""

import copy

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, B, N, PlainTraining, single_outcome, small_learner
from variants_support import mostly_slow

from collapipe_env.learners import TorchLearner
from collapipe_env.scenario import load_scenario


def outcome(steps, probability=1.0, seed=0):
    survived = np.random.default_rng(seed).random((N, steps, B)) < probability
    return survived, single_outcome([(BLOCKS - 1, 1)] * N, survived)


def weights(run):
    return torch.cat([run._parameters.flatten(), run._head.flat.values])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("optimizer", mostly_slow(["adamw", "sgd"]))
@pytest.mark.parametrize("head", ["copies", "common"])
@pytest.mark.parametrize("steps", [1, 3])
def test_training_equals_plain_loops(steps, head, optimizer):
    learner = small_learner(steps, head=head, optimizer=optimizer)
    plain = PlainTraining(small_learner(steps, head=head, optimizer=optimizer))
    for t in range(3):
        survived, played = outcome(steps, 0.6, seed=t)
        learner.train_round(played)
        plain.round(survived)
        plain.assert_equals(learner)


def test_one_local_step_knows_no_difference():
    runs = [small_learner(1, head=head) for head in ("copies", "common")]
    for t in range(3):
        reports = [learner.train_round(outcome(1, 0.7, seed=t)[1]) for learner in runs]
        assert reports[0].train_loss[0] == reports[1].train_loss[0]
    assert torch.equal(*(weights(learner._runs[0]) for learner in runs))


def test_heads_differ_from_the_second_step_on():
    runs = [small_learner(2, head=head) for head in ("copies", "common")]
    for learner in runs:
        learner.train_round(outcome(2)[1])
    first, second = (learner._runs[0] for learner in runs)
    assert not torch.equal(first._head.flat.values, second._head.flat.values)
    assert not torch.equal(first._parameters, second._parameters)


def test_sgd_on_copies_of_a_lost_cluster_leaves_them_out():
    """The averaged head is the weighted mean of heads trained on the samples of one cluster alone."""
    options = {"optimizer": "sgd", "learning_rate": 0.3, "server_learning_rate": 0.3}
    heads, steps = [], 3
    for clusters in ({0}, {2}, {0, 2}):
        learner = small_learner(steps, **options)
        survived, _ = outcome(steps)
        survived[[n for n in range(N) if n not in clusters]] = False
        learner.train_round(single_outcome([(BLOCKS,)] * N, survived))
        heads.append(learner._runs[0]._head.flat.values)
    sizes = learner._runs[0]._data_sizes[[0, 2]]
    expected = sum(w * h for w, h in zip(sizes / sizes.sum(), heads[:2], strict=True))
    torch.testing.assert_close(heads[2], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("head", ["copies", "common"])
def test_run_goes_on_bit_for_bit(head):
    learner, other = (small_learner(2, head=head) for _ in range(2))
    learner.train_round(outcome(2, 0.8)[1])
    other.set_state(copy.deepcopy(learner.get_state()))
    for one in (learner, other):
        one.train_round(outcome(2, 0.8, seed=1)[1])
    assert torch.equal(weights(learner._runs[0]), weights(other._runs[0]))


@pytest.mark.parametrize(("head", "copied"), [("copies", True), ("common", False)])
def test_scenario_chooses(head, copied):
    scenario = load_scenario({"base": "small", "workload": {"local_steps": 2, "head": head}})
    learner = TorchLearner.from_scenario(scenario, 1)
    learner.reset([np.random.default_rng(0)])
    assert learner._runs[0]._setup.head_copies(2) is copied
